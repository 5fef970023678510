"""
The report page in a browser: what is seen, what pointing and clicking does, and that names never become markup.

Needs Chromium and its driver (Debian: chromium, chromium-driver); run by ``make test-browser``.
"""

import shutil
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from verifier.costs import CostModel
from verifier.families import build_family
from verifier.gaps import gaps, why
from verifier.model import Block, Origin, Problem, Schedule
from verifier.sources import open_source, verdict
from verifier.verify import verify
from verifier.views.report import page

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip("selenium.webdriver")

OPTIMUM = Path(__file__).parents[1] / "examples" / "optimum-p8-m20.json"
HOSTILE = "</script><img src=x onerror=alert(1)>"

# Texts that the page writes onto canvases, as (canvas, text, left, top, right, bottom), noted as they are written.
WATCH = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const width = this.measureText(text).width, height = parseFloat(this.font) * 0.75;
  const left = x - { left: 0, center: width / 2, right: width }[this.textAlign];
  window.written.push([this.canvas, text, left, y - height / 2, left + width, y + height / 2]);
  write.call(this, text, x, y);
};
"""


@pytest.fixture(scope="module")
def browser():
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=1300,1000",
    ):
        options.add_argument(argument)
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    yield started
    started.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page of schedules; afterwards nothing may have gone wrong, nor anything but the file been asked for."""

    def open_page(*reports, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        path = tmp_path / "report.html"
        path.write_text(page(reports), encoding="utf-8")
        browser.get(path.as_uri())
        drawn(browser)
        return browser

    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    yield open_page
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    asked = [entry["message"] for entry in browser.get_log("performance") if "Network.requestWillBeSent" in entry["message"]]
    assert all('"url":"file://' in message for message in asked)


def judged(name, ranks, microbatches, **prices):
    return verify(build_family(name, ranks, microbatches), CostModel.of(**prices), solver="replay")


def named(report, name):
    simulation = replace(report.simulation, schedule=replace(report.schedule, name=name))
    return replace(report, schedule=simulation.schedule, simulation=simulation)


def drawn(browser):
    """Wait until what was asked for is on the screen."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def one(browser, selector):
    return browser.find_element("css selector", selector)


def shot(browser):
    """What the first canvas shows."""
    drawn(browser)
    return browser.execute_script("return document.querySelector('canvas').toDataURL()")


def point(browser, tick, rank, click=False):
    """Move the pointer to a moment of a rank."""
    x, y = browser.execute_script(
        "const t = report.timelines[0]; return [t.x(arguments[0]), t.y(arguments[1]) + t.block / 2]", tick, rank
    )
    canvas = one(browser, "canvas")
    actions = webdriver.ActionChains(browser)
    actions.move_to_element_with_offset(canvas, int(x - canvas.size["width"] / 2), int(y - canvas.size["height"] / 2))
    (actions.click() if click else actions).perform()
    drawn(browser)


def test_pointing_at_a_block_tells_what_it_is_waits_for_and_frees(opened):
    browser = opened(judged("dualpipe", 4, 8))
    point(browser, 12, 0)
    assert one(browser, "#tip").text.splitlines() == [
        "(3F2';0B0) on rank 0 (11 to 14)",
        "forward: stage 3, micro-batch 2, direction 1",
        "full backward: stage 0, micro-batch 0, direction 0",
        "takes 3",
        "waited longest: (3F2';0B0) needs 2F2' in (2F2';1B0) on rank 1 (8 to 11)",
        "reads: 0F0 on rank 0 (0 to 1), (2F2';1B0) on rank 1 (8 to 11)",
        "read by: 3B2' on rank 0 (14 to 16)",
        "the rank holds 5 activations, afterwards 4",
    ]
    point(browser, 10.5, 0)
    assert one(browser, "#tip").text == ("rank 0 idles from 10 to 11: (3F2';0B0) needs 2F2' in (2F2';1B0) on rank 1 (8 to 11)")


def test_clicking_walks_from_a_block_back_to_the_cause(opened):
    browser = opened(judged("1f1b", 4, 8))
    before = shot(browser)
    point(browser, 11, 0, click=True)
    assert one(browser, "#chosen .about").text.startswith("0B0 on rank 0 (10 to 12)")
    chain = [item.text for item in browser.find_elements("css selector", "#chosen li")]
    assert chain[:3] == [
        "1B0 needs 2B0 on rank 2 (6 to 8)",
        "2B0 needs 3B0 on rank 3 (4 to 6)",
        "3B0 needs 3F0 on rank 3 (3 to 4)",
    ]
    assert chain[-1] == "0F0 on rank 0 (0 to 1) starts without waiting"
    assert shot(browser) != before
    one(browser, "#chosen li:nth-child(2) button").click()
    assert one(browser, "#chosen .about").text.startswith("2B0 on rank 2 (6 to 8)")
    one(browser, "canvas").send_keys(webdriver.Keys.ESCAPE)
    assert not one(browser, "#chosen").is_displayed()
    point(browser, 12.5, 3)  # The pointer leaves nothing behind where nothing is.
    one(browser, "h1").click()


@pytest.mark.parametrize("toggle", ["critical", "messages", "memory", "stages", "theme"])
def test_toggles_change_what_is_drawn_and_back(opened, toggle):
    browser = opened(judged("dualpipe", 4, 8))
    before = shot(browser)
    one(browser, f"#{toggle}").click()
    assert shot(browser) != before
    one(browser, f"#{toggle}").click()
    assert shot(browser) == before


def test_the_legend_explains_what_is_drawn(opened):
    def legend():
        return [item.text for item in browser.find_elements("css selector", "#legend > span")]

    browser = opened(judged("1f1b", 2, 4))
    assert legend() == ["F forward", "B full backward", "idle", "critical path"]
    one(browser, "#memory").click()
    one(browser, "#critical").click()
    assert legend() == ["F forward", "B full backward", "idle", "live activations"]
    browser = opened(judged("dualpipe", 4, 8), judged("zbv", 4, 8))
    kinds = ["F forward", "B full backward", "I backward for the input", "W backward for the weights"]
    assert legend() == [*kinds, "dark: direction 1, or second stage of a rank", "overlapped", "idle", "critical path"]
    one(browser, "#stages").click()
    assert legend() == ["first to last stage", "idle", "critical path"]
    browser = opened(stuck())
    assert legend() == ["F forward"]


def test_zoom_and_move(opened):
    browser = opened(judged("dualpipe", 8, 20))
    canvas, all_of_it = one(browser, "canvas"), shot(browser)

    def stretch():
        return browser.execute_script("return [report.state.begin, report.state.end]")

    one(browser, "#nearer").click()
    assert stretch() == pytest.approx([33 - 0.6 * 33, 33 + 0.6 * 33])
    webdriver.ActionChains(browser).drag_and_drop_by_offset(canvas, 100, 0).perform()
    assert stretch()[0] < 33 - 0.6 * 33
    assert not one(browser, "#chosen").is_displayed()
    canvas.send_keys(webdriver.Keys.ARROW_RIGHT, "+", "-")
    assert shot(browser) != all_of_it
    one(browser, "#all").click()
    assert stretch() == [0, 66]
    assert shot(browser) == all_of_it
    wheel = "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -400, ctrlKey: true, cancelable: true}))"
    browser.execute_script(wheel, canvas)
    assert stretch()[1] < 66


def renamed(report):
    schedule = report.schedule
    names = (tuple(range(3, 3 + 2 * schedule.problem.total_microbatches, 2)),)
    return verify(Schedule(schedule.problem, schedule.order, "renamed", Origin(microbatches=names)), solver="replay")


@pytest.mark.parametrize(
    ("sizes", "prices"),
    [
        (("dualpipe", 4, 8), {}),
        (("dualpipe", 8, 20), {"F": 10, "I": 12, "W": 9, "FB": 26, "hop": "5/2"}),
        (("zbv", 4, 8), {"F": "1/3", "hop": "1/7"}),
        (("interleaved", 3, 6), {"W": 0}),
        (("1f1b", 4, 8), None),
    ],
)
def test_the_page_explains_bubbles_in_the_same_words(opened, sizes, prices):
    report = renamed(judged(*sizes)) if prices is None else judged(*sizes, **prices)
    browser = opened(report)
    found = browser.execute_script(
        "const [plan] = report.plans; return plan.gaps.map((_, rank) => plan.gapsOf(rank).map((gap) => plan.why(gap)))"
    )
    assert found == [[why(report.simulation, gap) for gap in row] for row in gaps(report.simulation)]


def test_a_bubble_in_the_list_is_shown_where_it_is(opened):
    browser = opened(judged("1f1b", 4, 8))
    one(browser, "select option[value='2']").click()
    listed = browser.find_elements("css selector", ".why button")
    assert [item.text.partition(":")[0] for item in listed] == [
        "rank 2 idles from 0 to 2",
        "rank 2 idles from 4 to 6",
        "rank 2 idles from 26 to 27",
        "rank 2 idles from 29 to 33",
    ]
    for _ in range(4):
        one(browser, "#nearer").click()
    listed[3].click()
    assert listed[3].get_attribute("aria-pressed") == "true"
    assert one(browser, "#chosen .about").text == listed[3].text
    begin, end = browser.execute_script("return [report.state.begin, report.state.end]")
    assert begin <= 31 <= end


def test_several_schedules_share_one_axis(opened):
    browser = opened(judged("dualpipe", 4, 8), judged("1f1b", 4, 8))
    assert [cell.text for cell in browser.find_elements("css selector", "#comparison td")][::8] == [
        "dualpipe P=4 M=8",
        "1f1b P=4 M=8",
    ]
    where = "return report.timelines.map((timeline) => timeline.x(20 * timeline.plan.scale))"
    assert len(set(browser.execute_script(where))) == 1
    one(browser, "#nearer").click()
    first, second = browser.execute_script(where)
    assert first == second


def test_names_stay_readable_beside_each_other_on_narrow_pages(opened):
    browser = opened(judged("dualpipe", 8, 20), judged("1f1b", 8, 20), judged("zbv", 8, 20))
    browser.set_window_size(700, 1000)
    try:
        drawn(browser)
        cells = browser.find_elements("css selector", "#comparison td:first-child")
        assert all(cell.size["width"] > 100 and cell.size["height"] < 80 for cell in cells)
        assert browser.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    finally:
        browser.set_window_size(1300, 1000)


def test_short_blocks_have_numbers_too_where_the_digits_fit(opened):
    browser = opened(judged("1f1b", 8, 20))
    browser.execute_script("window.written = []; report.redraw()")
    drawn(browser)
    texts = browser.execute_script("return window.written.map((entry) => entry[1])")
    assert sum(text.isdecimal() for text in texts) >= 2 * 8 * 20


def test_dualpipe_stands_beside_the_optimum(opened):
    optimum = verdict(open_source(str(OPTIMUM)), solver="replay")
    browser = opened(judged("dualpipe", 8, 20), optimum, judged("1f1b", 8, 20))
    lines = browser.find_elements("css selector", "#comparison tr")
    rows = [[cell.text for cell in line.find_elements("css selector", "td")] for line in lines]
    assert [row[:5] for row in rows if row] == [
        ["dualpipe P=8 M=20", "proved", "66", "6", "9.1% (1/11)"],
        ["optimum P=8 M=20", "proved", "63", "3", "4.8% (1/21)"],
        ["1f1b P=8 M=20", "proved", "81", "21", "25.9% (7/27)"],
    ]
    # The same moment stands at the same place in all of them, and so does the end of the longest.
    x = "return report.timelines.map((timeline) => timeline.canvas.getBoundingClientRect().left + timeline.x(arguments[0]))"
    for tick in (0, 63, 81):
        assert len(set(browser.execute_script(x, tick))) == 1
    gaps = browser.execute_script("return report.plans[1].gaps.flat().map(([, begin, end]) => [begin, end])")
    assert sum(end - begin for begin, end in gaps) == 8 * 3
    one(browser, "#critical").click()
    assert len(browser.find_elements("css selector", "canvas")) == 3


def test_names_stay_text(opened):
    report = named(judged("1f1b", 2, 2), HOSTILE)
    browser = opened(replace(report, notes=(HOSTILE,)), report)
    assert browser.title == f"{HOSTILE} | {HOSTILE}"
    assert [heading.text for heading in browser.find_elements("css selector", "h2")].count(HOSTILE) == 4
    assert HOSTILE in one(browser, ".note").text or HOSTILE in one(browser, "#details .note").text
    assert browser.find_elements("css selector", "img") == []
    assert browser.execute_script("return document.scripts.length") == 2


def stuck():
    rows = (("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B1", "1F1", "1B0"))
    order = tuple(tuple(map(Block.parse, row)) for row in rows)
    return verify(Schedule(Problem(((0, 1),), (2,)), order, "stuck"), solver="replay")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("sizes", [("dualpipe", 4, 8), ("dualpipe", 8, 20), ("zbv", 16, 32), None], ids=str)
@pytest.mark.parametrize("width", [1300, 420])
def test_no_text_is_clipped_or_overlaps(opened, sizes, dark, width):
    browser = opened(judged(*sizes) if sizes else stuck(), dark=dark)
    browser.set_window_size(width, 1000)
    try:
        browser.execute_script("window.written = []; report.redraw()")
        drawn(browser)
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
        assert browser.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        size = browser.execute_script("const c = document.querySelector('canvas'); return [c.clientWidth, c.clientHeight]")
        texts = browser.execute_script("return window.written.map((entry) => entry.slice(1))")
        assert len(texts) > browser.execute_script("return report.plans[0].ranks")
        for text, left, top, right, bottom in texts:
            assert left >= 0, text
            assert top >= 0, text
            assert right <= size[0], text
            assert bottom <= size[1], text
        for first, second in combinations(texts, 2):
            # Apart to the left, right, above or below.
            assert first[3] <= second[1] or second[3] <= first[1] or first[4] <= second[2] or second[4] <= first[2]
    finally:
        browser.set_window_size(1300, 1000)


def test_five_thousand_blocks_stay_smooth(opened):
    browser = opened(judged("zbv", 16, 56))
    blocks, milliseconds = browser.execute_script(
        """
        const begin = performance.now();
        for (let time = 0; time < 20; time += 1) {
          report.timelines[0].draw();
          report.timelines[0].ink.getImageData(0, 0, 1, 1); // What was asked for is drawn now.
        }
        return [report.plans[0].start.length, (performance.now() - begin) / 20];
        """
    )
    assert blocks == 16 * 56 * 6
    assert milliseconds < 100


def test_a_large_schedule_opens(opened):
    begin = time.process_time()
    report = judged("dualpipe", 64, 512)
    size = len(page([report]))
    took = time.process_time() - begin
    browser = opened(report)
    assert took < 20
    assert size < 30e6
    point(browser, 10, 40, click=True)
    assert one(browser, "#chosen").is_displayed()
