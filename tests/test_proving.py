import json
import re
import sys

import pytest
from click.testing import CliRunner

from verifier.check.__main__ import main as check
from verifier.check.bounds import check_bound
from verifier.check.conditions import EvidenceError
from verifier.commands.proving import prove
from verifier.model import ScheduleError
from verifier.theorems import opinion as opinion_module


def run(*arguments):
    """Exit code and output of the command."""
    runner = CliRunner()
    found = runner.invoke(prove, list(arguments), standalone_mode=False)
    if found.exception:
        raise found.exception
    return found.return_value, found.output


def test_without_a_theorem_all_are_listed():
    code, output = run()
    assert code == 0
    assert "dualpipe-makespan" in output
    listed = json.loads(run("--json")[1])
    assert {"theorem", "statement", "domain", "source"} == set(listed[0])
    assert [each["theorem"] for each in listed[-3:]] == ["bubble-constant", "makespan-at-most", "bubble-at-most"]


def test_a_theorem_is_proved_and_its_evidence_checked(tmp_path):
    code, output = run("gpipe-makespan", "--json", "--evidence", str(tmp_path))
    found = json.loads(output)
    assert (code, found["status"], found["conditions"]) == (0, "proved", found["of"])
    assert found["evidence"]["smt2"]["checks"] > 100
    assert check([str(tmp_path)]) == 0
    assert (found["met"] < found["of"], "since they never apply" in run("gpipe-legal")[1]) == (True, True)


def test_cvc5_has_to_agree(monkeypatch):
    pytest.importorskip("cvc5")
    code, output = run("gpipe-makespan", "--json", "--second-opinion")
    opinion = json.loads(output)["second_opinion"]
    assert (code, opinion["confirmed"], opinion["disputed"], opinion["undecided"]) == (0, opinion["conditions"], [], [])
    assert opinion["solver"].startswith("cvc5 ")
    assert run("makespan-at-most", "677", *BOX, "--second-opinion")[0] == 0
    answers = opinion_module.answers
    monkeypatch.setattr(opinion_module, "answers", lambda text: ["sat", *answers(text)[1:]])
    code, output = run("gpipe-makespan", "--second-opinion")
    assert (code, output.splitlines()[0]) == (3, "gpipe-makespan: unknown")
    assert "- cvc5 refutes: " in output
    output = run("gpipe-makespan", "--second-opinion", "--evidence", "/nowhere")[1]
    assert output.splitlines()[-1].startswith("evidence: none")
    assert json.loads(run("gpipe-makespan", "--second-opinion", "--evidence", "/nowhere", "--json")[1])["evidence"] is None
    code, output = run("published-zb1p-bubble", "--second-opinion")
    assert (code, "corrected status: unknown" in output) == (1, True)


