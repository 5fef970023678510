"""
The served page without a browser: who may ask, what is refused, what a job answers, and that it can be stopped.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from verifier.cli import main
from verifier.formats import read
from verifier.model import ScheduleError
from verifier.synthesize import Synthesis
from verifier.views.palette import THEMES
from verifier.views.served import app, jobs, work
from verifier.views.served.request import MAX_BODY, SOURCES, checked

HOST = "127.0.0.1:8765"
FAMILY = {"source": "family", "family": "1f1b", "ranks": 4, "microbatches": 8}
SYNTHESIS = {"source": "synthesis", "placement": "bidirectional", "ranks": 4, "microbatches": 8, "budget": 20}
HUNG = "import sys; [None for line in sys.stdin]"
"""Stands in for work that does not end by itself."""


@pytest.fixture
def client():
    with TestClient(app.application([HOST]), base_url=f"http://{HOST}", raise_server_exceptions=False) as started:
        yield started


def ended(client, written, seconds=30):
    """What became of a job."""
    answer = client.post("/jobs", json=written)
    assert answer.status_code == 201, answer.text
    return waited(client, answer.json()["job"], seconds)


def waited(client, name, seconds=30):
    until = time.monotonic() + seconds
    while (job := client.get(f"/jobs/{name}").json())["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.05)
    return job


@pytest.fixture
def hangs(monkeypatch):
    """Jobs that do nothing until they are ended."""
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", HUNG))


# ---------------------------------------- who may ask


@pytest.mark.parametrize("host", ["evil.example:8765", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8765.evil.example", ""])
def test_foreign_names_are_refused(client, host):
    for method, path in (("GET", "/"), ("POST", "/jobs"), ("GET", "/serve.js")):
        assert client.request(method, path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:8000", ""])
def test_foreign_pages_are_refused(client, origin):
    assert client.post("/jobs", json=FAMILY, headers={"origin": origin}).status_code == 403
    assert client.delete("/jobs/x", headers={"origin": origin}).status_code == 403


def test_the_own_page_may_ask(client, hangs):
    assert client.post("/jobs", json=FAMILY, headers={"origin": f"http://{HOST}"}).status_code == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_foreign_form_can_send_is_refused(client, kind):
    assert client.post("/jobs", content=json.dumps(FAMILY), headers={"content-type": kind}).status_code == 415


def test_every_answer_carries_the_policy(client):
    for path in ("/", "/serve.js", "/nowhere", "/jobs/x"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert client.get("/", headers={"host": "evil.example"}).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/jobs/x", "/jobs/x/json", "/serve.html", "/../pyproject.toml", "/%2e%2e/pyproject.toml"])
def test_unknown_paths(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]


# ---------------------------------------- what may be asked


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({**FAMILY, "ranks": 10**9}, "ranks: expected a whole number from 1 to 256, got 1000000000"),
        ({**FAMILY, "ranks": 0}, "ranks: expected"),
        ({**FAMILY, "ranks": True}, "ranks: expected"),
        ({**FAMILY, "ranks": "4"}, "ranks: expected"),
        ({**FAMILY, "ranks": 2.5}, "ranks: expected"),
        ({**FAMILY, "ranks": 256, "microbatches": 100_000}, "more than 100000 ops"),
        ({**FAMILY, "family": "interleaved", "stages_per_rank": 64, "microbatches": 1000}, "more than 100000 ops"),
        ({**FAMILY, "family": "dualpip"}, "family: expected"),
        ({**FAMILY, "family": "/etc/passwd"}, "family: expected"),
        ({**FAMILY, "microbatches": None}, "microbatches: missing"),
        ({**FAMILY, "costs": "F" * 10_001}, "costs: longer"),
        ({**FAMILY, "messages": ["telepathy"]}, "messages: expected"),
        ({**FAMILY, "messages": [["rank"]]}, "messages: expected"),
        ({**FAMILY, "text": "0F0"}, "text: family knows no such value"),
        ({**FAMILY, "<b>": 1}, "<b>: family knows no such value"),
        ({"source": "file", "path": "/etc/passwd"}, "source: expected"),
        ({"source": ["family"]}, "source: expected"),
        ({"source": "pasted"}, "text: missing"),
        ({"source": "synthesis", "placement": "v", "ranks": 4, "microbatches": 8, "budget": 10**6}, "budget: expected"),
        ({"source": "synthesis", "placement": "v", "ranks": 4, "microbatches": 8}, "budget: missing"),
        ({**SYNTHESIS, "seed": -1}, "seed: expected a whole number from 0 to 2147483647, got -1"),
        ({**SYNTHESIS, "seed": 2**31}, "seed: expected"),
        ({**SYNTHESIS, "scope": "some"}, "scope: expected auto or mirrored or all, got some"),
        ({**SYNTHESIS, "objective": "idle"}, "objective: expected makespan or span-idle, got idle"),
        ({**FAMILY, "scope": "all"}, "scope: family knows no such value"),
        ([], "source: expected"),
    ],
)
def test_bad_requests_are_refused_before_any_work(client, written, said):
    answer = client.post("/jobs", json=written)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


@pytest.mark.parametrize("body", ["", "{", "[" * 100_000, b"\xff", '{"source": ' + "9" * 10_000 + "}"])
def test_what_is_no_json_is_refused(client, body):
    assert client.post("/jobs", content=body, headers={"content-type": "application/json"}).status_code == 400


def test_a_whole_number_of_thousands_of_digits_is_refused(client):
    body = json.dumps(FAMILY).replace("8", "9" * 4000)
    answer = client.post("/jobs", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, "a number too large" in answer.text) == (400, True)


HARD = {**SYNTHESIS, "costs": "F=10,I=12,W=9,FB=26,hop=1", "activations": "4", "budget": 200}


def test_the_shortest_schedule_is_found_and_certified(client):
    job = ended(client, {**SYNTHESIS, "activations": "5"})
    assert (job["synthesis"]["status"], job["synthesis"]["makespan"], job["verdict"]["status"]) == ("optimal", 25, "proved")
    source = read(client.get(f"/jobs/{job['job']}/json").content, "downloaded")
    assert source.schedule.name == "bidirectional P=4 M=8, synthesized"
    assert source.certificate["kind"] == "bound"
    assert source.limits.activations == 5


def test_objective_scope_and_seed_reach_the_search(monkeypatch):
    asked = {}

    def search(problem, costs, limits, **options):
        asked.update(options)
        return Synthesis("unknown", reason="not looked for")

    monkeypatch.setattr("verifier.synthesize.synthesize", search)
    monkeypatch.setattr("verifier.views.served.work.signal.signal", lambda *_: None)
    chosen = {"objective": "span-idle", "scope": "all", "seed": 0, "pairs": "any"}
    result = work.answer(checked({**SYNTHESIS, **chosen}), print)["result"]
    assert result["synthesis"]["status"] == "unknown"
    assert {**chosen, "budget": 20}.items() <= asked.items()


def test_the_shortest_span_is_found_among_all(client):
    job = ended(client, {**SYNTHESIS, "objective": "span-idle", "scope": "all", "seed": 7, "ranks": 2, "microbatches": 4})
    found = job["synthesis"]
    assert (found["status"], found["scope"], found["objective"]) == ("optimal", "all", "span-idle")
    assert found["longest_span"] <= found["makespan"]


def test_limits_that_nothing_meets_are_a_result(client):
    job = ended(client, {**SYNTHESIS, "placement": "v", "activations": "1"})
    assert (job["state"], job["synthesis"]["status"], job["files"]) == ("done", "infeasible", [])
    assert "the limit is 1" in job["synthesis"]["reason"]


def test_a_search_tells_of_its_progress_and_keeps_what_it_has_when_stopped(client):
    name = client.post("/jobs", json=HARD).json()["job"]
    until = time.monotonic() + 20
    while not (progress := client.get(f"/jobs/{name}").json()["progress"]):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert int(progress["best"]) - int(progress["bound"]) == int(progress["gap"])
    assert client.delete(f"/jobs/{name}").json()["stopping"]
    job = waited(client, name)
    assert (job["state"], job["synthesis"]["status"]) == ("done", "feasible")
    assert job["verdict"]["makespan"] <= int(progress["best"])
    assert job["seconds"] < 15


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"microbatches": 7}, "microbatches: 7 over two directions; expected an even number"),
        ({"blocks": "F,Q"}, "Q"),
        ({"costs": "/etc/passwd"}, "costs"),
        ({"activations": "many"}, "limits.activations"),
    ],
)
def test_a_search_for_nonsense_is_an_error(changed, said):
    assert said in work.answer(checked({**SYNTHESIS, **changed}), print)["error"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_too_large_is_refused(client, announced):
    part = b" " * (MAX_BODY // 2)
    body = part * 3 if announced else iter([part] * 3)
    answer = client.post("/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_only_so_many_jobs_at_a_time(client, hangs):
    started = [client.post("/jobs", json=FAMILY).json()["job"] for _ in range(jobs.RUNNING)]
    answer = client.post("/jobs", json=FAMILY)
    assert (answer.status_code, "wait for one or cancel it" in answer.json()["error"]) == (429, True)
    client.delete(f"/jobs/{started[0]}")
    assert waited(client, started[0])["state"] == "cancelled"
    assert client.post("/jobs", json=FAMILY).status_code == 201


def test_a_job_is_stopped_even_before_its_process_runs(client, hangs):
    # Both requests are there before the process is.
    for _ in range(5):
        name = client.post("/jobs", json=FAMILY).json()["job"]
        client.delete(f"/jobs/{name}")
        assert waited(client, name, 5)["state"] == "cancelled"


def test_old_jobs_are_forgotten(client, monkeypatch):
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", """print('{"error": "none"}')"""))
    monkeypatch.setattr(jobs, "KEPT", 3)
    names = [ended(client, FAMILY)["job"] for _ in range(5)]
    assert [client.get(f"/jobs/{name}").status_code for name in names] == [404, 404, 200, 200, 200]


def test_work_that_takes_too_long_is_ended(client, hangs, monkeypatch):
    monkeypatch.setattr("verifier.views.served.request.Request.seconds", 0.2)
    job = ended(client, FAMILY)
    assert job["state"] == "failed"
    assert "took longer than" in job["error"]


def test_a_job_without_an_answer_has_failed(client, monkeypatch):
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", "pass"))
    job = ended(client, FAMILY)
    assert job["state"] == "failed"
    assert "without an answer" in job["error"]


TELLS = """
import signal, sys, time
def interrupted(*_):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    print('{"result": {"files": {"json": "{}"}}, "missing": "the rest"}', flush=True)
signal.signal(signal.SIGINT, interrupted)
print('{"progress": {"best": "2"}}', flush=True)
while True:
    time.sleep(0.05)
