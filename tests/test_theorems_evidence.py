import copy
import json
import subprocess
import sys

import pytest

from verifier.affine import symbols
from verifier.check.__main__ import main
from verifier.check.conditions import EvidenceError
from verifier.check.theorems import check_theorem, excludes
from verifier.families import build_family
from verifier.theorems.bubble import prove_bubble_constant
from verifier.theorems.conditions import Implication
from verifier.theorems.evidence import certified, write
from verifier.theorems.farkas import certificate, rows_of
from verifier.theorems.proof import PROVED, Proof
from verifier.theorems.theories import THEORIES

THEORY = {theory.name: theory for theory in THEORIES}
x, y = symbols("x y")


@pytest.fixture(scope="module")
def evidence():
    return json.loads(json.dumps(certified(THEORY["1f1b"], "idle")))


def test_the_evidence_of_a_theorem_is_accepted(evidence):
    assert check_theorem("1f1b-idle", evidence) == f"1f1b-idle: all {len(evidence['certificates'])} conditions are covered"


def first_sum(evidence):
    return next(each["sum"] for each in evidence["certificates"] if len(each["sum"]) > 1)


def flip_a_sign(evidence):
    first_sum(evidence)[0][1] *= -1


def change_a_factor(evidence):
    first_sum(evidence)[0][1] += 1


def delete_a_condition(evidence):
    del evidence["certificates"][17]


def leave_one_over(evidence):
    evidence["certificates"].append(evidence["certificates"][-1])


def swap_the_statement(evidence):
    evidence["about"] = "legal"


def swap_the_family(evidence):
    evidence["family"] = "gpipe"


def leave_a_case_out(evidence):
    # Claim of something that does occur that it does not.
    place = next(k for k, each in enumerate(evidence["excluded"]) if each is None)
    evidence["excluded"][place] = next(each for each in evidence["excluded"] if each)


def move_a_start(evidence):
    evidence["guesses"]["0"]["regions"]["all costs"]["timelines"][0]["starts"][2][""] = -5


def drop_a_ray(evidence):
    evidence["guesses"]["0"]["regions"]["all costs"]["timelines"].pop()


def shorten_a_path(evidence):
    evidence["guesses"]["0"]["paths"]["0"].pop()


def claim_another_bound(evidence):
    evidence["guesses"]["0"]["regions"]["all costs"]["limit"][0] = {"M": 1}


CHANGES = [
    flip_a_sign,
    change_a_factor,
    delete_a_condition,
    leave_one_over,
    swap_the_statement,
    swap_the_family,
    leave_a_case_out,
    move_a_start,
    drop_a_ray,
    shorten_a_path,
    claim_another_bound,
]


@pytest.mark.parametrize("change", CHANGES)
def test_evidence_that_was_tampered_with_is_refused(evidence, change):
    changed = copy.deepcopy(evidence)
    change(changed)
    with pytest.raises((EvidenceError, KeyError, StopIteration, IndexError)):
        check_theorem("1f1b-idle", changed)
    with pytest.raises(EvidenceError):
        check_theorem("gpipe-idle", evidence)


def test_whole_numbers_may_need_a_case_split():
    implication = Implication("parity", (2 * x >= 2 * y + 1, 2 * x <= 2 * y + 1), None)
    assert certificate(rows_of(Implication("", (x >= 1,), x - 1))) == {"sum": [[0, 1], [1, 1]]}
    assert certificate(rows_of(Implication("", (x >= 1,), x - 2))) is None
    found = certificate([2 * x - 1, 1 - 2 * x])
    excludes([2 * x - 1, 1 - 2 * x], found, "no half")
    with pytest.raises(EvidenceError):
        excludes([2 * x - 1, 2 - 2 * x], found, "but one")
    # Along a line of half numbers no split of one symbol ends.
    assert certificate(rows_of(implication), depth=2) is None


def test_a_folder_of_evidence_is_checked_without_a_solver(tmp_path):
    bubble = prove_bubble_constant(build_family("zbv", 2, 5))
    write(bubble, dict(bubble.evidence), str(tmp_path))
    proof = Proof("gpipe-peak-activations", "", "", PROVED, 1, 1, 0.0)
    write(proof, certified(THEORY["gpipe"], "peak-activations"), str(tmp_path))
    code = "import sys; from verifier.check.__main__ import main; print(main(sys.argv[1:]), 'z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "0 False"
    assert lines[0].startswith("constant")
    assert "left to the solver" in lines[1]


def test_bad_folders_have_exit_codes(tmp_path, capsys):
    assert main([]) == 2
    assert main([str(tmp_path)]) == 2
    (tmp_path / "manifest.json").write_text("{}")
    assert main([str(tmp_path)]) == 1
    (tmp_path / "manifest.json").write_text('{"gpipe-makespan": {}}')
    (tmp_path / "gpipe-makespan.json").write_text("{}")
    assert main([str(tmp_path)]) == 1
    assert "gpipe-makespan" in capsys.readouterr().out


@pytest.mark.deep
def test_the_evidence_of_dualpipe_is_accepted():
    evidence = json.loads(json.dumps(certified(THEORY["dualpipe"], "makespan")))
    assert check_theorem("dualpipe-makespan", evidence).endswith("conditions are covered")
