"""
The served page in a browser: what is pasted, judged, marked and downloaded, and that names never become markup.

Needs Chromium and its driver (Debian: chromium, chromium-driver); run by ``make test-browser``.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from verifier.formats import load
from verifier.verify import verify

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip("selenium.webdriver")
support = pytest.importorskip("selenium.webdriver.support.ui")

HOSTILE = "</script><img src=x onerror=alert(1)>"
CASES = Path(__file__).parent / "data" / "cases"


@pytest.fixture(scope="module")
def address():
    command = [sys.executable, "-u", "-m", "verifier", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.send_signal(2)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads):
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
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
    yield started
    started.quit()


@pytest.fixture
def served(browser, address):
    """The page, opened; afterwards nothing may have gone wrong, nor any other host been asked."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    yield browser
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in severe if "status of 400" not in message] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith((address, "data:")) for url in asked)


def one(browser, selector):
    return browser.find_element("css selector", selector)


def texts(browser, selector):
    return [found.text for found in browser.find_elements("css selector", selector)]


def until(browser, condition):
    return support.WebDriverWait(browser, 30, poll_frequency=0.05).until(lambda _: condition())


def fill(browser, **values):
    for name, value in values.items():
        field = one(browser, f"[name={name}]")
        if field.tag_name == "select":
            support.Select(field).select_by_visible_text(value)
        else:
            field.clear()
            field.send_keys(value)


def judge(browser):
    """Send the form and wait for the end of its job."""
    one(browser, "#go").click()
    until(browser, one(browser, "#go").is_enabled)


def paste(browser, text):
    one(browser, "[value=pasted]").click()
    browser.execute_script("document.querySelector('textarea').value = arguments[0]", text)
    judge(browser)


def downloaded(browser, folder, name, file):
    target = folder / file
    target.unlink(missing_ok=True)
    one(browser, f"#file-{name}").click()
    until(browser, target.exists)
    return target