"""
"""Stands in for a search that hands over what it has when it is interrupted, takes long over the rest, and dies of another."""


def test_no_interrupt_follows_a_first_result(client, monkeypatch):
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", TELLS))
    monkeypatch.setattr(jobs, "AGAIN", 0.2)
    monkeypatch.setattr(jobs, "GRACE", 1.0)
    name = client.post("/jobs", json=SYNTHESIS).json()["job"]
    while not client.get(f"/jobs/{name}").json()["progress"]:
        time.sleep(0.05)
    began = time.monotonic()
    client.delete(f"/jobs/{name}")
    job = waited(client, name, 10)
    assert (job["state"], job["files"], job["missing"]) == ("done", ["json"], "the rest: cancelled")
    assert time.monotonic() - began > 0.9


def test_what_was_told_by_the_deadline_is_kept(client, monkeypatch):
    told = """print('{"result": {"files": {"json": "{}"}}, "missing": "the rest"}', flush=True); """
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", told + HUNG))
    monkeypatch.setattr("verifier.views.served.request.Request.seconds", 1)
    job = ended(client, FAMILY)
    assert (job["state"], job["files"], job["error"]) == ("done", ["json"], "")
    assert job["missing"] == "the rest: took longer than 1 s, the limit; the command line has none"
    assert client.get(f"/jobs/{job['job']}/json").text == "{}"


@pytest.mark.parametrize("end", ['print(\'{"error": "no memory"}\')', "sys.exit(130)"])
def test_what_was_told_is_kept_where_the_rest_fails(client, monkeypatch, end):
    told = """import sys; print('{"result": {"files": {"json": "{}"}}, "missing": "the rest"}', flush=True); """
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-S", "-c", told + end))
    job = ended(client, FAMILY)
    assert (job["state"], job["files"], job["error"]) == ("done", ["json"], "")
    assert job["missing"].startswith("the rest: ")


# ---------------------------------------- what is answered


def test_replay_is_told_before_the_messages_are_judged():
    told = []
    last = work.answer(checked({**FAMILY, "messages": ["rank", "pair"]}), told.append)["result"]
    (first,) = told
    assert first["missing"] == "the verdict on messages and most files"
    properties = first["result"]["verdict"]["properties"]
    assert (properties["dependencies"]["status"], properties["messages"]["status"]) == ("proved", "unknown")
    assert properties["messages"]["reason"] == "not judged yet under rank, pair"
    assert sorted(first["result"]["files"]) == ["json", "report", "verdict"]
    assert last["verdict"]["properties"]["messages"]["status"] == "proved"


def test_what_a_search_found_is_told_before_it_is_judged(monkeypatch):
    monkeypatch.setattr("verifier.views.served.work.signal.signal", lambda *_: None)
    told = []
    last = work.answer(checked({**SYNTHESIS, "activations": "5"}), told.append)["result"]
    first, second = [each for each in told if "result" in each]
    assert first["result"]["synthesis"] == second["result"]["synthesis"] == last["synthesis"]
    assert first["result"]["files"] == {"json": last["files"]["json"]}
    assert "verdict" in second["result"]


def test_searches_have_a_limit_of_their_own():
    large = {**SYNTHESIS, "placement": "v", "ranks": 256, "microbatches": 17}
    assert "more than 25000 ops, this page's limit for a search" in work.answer(checked(large), print)["error"]


def test_a_family_is_judged_and_its_files_can_be_had(client):
    job = ended(client, {**FAMILY, "family": "dualpipe", "costs": "F=2,hop=1/2", "activations": "9", "messages": ["rank"]})
    verdict = job["verdict"]
    assert (job["state"], verdict["status"], verdict["ranks"]) == ("done", "proved", 4)
    assert verdict["properties"]["messages"]["models"]["rank"]["status"] == "proved"
    assert job["files"] == ["json", "messages", "trace", "verdict", "report", "svg", "svg-dark"]
    assert "torch-comms-csv" in job["refused"]["csv"]
    files = {name: client.get(f"/jobs/{job['job']}/{name}") for name in job["files"]}
    assert files["json"].headers["content-disposition"] == 'attachment; filename="schedule.json"'
    again = read(files["json"].content, "downloaded")
    assert again.schedule.name == "dualpipe P=4 M=8"
    assert again.costs is not None
    assert files["trace"].json()["traceEvents"]
    assert files["verdict"].json() == verdict
    assert files["svg"].headers["content-type"].startswith("image/svg+xml")
    assert files["svg"].headers["content-disposition"] == 'attachment; filename="schedule.svg"'
    for theme, name in (("light", "svg"), ("dark", "svg-dark")):
        drawn = files[name].text
        assert "dualpipe P=4 M=8" in drawn
        assert f"fill: {THEMES[theme]['paper']}" in drawn
    assert read(files["messages"].content, "downloaded", copies=2).program
    assert "sandbox allow-scripts" in files["report"].headers["content-security-policy"]
    assert "content-disposition" not in files["report"].headers
    assert client.get(f"/jobs/{job['job']}/report?download").headers["content-disposition"].startswith("attachment")


def test_what_is_too_large_to_draw_is_said(monkeypatch):
    monkeypatch.setattr(work, "DRAWN", 63)
    result = work.answer(checked(FAMILY), print)["result"]
    assert result["refused"]["svg"].startswith("more than 63 blocks; the report shows them all")
    assert "report" in result["files"]


def test_without_matplotlib_the_rest_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = work.answer(checked(FAMILY), print)["result"]
    assert "matplotlib" in result["refused"]["svg"]
    assert sorted(result["files"]) == ["csv", "json", "messages", "report", "trace", "verdict"]


def answered(text, **more):
    return work.answer(checked({"source": "pasted", "text": text, **more}), print)


def marked(table):
    return [
        (row["rank"], table["first"] + column) for row in table["rows"] for column, cell in enumerate(row["cells"]) if cell[1]
    ]


def test_a_malformed_cell_is_marked_where_it_is():
    found = answered("0F0,0B0\n\n1F0,1b0\n")
    assert found["error"].startswith('pasted: rank 1, column 1: "1b0" is not a cell')
    assert marked(found["table"]) == [(1, 1)]
    assert [cell[0] for cell in found["table"]["rows"][1]["cells"]] == ["1F0", "1b0"]


def test_a_malformed_token_of_json_is_marked():
    written = {"format": "pipeline-schedule/1", "name": "x", "ranks": 1, "placement": [[0]], "microbatches": [1]}
    found = answered(json.dumps({**written, "order": [["0F0", "0X0"]]}))
    assert marked(found["table"]) == [(0, 1)]


def test_a_refuted_table_is_marked_where_it_is_wrong():
    text = Path(__file__).parent.joinpath("data/cases/derived__dualpipev_W_before_I.csv").read_text()
    result = answered(text)["result"]
    witness = result["verdict"]["properties"]["dependencies"]["witness"][0]
    assert (witness["rank"], witness["cell"]) in marked(result["table"])
    assert sorted(result["files"]) == ["json", "report", "svg", "svg-dark", "verdict"]
    assert result["refused"]["csv"].startswith("refuted, so nothing is offered for runtimes")


def test_limits_mark_the_cell_that_breaks_them():
    result = answered("0F0,,0F1,0B0,0B1", activations="1")["result"]
    assert marked(result["table"]) == [(0, 2)]
    assert "csv" in result["files"]


def test_a_large_table_is_shown_around_the_mark():
    row = [f"0F{number}" for number in range(300)]
    found = answered(",".join([*row[:200], "oops", *row[200:]]))
    assert len(found["table"]["rows"][0]["cells"]) < 50
    assert marked(found["table"]) == [(0, 200)]
    assert not found["table"]["all"]


@pytest.mark.parametrize("costs", ["specs/dualpipe-unequal-costs.toml", "/etc/passwd", "pyproject.toml", ".", "F=1.toml"])
def test_costs_never_name_a_file(costs):
    assert answered("0F0,0B0", costs=costs)["error"].startswith("costs")


@pytest.mark.parametrize("text", ["0F99999999", "0F3333333,0B3333333", "\0", "{}", "[", "[schedule]\nfile = '/etc/passwd'\n"])
def test_pasted_nonsense_is_an_error(text):
    assert answered(text)["error"]


def test_halves_of_characters_stay_what_they_are(client):
    for body, said in (
        ({**FAMILY, "\ud800": 1}, "knows no such value"),
        ({"source": "pasted", "text": "\ud800"}, "half a character"),
    ):
        answer = client.post("/jobs", content=json.dumps(body), headers={"content-type": "application/json"})
        assert (answer.status_code, said in answer.json()["error"]) == (400, True)
    written = {"format": "pipeline-schedule/1", "name": "\ud800", "ranks": 1, "placement": [[0]], "microbatches": [1]}
    job = ended(client, {"source": "pasted", "text": json.dumps({**written, "order": [["0F0", "0B0"]]})})
    assert job["verdict"]["schedule"] == "\ud800"
    assert client.get(f"/jobs/{job['job']}/report").status_code == 200


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
NAMES = ("source", "family", "placement", "ranks", "microbatches", "budget", "text", "costs", "messages", "copies", "blocks")


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING), st.sampled_from(list(SOURCES)))
def test_any_request_is_checked_or_refused(written, source):
    with contextlib.suppress(ScheduleError):
        checked({"source": source, **written})


@given(st.text(st.sampled_from("0123FIWB,\n ;()'{}\"[:]x\0\ufeff"), min_size=1, max_size=40))
def test_any_text_is_judged_or_refused(text):
    found = answered(text) if text.strip() else {"error": "empty"}
    assert found.keys() & {"error", "result"}


def test_the_process_takes_no_more_memory_than_it_may():
    text = "from verifier.views.served import work; work.confine(); bytearray(5 * 2**30)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr


def test_the_process_ends_when_nobody_listens():
    with subprocess.Popen(jobs.COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        large = {"source": "family", "family": "1f1b", "ranks": 32, "microbatches": 500}
        child.stdin.write(json.dumps(large).encode() + b"\n")
        child.stdin.close()
        begin = time.monotonic()
        assert child.wait(10) in (0, 1)
        assert time.monotonic() - begin < 10


# ---------------------------------------- the command


def test_the_command_serves_and_ends_with_an_interrupt():
    command = [sys.executable, "-m", "verifier", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as server:
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert b"Pipeline schedules" in answer.read()
        finally:
            server.send_signal(2)
        assert server.wait(10) == 130


def test_a_port_in_use_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(main, ["serve", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "address already in use; choose another" in done.stderr