def test_without_cvc5_nothing_is_begun(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvc5", None)
    with pytest.raises(ScheduleError, match="not installed; expected pip install"):
        run("dualpipe-makespan", "--second-opinion")


def test_bounds_and_published_formulas_leave_evidence(tmp_path, capsys):
    for arguments in (
        ("makespan-at-most", "677", *BOX),
        ("bubble-at-most", "0.05", *BOX),
        ("published-1f1b-bubble",),
    ):
        output = run(*arguments, "--evidence", str(tmp_path))[1]
        assert re.search(rf"evidence: {arguments[0]}(-[0-9a-f]{{12}})?\.json", output)
    assert "evidence: no SMT-LIB 2" in run("bubble-at-most", "1", *BOX, "--evidence", str(tmp_path))[1]
    capsys.readouterr()
    assert check([str(tmp_path)]) == 0
    assert (
        "makespan-at-most 677 of dualpipe P=8 M=20 at F=9..11,I=10..14,W=8..9,FB=24..28: proved, the makespan is 677 at"
        in capsys.readouterr().out
    )
    for name, changes in {"makespan-at-most": {"bound": 676}, "bubble-at-most": {"bound": "1/20"}}.items():
        written = json.loads(next(tmp_path.glob(f"{name}-*.json")).read_text())
        with pytest.raises(EvidenceError):
            check_bound({**written, **changes})


def test_the_published_bubble_is_refuted_with_the_least_counterexample():
    code, output = run("published-dualpipe-bubble", "--json")
    found = json.loads(output)
    assert (code, found["status"]) == (1, "refuted")
    assert found["witness"] == [
        "P = 6, M = 12, F = 1, I = 1, W = 1, B = 2, FB = 2: rank 0 idles 1, the formula says 2, which is above"
    ]
    assert found["corrected_status"] == "proved"
    assert found["below"].endswith("which is below")
    assert run("published-1f1b-bubble")[0] == 0


def test_bubbles_of_sources_are_constant_or_grow(tmp_path):
    code, output = run("bubble-constant", "dualpipe", "-P", "8", "--evidence", str(tmp_path))
    assert (code, output.splitlines()[0]) == (0, "bubble-constant: proved")
    assert check([str(tmp_path)]) == 0
    code, output = run("bubble-constant", "1f1b", "-P", "4", "--costs", "F=10,I=10,W=10,hop=1", "--json")
    assert (code, json.loads(output)["growth_per_microbatch"]) == (1, ["3/2"] * 4)
    assert run("bubble-constant", "tests/data/torch/ScheduleZBVZeroBubble_P4_M8.csv")[0] == 0


BOX = ("dualpipe", "-P", "8", "-M", "20", "--costs", "F=9..11,I=10..14,W=8..9,FB=24..28")


def test_bounds_for_uncertain_costs_are_proved_or_refuted_with_the_worst():
    code, output = run("makespan-at-most", "677", *BOX, "--json")
    assert (code, json.loads(output)["worst"], json.loads(output)["best"]) == (0, 677, 558)
    code, output = run("makespan-at-most", "676.5", *BOX)
    assert (code, "at F=11,I=14,W=9,FB=28 the makespan is 677, 1/2 above" in output) == (1, True)
    worst = json.loads(run("bubble-at-most", "1", *BOX, "--json")[1])["worst"]
    assert run("bubble-at-most", worst, *BOX)[0] == 0
    assert run("bubble-at-most", "0.05", *BOX)[0] == 1
    assert "at most the share 1/5 of" in run("bubble-at-most", "20%", *BOX)[1]


def test_conditions_that_hold_do_not_read_as_a_proof():
    code, output = run("bubble-constant", "gpipe", "-P", "4")
    assert (code, output.splitlines()[3].split(",")[0]) == (3, "not decided")
    code, output = run("bubble-constant", "1f1b", "-P", "4", "--costs", "hop=1")
    assert (code, output.splitlines()[3].split(";")[0]) == (1, "refuted by what follows")


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb1p", "zb2p"])
def test_theorems_say_for_which_costs(name):
    listed = {each["theorem"]: each["domain"] for each in json.loads(run("--json")[1])}
    assert listed[f"{name}-makespan"].endswith("all F, I, W >= 0, alike on all stages, B = I + W, no hop time")
    assert all("all costs" not in domain.replace("not all costs 0", "") for domain in listed.values())
    assert all("not all costs 0" in domain for theorem, domain in listed.items() if theorem.endswith("-ratio"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("makespan-at-most", "gpipe"), "expected X, a SOURCE and --costs"),
        (("makespan-at-most", "many", *BOX), "makespan-at-most: expected"),
        (("bubble-at-most", "1", *BOX, "--second-opinion"), "proved without a solver"),
        (("dualpipe-makespn",), "did you mean dualpipe-makespan"),
        (("nothing",), "verifier prove lists them"),
        (("--evidence", "x"), "--evidence: no THEOREM to prove"),
        (("-P", "4"), "--ranks: no THEOREM to prove"),
        (("makespan-at-most", "9", "gpipe", "--costs", ""), "--costs: empty"),
        (("makespan-at-most", "9%", *BOX), "makespan-at-most: expected a number"),
        (("bubble-constant",), "expected a SOURCE"),
        (("gpipe-makespan", "gpipe"), "about all sizes"),
        (("gpipe-makespan", "-P", "4"), "about all sizes"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments, message):
    with pytest.raises(ScheduleError, match=message):
        run(*arguments)