def test_a_family_is_judged_seen_and_downloaded(served, downloads):
    fill(served, family="dualpipe", ranks="8", microbatches="20", activations="9")
    judge(served)
    assert one(served, "#status").text == "proved"
    assert texts(served, "#numbers dd")[2:5] == ["66", "6", "9.1% (1/11)"]
    assert one(served, "#report").is_displayed()
    served.switch_to.frame(one(served, "#report"))
    until(served, lambda: one(served, "canvas").is_displayed())
    assert one(served, "h1").text == "dualpipe P=8 M=20"
    served.switch_to.default_content()
    source = load(downloaded(served, downloads, "json", "schedule.json"))
    assert verify(source.schedule, source.costs, source.limits).status == "proved"
    assert json.loads(downloaded(served, downloads, "trace", "trace.json").read_text())["traceEvents"]
    assert "torch-comms-csv" in one(served, "#refused").text
    for name in ("schedule.svg", "schedule-dark.svg"):
        which = "svg-dark" if "dark" in name else "svg"
        drawn = ElementTree.parse(downloaded(served, downloads, which, name))
        assert "dualpipe P=8 M=20" in {"".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")}


def test_a_search_shows_its_progress_and_can_be_cancelled(served, downloads):
    one(served, "[value=synthesis]").click()
    fill(served, placement="bidirectional", ranks="4", microbatches="8", costs="F=10,I=12,W=9,FB=26,hop=1", activations="4")
    one(served, "#go").click()
    until(served, lambda: ": best " in one(served, "#progress").text)
    one(served, "#cancel").click()
    until(served, one(served, "#go").is_enabled)
    assert one(served, "#status").text == "feasible", one(served, "#progress").text
    assert "what lies between is open" in one(served, "#found").text
    source = load(downloaded(served, downloads, "json", "schedule.json"))
    assert verify(source.schedule, source.costs, source.limits).status == "proved"
    fill(served, costs="")
    judge(served)
    assert one(served, "#status").text == "optimal"
    assert "nothing shorter exists" in one(served, "#found").text


def test_what_a_job_had_when_its_time_was_up_is_shown(served):
    found = {"status": "feasible", "makespan": 5, "lower_bound": 4, "bound": "one rank", "scope": "all"}
    why = "the verdict and most files: took longer than 65 s"
    job = {"job": "x", "state": "done", "seconds": 65, "missing": why, "error": "", "files": ["json"], "refused": {}}
    served.execute_script("finish(arguments[0])", {**job, "synthesis": found})
    assert one(served, "#progress").text == f"done, 65.0 s; without {why}"
    assert one(served, "#file-json").is_displayed()
    assert not one(served, "#report").is_displayed()


def test_a_search_takes_its_objective_scope_and_seed(served):
    assert not one(served, "[name=seed]").is_displayed()
    one(served, "[value=synthesis]").click()
    assert one(served, "[name=seed]").is_displayed()
    fill(served, placement="bidirectional", ranks="2", microbatches="4", seed="5", costs="", activations="")
    fill(served, objective="the longest span of a rank", scope="all schedules")
    judge(served)
    assert one(served, "#status").text == "optimal", one(served, "#error").text
    assert re.match(r"Longest span \d+; nothing shorter exists \(", one(served, "#found").text)
    fill(served, scope="mirror-symmetric ones", objective="makespan", seed="99999999999")
    served.execute_script("document.querySelector('[name=seed]').removeAttribute('max')")
    judge(served)
    assert one(served, "#error").text == "seed: expected a whole number from 0 to 2147483647, got 99999999999"


def test_a_broken_table_is_marked_where_it_is_broken(served):
    paste(served, "0F0,0F1,,0B0,0B1\n1F0,1B0,1f1,1B1")
    assert '"1f1" is not a cell; did you mean 1F1?' in one(served, "#error").text
    assert texts(served, "td.wrong") == ["1f1"]
    assert not one(served, "#result").is_displayed()


def test_a_refuted_table_is_marked_where_it_is_wrong(served):
    paste(served, (CASES / "derived__dualpipev_W_before_I.csv").read_text())
    assert one(served, "#status").text == "refuted"
    wrong = texts(served, "td.wrong")
    assert wrong
    assert all(any(text in said for text in wrong) for said in texts(served, "#witnesses li"))


def test_a_table_is_read_from_a_file(served):
    one(served, "[value=pasted]").click()
    one(served, "#file").send_keys(str(CASES / "torchtitan__example__35cfe549.csv"))
    until(served, lambda: one(served, "textarea").get_attribute("value"))
    judge(served)
    assert one(served, "#result").is_displayed()


def test_names_stay_text(served, downloads):
    written = {"format": "pipeline-schedule/1", "name": HOSTILE, "ranks": 1, "placement": [[0]], "microbatches": [1]}
    paste(served, json.dumps({**written, "order": [["0F0", "0B0"]]}))
    assert one(served, "#name").text == HOSTILE
    assert served.find_elements("css selector", "img") == []
    served.switch_to.frame(one(served, "#report"))
    until(served, lambda: one(served, "h1").text == HOSTILE)
    assert served.find_elements("css selector", "img") == []
    served.switch_to.default_content()
    assert load(downloaded(served, downloads, "json", "schedule.json")).schedule.name == HOSTILE
    drawn = ElementTree.parse(downloaded(served, downloads, "svg", "schedule.svg"))
    assert HOSTILE in {"".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert not list(drawn.iter("{http://www.w3.org/2000/svg}img"))
    paste(served, f"0F0,{HOSTILE}")
    assert texts(served, "td.wrong") == [HOSTILE]
    assert served.find_elements("css selector", "img") == []


def test_sizes_beyond_the_limit_are_said_in_a_line(served):
    served.execute_script("document.querySelector('[name=ranks]').removeAttribute('max')")
    fill(served, ranks="1000000000")
    judge(served)
    assert one(served, "#error").text == "ranks: expected a whole number from 1 to 256, got 1000000000"


@pytest.mark.parametrize("width", [1300, 420])
def test_nothing_is_wider_than_the_window(served, width):
    served.set_window_size(width, 1000)
    try:
        paste(served, (CASES / "derived__dualpipev_W_before_I.csv").read_text())
        assert served.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        # The mark is seen without scrolling.
        cell, window = one(served, "td.wrong").rect, one(served, "#marked .scroll").rect
        assert window["x"] <= cell["x"]
        assert cell["x"] + cell["width"] <= window["x"] + window["width"]
    finally:
        served.set_window_size(1300, 1000)
