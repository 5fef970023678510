import copy
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from hashlib import sha256

import pytest

from verifier.affine import Affine, Condition, affine, least, symbols
from verifier.check import theorems as checking
from verifier.check.__main__ import main
from verifier.check.blocks import Reading
from verifier.check.bounds import check_bound
from verifier.check.bubble import check_bubble
from verifier.check.conditions import EvidenceError
from verifier.check.counting import busy, complete, peak, weights
from verifier.check.covering import excludes, in_order, name_of, options_in_order
from verifier.check.formulas import value_of
from verifier.check.instances import check_instances
from verifier.check.published import check_published
from verifier.check.scripts import asked
from verifier.check.theorems import check_theorem
from verifier.check.timing import spans, waits
from verifier.costs import CostModel
from verifier.families import DUALPIPE, FAMILIES, ONE_F_ONE_B, ZB2P, build_family
from verifier.loops import loop
from verifier.model import ScheduleError
from verifier.theorems import conditions, demands, structure
from verifier.theorems.boxes import Box, prove_at_most
from verifier.theorems.bubble import prove_bubble_constant
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import Formula, Implication, OneOf
from verifier.theorems.cones import COSTS, covered
from verifier.theorems.evidence import Evidence, certified, collected, evidence_of, script_of, write
from verifier.theorems.farkas import certificate, rows_of
from verifier.theorems.opinion import second_opinion
from verifier.theorems.proof import PROVED, UNKNOWN, Proof
from verifier.theorems.smtlib import script
from verifier.theorems.solving import possible
from verifier.theorems.statements import THEOREMS, prove
from verifier.theorems.theories import THEORIES

THEORY = {theory.name: theory for theory in THEORIES}
x, y, P, M, r = symbols("x y P M r")


@pytest.fixture(scope="module")
def evidence():
    return json.loads(json.dumps(certified("1f1b", "idle")))


def refused(name, evidence):
    with pytest.raises((EvidenceError, KeyError, IndexError, ValueError)) as caught:
        check_theorem(name, evidence)
    return str(caught.value)


# ---------------------------------------- evidence of families


@pytest.mark.parametrize(
    "name", ["1f1b-legal", "1f1b-peak-activations", "gpipe-bubble-ratio", "gpipe-independence", "zb2p-peak-activations"]
)
def test_the_evidence_of_a_theorem_is_accepted(name):
    theorem = THEOREMS[name]
    evidence = json.loads(json.dumps(certified(theorem.theory.name, theorem.kind)))
    assert evidence["uncertified"] == []
    assert f"{name}: all " in check_theorem(name, evidence)


@pytest.mark.deep
@pytest.mark.parametrize("family", THEORY)
@pytest.mark.parametrize("kind", checking.DEMANDS)
def test_the_evidence_of_all_theorems_is_accepted(family, kind):
    if f"{family}-{kind}" in THEOREMS:
        assert check_theorem(f"{family}-{kind}", json.loads(json.dumps(certified(family, kind))))


def test_the_checker_asks_for_all_that_the_prover_asks_for(evidence):
    book = checking.Book(THEORY["1f1b"], evidence)
    for demand in checking.DEMANDS["idle"]:
        demand(book)
    names = {}
    for statement in collected("1f1b", "idle").all:
        rows, options = rows_of(statement)
        names[name_of(rows, options)] = statement.name
    more = {names[name] for name in book.table.left_over}
    # Rays are compared without certificates; and of steps that never happen it need not know what would follow.
    assert {name for name in more if not name.startswith("path 0 from")} == {f"all costs: facet {k}" for k in range(3)} | {
        "all costs: equation 0"
    }


# ---------------------------------------- evidence that was tampered with


def first_sum(evidence):
    return next(each["sum"] for each in evidence["certificates"].values() if len(each.get("sum", ())) > 1)


def flip_a_sign(evidence):
    first_sum(evidence)[0][1] *= -1


def change_a_factor(evidence):
    first_sum(evidence)[0][1] += 1


def swap_two_certificates(evidence):
    names = [name for name, each in evidence["certificates"].items() if len(each.get("sum", ())) > 1]
    some = evidence["certificates"]
    other = next(name for name in names if some[name] != some[names[0]])
    some[names[0]], some[other] = some[other], some[names[0]]


def swap_the_statement(evidence):
    evidence["about"] = "legal"


def swap_the_family(evidence):
    evidence["family"] = "gpipe"


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
    swap_two_certificates,
    swap_the_statement,
    swap_the_family,
    move_a_start,
    drop_a_ray,
    shorten_a_path,
    claim_another_bound,
]


@pytest.mark.parametrize("change", CHANGES)
def test_evidence_that_was_tampered_with_is_refused(evidence, change):
    changed = copy.deepcopy(evidence)
    change(changed)
    refused("1f1b-idle", changed)
    refused("gpipe-idle", evidence)


def test_every_certificate_that_is_used_is_needed(evidence):
    book = checking.Book(THEORY["1f1b"], evidence)
    for demand in checking.DEMANDS["idle"]:
        demand(book)
    used = sorted(evidence["certificates"].keys() - book.table.left_over)
    for name in used[::17]:
        changed = {**evidence, "certificates": {n: each for n, each in evidence["certificates"].items() if n != name}}
        assert "not covered" in refused("1f1b-idle", changed)


def test_a_missing_case_is_refused(evidence, monkeypatch):
    theory = THEORY["1f1b"]
    changes = {
        # Sizes with fewer micro-batches than ranks; costs with F below I; a ray; the second half of a peak.
        "no sizes are left out": {"settings": theory.settings[:1]},
        "regions leave no costs out": {"regions": (replace(theory.regions[0], where=(*theory.costs, COSTS[0] >= COSTS[1])),)},
        "the rays generate": {"regions": (replace(theory.regions[0], rays=theory.regions[0].rays[:2]),)},
    }
    for name, change in changes.items():
        monkeypatch.setattr(checking, "THEORIES", (replace(theory, **change),))
        assert name in refused("1f1b-idle", evidence)


def test_loops_and_claims_that_are_not_those_of_the_evidence_are_refused(evidence, monkeypatch):
    theory = THEORY["1f1b"]
    first, *others = ONE_F_ONE_B.loops
    more = replace(ONE_F_ONE_B, loops=(*ONE_F_ONE_B.loops, loop(1, "W")))
    changes = [
        {"program": replace(ONE_F_ONE_B, loops=tuple(others))},
        {"program": more},
        {"program": replace(ONE_F_ONE_B, loops=(first, *others[::-1]))},
        {"program": replace(ONE_F_ONE_B, stages=(P - 1 - r,))},
        {"makespan": (Formula(M + P, M + P - 1, M + P - 1, affine(0)),)},
        {"makespan": (Formula(M + P - 2, M + P - 1, M + P - 1, affine(0)),)},
        {"parts": (replace(theory.parts[0], busy=Formula(M, M, M + 1, affine(0))),)},
    ]
    for change in changes:
        monkeypatch.setattr(checking, "THEORIES", (replace(theory, **change),))
        refused("1f1b-idle", evidence)
    monkeypatch.setattr(checking, "THEORIES", (replace(theory, peak=P - r),))
    refused("1f1b-peak-activations", certified("1f1b", "peak-activations"))


# ---------------------------------------- two ways from loops to conditions


def forgetful(monkeypatch, module, name):
    """Evidence of a prover that forgets some conditions."""
    collected.cache_clear()
    certified.cache_clear()
    forgets = (lambda *given: list(KNOWN_NEEDS(*given))[1:]) if name == "needs" else (lambda *given, **named: ())
    monkeypatch.setattr(module, name, forgets)


KNOWN_NEEDS = conditions.needs


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (conditions, "needs"),
        (conditions, "_program_order"),
        (demands, "completeness"),
        (demands, "weight_queue"),
        (demands, "obligations"),
        (demands, "path_conditions"),
        (demands, "peak"),
        (demands, "peak_is_reached"),
    ],
)
def test_conditions_that_the_prover_forgets_are_missed(monkeypatch, module, name):
    # Where all W are inside full backwards, nothing is asked of them that is not asked otherwise.
    family, kind = ("zb1p", "legal") if name == "weight_queue" else ("gpipe", "peak-activations" if "peak" in name else "idle")
    forgetful(monkeypatch, module, name)
    try:
        refused(f"{family}-{kind}", certified(family, kind))
    finally:
        collected.cache_clear()
        certified.cache_clear()


class Asked:
    """A book that only writes down what it is asked."""

    def __init__(self):
        self.names = set()

    def follows(self, given, row, name):
        self.never((*given, -row - 1), name)

    def never(self, given, name):
        self.names.add(name_of(in_order(given)))

    def one_of(self, given, options, name):
        self.names.add(name_of(in_order(given), options_in_order(options)))


def later(program, step):
    """One iteration less in a loop, and its body the other way round."""
    each = program.loops[step]
    trips = each.trips - 1 if isinstance(each.trips, Affine) else each.trips
    return replace(
        program, loops=(*program.loops[:step], replace(each, trips=trips, body=each.body[::-1]), *program.loops[step + 1 :])
    )


@pytest.mark.parametrize(
    ("program", "domain"),
    [
        *((theory.program, theory.settings[0].domain) for theory in THEORIES if theory.name != "dualpipev"),
        *((later(ONE_F_ONE_B, step), ()) for step in range(3)),
        *((later(ZB2P, step), (M >= 2 * P - 1, P >= 2)) for step in range(4)),
        *((later(DUALPIPE, step), ()) for step in (1, 5)),
    ],
)
def test_prover_and_checker_come_to_the_same_conditions(program, domain):
    @cache
    def occurs(conditions):
        return possible(conditions)

    analysis = Analysis(program, domain, occurs)
    reading = Reading(program, checking.rows(domain), lambda rows: not occurs(tuple(map(Condition, rows))))
    assert [(set(block.domain), block.number, block.takes) for block in reading.blocks] == [
        (set(checking.rows(block.domain)), block.microbatch, block.duration) for block in analysis.classes
    ]
    assert sorted((w.earlier, w.later, str(w.rank), name_of(in_order(w.given))) for w in waits(reading)) == sorted(
        (each.earlier, each.later, str(each.rank), name_of(in_order(checking.rows(each.given))))
        for each in conditions.relations(analysis)
    )
    most, counts = least(M, P - r), (M, P, r, M - P)
    found = Asked()
    complete(reading, found)
    weights(reading, found)
    peak(reading, most, found)
    busy(reading, (r - 1,), counts, found)
    known = [
        *structure.completeness(analysis),
        *structure.weight_queue(analysis),
        *structure.peak(analysis, most),
        *structure.peak_is_reached(analysis, most),
        *structure.busy(analysis, (r >= 1,), Formula(*counts), ""),
        *covered(analysis.assumptions, [regime.where for regime in analysis.regimes], ""),
    ]
    assert found.names == {name_of(*rows_of(statement)) for statement in known}


# ---------------------------------------- what conditions are about


def test_instances_find_what_is_not_as_claimed(evidence):
    theory = THEORY["1f1b"]
    parts = [Reading(theory.program, checking.rows(each.domain), lambda rows: False) for each in theory.settings]
    book = checking.Book(theory, evidence)

    def run(theory, about="idle", guesses=evidence["guesses"], parts=book.parts):
        return check_instances(theory, about, parts, guesses)

    assert run(theory) > 10
    wrong = [
        replace(theory, makespan=(Formula(M + P, M + P - 1, M + P - 1, affine(0)),)),
        replace(theory, said={**theory.said, "makespan": "(M+P-1)(F+B) + P"}),
        replace(theory, said={**theory.said, "idle": "(P-1)(F+I)"}),
        replace(theory, parts=(replace(theory.parts[0], busy=Formula(M, M, M + 1, affine(0))),)),
    ]
    for each in wrong:
        with pytest.raises(EvidenceError):
            run(each)
    with pytest.raises(EvidenceError, match="the peak"):
        run(replace(theory, peak=P - r), "peak-activations")
    earlier = copy.deepcopy(evidence["guesses"])
    starts = earlier["0"]["regions"]["all costs"]["timelines"][0]["starts"]
    starts[-1][""] = starts[-1].get("", 0) - 1
    with pytest.raises(EvidenceError, match="start times"):
        run(theory, guesses=earlier)
    # Blocks that the certificates do not exclude stand nowhere, so they may stay; blocks that are missing may not.
    assert run(theory, "peak-activations", parts=parts)
    parts[0].blocks.pop()
    with pytest.raises(EvidenceError, match="runs these blocks"):
        run(theory, "peak-activations", parts=parts)


def test_rays_generate_a_cone_or_not():
    names = tuple(map(str, COSTS))
    for region in (*THEORY["zb2p"].regions, *THEORY["dualpipe"].regions[::3], *THEORY["zbv"].regions):
        where = checking.rows(region.where)
        assert spans(region.rays, where, names)
        assert not spans(region.rays[1:], where, names)
        assert not spans(region.rays[:-1], where, names)
    assert not spans([(1, 0, 0, 0)], (COSTS[0],), names)
    assert not spans([(1, 0, 0, 0)], (COSTS[0] - 1,), names)


@pytest.mark.parametrize(
    ("formula", "value"), [("2M", 10), ("(M-1)(F+1)/2", 6), ("M-F-1", 2), ("max(M, 2F, 3)", 5), ("min(M, F)F", 4), ("0", 0)]
)
def test_formulas_are_read_as_people_read_them(formula, value):
    assert value_of(formula, {"M": 5, "F": 2}) == value


@pytest.mark.parametrize("formula", ["", "M+", "(M", "M)", "max M", "max(M", "X", "M % 2"])
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(EvidenceError):
        value_of(formula, {"M": Fraction(5)})


# ---------------------------------------- certificates


def test_whole_numbers_may_need_a_case_split():
    implication = Implication("parity", (2 * x >= 2 * y + 1, 2 * x <= 2 * y + 1), None)
    assert certificate(*rows_of(Implication("", (x >= 1,), x - 1))) == {"sum": [[0, 1], [1, 1]]}
    assert certificate(*rows_of(Implication("", (x >= 1,), x - 2))) is None
    found = certificate([2 * x - 1, 1 - 2 * x])
    excludes([2 * x - 1, 1 - 2 * x], [], found, "no half")
    with pytest.raises(EvidenceError):
        excludes([2 * x - 1, 2 - 2 * x], [], found, "but one")
    # Along a line of half numbers no split of one symbol ends.
    assert certificate(*rows_of(implication), depth=2) is None


def test_one_of_several_options_needs_a_case_for_each():
    sign = OneOf("sign", (x >= -5,), ((x >= 0, x <= 9), (x <= -1,), (x >= 10,)))
    rows, options = rows_of(sign)
    found = certificate(rows, options)
    excludes(rows, options, found, "sign")
    with pytest.raises(EvidenceError):
        excludes(rows, options[:2], found, "an option less")
    cut = copy.deepcopy(found)
    cut["fails"].pop()
    with pytest.raises(EvidenceError):
        excludes(rows, options, cut, "a case less")
    assert certificate(*rows_of(OneOf("gap", (), ((x >= 1,), (x <= -1,))))) is None
    assert options_in_order([[y, x], [x]]) == [[x], [x, y]]
    assert in_order([y, x, y]) == [x, y]


# ---------------------------------------- SMT-LIB 2 and the second opinion


def asked_of_z3(text):
    import z3

    context = z3.Context()
    return z3.Z3_eval_smtlib2_string(context.ref(), text).split()


def test_conditions_as_text_are_confirmed_by_z3_as_well():
    found = script_of(prove("1f1b-peak-activations"))
    assert asked_of_z3(found.text) == ["unsat"] * len(found.checks)
    assert len(found.checks) == len(collected("1f1b", "peak-activations").all)
    assert found.text.count("(check-sat)") == len(found.checks)


MIXED = [
    Implication("true", (x >= 1, y >= 2), x + y - 3),
    Implication("false", (x >= 1, y >= 2), x + y - 4),
    Implication("never", (x >= 1, x <= 0), None),
    Implication("sometimes", (x >= 1,), None),
    OneOf("covers", (x >= 1, y >= 2), ((x >= 2,), (x <= 1, y >= 2))),
    OneOf("gap", (), ((x >= 1,), (x <= -1,))),
    OneOf("nothing", (x >= 1,), ()),
    Implication("constant", (), affine(-1)),
    OneOf("empty", (), ((),)),
]
ANSWERS = {"true": "unsat", "never": "unsat", "covers": "unsat", "empty": "unsat"}


def test_text_says_what_conditions_say():
    found = script(["mixed"], MIXED)
    assert asked_of_z3(found.text) == [ANSWERS.get(name, "sat") for name in found.checks]
    assert sorted(found.checks) == sorted(each.name for each in MIXED)


def test_a_second_opinion_confirms_or_says_what_it_does_not():
    pytest.importorskip("cvc5")
    opinion = second_opinion(script([], MIXED))
    assert (opinion.conditions, opinion.confirmed, opinion.agrees) == (9, 4, False)
    assert set(opinion.disputed) == {each.name for each in MIXED} - ANSWERS.keys()
    assert opinion.objections()[-1] == "and 2 more"
    hard = Implication("hard", tuple(Condition(Affine(((f"x{k}", 3 + k % 5), ("x0", -k)), k)) for k in range(9)), None)
    assert second_opinion(script([], [hard])).as_json()["undecided"] == []
    assert second_opinion(script_of(prove("gpipe-idle"))).agrees


def test_what_a_solver_does_not_decide_is_not_confirmed(monkeypatch):
    pytest.importorskip("cvc5")
    monkeypatch.setattr("verifier.theorems.opinion.answers", lambda text: ["unsat", "unknown", "sat"])
    found = second_opinion(script([], MIXED[:3]))
    assert not found.agrees
    assert found.objections() == ("cvc5 refutes: never", "cvc5 gives up on: false")


# ---------------------------------------- folders


def test_a_folder_of_evidence_is_checked_without_a_solver(tmp_path):
    bubble = prove_bubble_constant(build_family("zbv", 2, 5))
    for proof in (bubble, prove("gpipe-peak-activations"), prove("published-1f1b-bubble")):
        write(proof, evidence_of(proof), str(tmp_path))
    code = """
import sys
from verifier.check.__main__ import main
print(main(sys.argv[1:]), {"z3", "cvc5", "ortools"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "0 set()"
    assert [line.split(":")[0] for line in lines[:-1]] == [
        "bubble-constant of zbv P=2 M=5 at F=1,I=1,W=1,B=2,FB=3",
        "gpipe-peak-activations",
        "published-1f1b-bubble",
    ]


@pytest.fixture
def folder(tmp_path):
    proof = prove("gpipe-legal")
    write(proof, evidence_of(proof), str(tmp_path))
    assert main([str(tmp_path)]) == 0
    return tmp_path


def change_entry(folder, **changes):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["gpipe-legal"] |= changes
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_the_manifest_says_what_is_where(folder):
    entry = json.loads((folder / "manifest.json").read_text())["gpipe-legal"]
    assert entry["statement"] == THEOREMS["gpipe-legal"].statement
    assert (entry["status"], entry["smt2"]["expected"], entry["not covered"]) == ("proved", "unsat", [])
    text = (folder / entry["smt2"]["file"]).read_bytes()
    assert entry["smt2"]["sha256"] == sha256(text).hexdigest()
    assert entry["smt2"]["checks"] == text.count(b"(check-sat)")
    assert entry["not checked"]["versions"].keys() >= {"verifier", "z3-solver"}


@pytest.mark.parametrize(
    "changes",
    [
        {"statement": "gpipe never idles"},
        {"domain": "all P and M >= 0"},
        {"status": "refuted"},
        {"certificates": {"file": "../gpipe-legal.json", "sha256": ""}},
        {"not covered": ["the case P = 1"]},
        {"conditions": 54},
        {"proved by": "everybody"},
    ],
)
def test_a_swapped_sentence_is_refused(folder, changes, capsys):
    change_entry(folder, **changes)
    assert main([str(folder)]) == 1
    assert "gpipe-legal: not covered" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gpipe-legal.smt2", "gpipe-legal.json"])
def test_another_file_is_refused(folder, name, capsys):
    (folder / name).write_text((folder / name).read_text() + " ")
    assert main([str(folder)]) == 1
    assert "is the file that was written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("smt2", {"checks": 47}),
        ("smt2", {"checks": True}),
        ("smt2", {"expected": "sat"}),
        ("certificates", {"certificates": 28}),
        ("certificates", {"solver": "none"}),
    ],
)
def test_a_wrong_count_is_refused(folder, key, changes, capsys):
    entry = json.loads((folder / "manifest.json").read_text())["gpipe-legal"]
    change_entry(folder, **{key: {**entry[key], **changes}})
    assert main([str(folder)]) == 1
    assert f"gpipe-legal: not covered: {key} of the manifest are as it says" in capsys.readouterr().out


def test_every_certificate_is_checked_and_counted():
    found = evidence_of(prove("1f1b-peak-activations"))
    evidence, questions = json.loads(json.dumps(found.checked)), asked(found.script.text)
    line = check_theorem("1f1b-peak-activations", evidence, questions)
    some = evidence["certificates"]
    assert int(line.split()[2]) <= len(some)
    for name in sorted(some)[::7]:
        fewer = {**evidence, "certificates": {each: some[each] for each in some if each != name}}
        wrong = {**evidence, "certificates": {**some, name: {"sum": []}}}
        none = {**evidence, "certificates": {**some, name: None}}
        left = [each for each in questions if each.name != name]
        for changed, asks in ((fewer, questions), (wrong, questions), (none, questions), (evidence, left)):
            with pytest.raises(EvidenceError):
                check_theorem("1f1b-peak-activations", changed, asks)


def test_a_peak_rests_on_a_timeline():
    evidence = json.loads(json.dumps(certified("1f1b", "peak-activations")))
    assert check_theorem("1f1b-peak-activations", evidence)
    change = copy.deepcopy(evidence)
    change["guesses"]["0"]["regions"]["all costs"]["timelines"].pop()
    refused("1f1b-peak-activations", change)


# ---------------------------------------- evidence about a schedule


@pytest.fixture(scope="module")
def schedules(tmp_path_factory):
    """A folder with evidence of every kind about schedules, and what is said of each."""
    target = tmp_path_factory.mktemp("schedules")
    own = replace(build_family("1f1b", 3, 6), name="gpipe P=3 M=6")
    box = Box.parse("F=1..2,I=1,W=1")
    proofs = [
        prove_bubble_constant(build_family("1f1b", 4, 8)),
        prove_bubble_constant(build_family("1f1b", 4, 8), CostModel.of(F=10, I=10, W=10, hop=1)),
        prove_bubble_constant(own),
        prove_at_most("makespan-at-most", Fraction(99), own, box),
        prove_at_most("makespan-at-most", Fraction(98), own, box),
        prove_at_most("makespan-at-most", Fraction(1), build_family("interleaved", 2, 4, rule="megatron"), box),
        prove_at_most("bubble-at-most", Fraction(1), build_family("dualpipe", 4, 8), box),
    ]
    for proof in proofs:
        write(proof, evidence_of(proof), str(target))
    return target


def test_evidence_about_another_schedule_has_a_place_of_its_own(schedules, capsys):
    manifest = json.loads((schedules / "manifest.json").read_text())
    assert len(manifest) == 7
    assert len(list(schedules.iterdir())) == 1 + 7 + 2
    assert main([str(schedules)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # The name of a family that a schedule is not is not repeated.
    assert not any("gpipe" in text for text in (*lines, json.dumps(manifest)))
    assert sum("the order P=3 M=6 with sha256 " in line for line in lines) == 3
    assert any(line.startswith("bubble-constant of 1f1b P=4 M=8 at F=10,") and ": growing: " in line for line in lines)
    assert any(line.startswith("makespan-at-most 1 of interleaved P=2 ") for line in lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1f1b P=4 M=8", "gpipe P=4 M=8"),
        ("1f1b P=4 M=8", "mine P=4 M=8"),
        ("1f1b P=4 M=8", "1f1b"),
        ("1f1b P=4", "1f1b P=5"),
        ("M=8", "M=108"),
        ("M=8", "M=999999999"),
        ("P=3", "P=4"),
        ("sha256 ", "sha256 0"),
        ("k >= 0", "k"),
        ("serves 1", "serves 2"),
        ("at most 99", "at most 98"),
        ("F=1..2", "F=1..3"),
        ("dualpipe", "dualpipev"),
    ],
)
def test_no_other_schedule_or_domain_may_be_named(schedules, tmp_path, old, new, capsys):
    manifest = json.loads((schedules / "manifest.json").read_text())
    changed = {
        name: {**entry, **{word: entry[word].replace(old, new) for word in ("statement", "domain")}}
        for name, entry in manifest.items()
    }
    assert changed != manifest
    shutil.copytree(schedules, tmp_path, dirs_exist_ok=True)
    (tmp_path / "manifest.json").write_text(json.dumps(changed))
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(manifest)
    bad = [name for name in manifest if changed[name] != manifest[name]]
    assert [line.split(":")[0] for line in lines if "not covered" in line] == bad


def test_an_entry_has_the_name_of_its_evidence(schedules, tmp_path, capsys):
    shutil.copytree(schedules, tmp_path, dirs_exist_ok=True)
    manifest = json.loads((schedules / "manifest.json").read_text())
    name = next(name for name in manifest if name.startswith("bubble-constant"))
    (tmp_path / "manifest.json").write_text(json.dumps({"bubble-constant": manifest[name]}))
    assert main([str(tmp_path)]) == 1
    assert "the name is of the kind and digest" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["[]", "{", "7"])
def test_a_manifest_of_something_else_is_not_written_over(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    proof = prove("gpipe-legal")
    with pytest.raises(ScheduleError, match="no manifest of evidence"):
        write(proof, evidence_of(proof), str(tmp_path))
    assert (tmp_path / "manifest.json").read_text() == text


def drop_a_check(text):
    return re.sub(r"(; phase 0: stage below depth\n.*\n)\(check-sat\)", r"\1", text)


def drop_a_sign(text):
    return text.replace("(- 1)", "1", 1)


def drop_a_hypothesis(text):
    return text.replace("(assert (>= r 0))\n", "")


def add_what_contradicts(text):
    return text.replace("(push 1)", "(assert false)\n(push 1)", 1)


def never_leave_a_level(text):
    return "".join(text.rsplit("(pop 1)\n", 1))


def leave_out_a_declaration(text):
    return text.replace("(declare-const P Int)\n", "")


def declare_a_symbol_twice(text):
    return text.replace("(declare-const P Int)\n", 2 * "(declare-const P Int)\n")


def leave_a_level_early(text):
    return text.replace("(push 1)", "(pop 1)", 1)


@pytest.mark.parametrize(
    "change",
    [
        drop_a_check,
        drop_a_sign,
        drop_a_hypothesis,
        add_what_contradicts,
        leave_a_level_early,
        never_leave_a_level,
        leave_out_a_declaration,
        declare_a_symbol_twice,
        lambda text: text.replace("P Int", "P Real"),
        lambda text: text.replace("QF_LIA", "QF_LRA"),
        lambda text: text.replace("(set-logic QF_LIA)\n", ""),
        lambda text: text.replace("(push 1)", "; c\r(assert (< 0 0))\n(push 1)", 1),
        lambda text: text.replace("(push 1)", "; c\u2028(assert (< 0 0))\n(push 1)", 1),
        lambda text: text.replace("(push 1)", "; c\x85(assert (< 0 0))\n(push 1)", 1),
        lambda text: text.replace("(push 1)", "(set-info :x |)(assert (< 0 0)) ;|)(push 1)", 1),
        lambda text: text.replace("(push 1)", "sat (push 1)", 1),
        lambda text: text.replace("(push 1)", "(push\N{NO-BREAK SPACE}1)", 1),
        str.upper,
        lambda text: text + ")",
    ],
)
def test_text_that_does_not_ask_about_everything_is_refused(folder, change, capsys):
    text = (folder / "gpipe-legal.smt2").read_text()
    changed = change(text)
    assert changed != text
    (folder / "gpipe-legal.smt2").write_text(changed)
    entry = json.loads((folder / "manifest.json").read_text())["gpipe-legal"]["smt2"]
    # Counted again, so that nothing but the text is wrong.
    checks = {**entry, "checks": changed.count("(check-sat)"), "sha256": sha256(changed.encode()).hexdigest()}
    change_entry(folder, smt2=checks)
    assert main([str(folder)]) == 1
    assert "gpipe-legal: not covered" in capsys.readouterr().out


@cache
def bound_evidence(costs="F=9..11,I=10..14,W=8..9,FB=24..28", bound=680):
    return evidence_of(prove_at_most("makespan-at-most", Fraction(bound), build_family("dualpipe", 4, 8), Box.parse(costs)))


@pytest.mark.parametrize("costs", ["F=9..11,I=10..14,W=8..9,FB=24..28", "F=[1..2,1,1,1/3],I=1..3/2,W=1,hop=1/4..1", "F=1,B=2"])
def test_the_question_of_a_bound_is_the_one_that_the_checker_asks(costs):
    found = bound_evidence(costs)
    assert "proved" in check_bound(found.checked, found.script.text)


def test_the_name_of_a_schedule_is_no_command_to_a_solver():
    schedule = replace(build_family("1f1b", 2, 2), name="x\n(assert false) ;\r(assert false)")
    found = evidence_of(prove_at_most("makespan-at-most", Fraction(99), schedule, Box.parse("F=1..2")))
    assert "\n(assert false)" not in found.script.text
    assert "proved" in check_bound(found.checked, found.script.text)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "(check-sat)",
        lambda text: "(assert false)(check-sat)",
        lambda text: text.replace("680", "999"),
        lambda text: text.replace("680.0", "(/ 680.0 0.0)"),
        lambda text: text.replace("(check-sat)", "(assert false)(check-sat)"),
        lambda text: text.replace("(check-sat)", "(check-sat)(check-sat)"),
        lambda text: text.replace("(assert (or", "(assert (and"),
        lambda text: text.replace("QF_LRA", "QF_LIA"),
        lambda text: text.replace("Real", "Int", 1),
        lambda text: text.replace(" 11.0)", " 10.0)", 1),
        lambda text: re.sub(r"\(assert \(<= .*\n", "", text, count=1),
        lambda text: re.sub(r"\(declare-const .*\n", "", text, count=1),
        lambda text: re.sub(r" +\(< .*\n", "", text, count=40),
        lambda text: re.sub(r" +\(> .*\n", "", text, count=1),
        lambda text: text.replace("(assert (or", "(exit)(assert (or"),
        lambda text: text.replace("        false))", "        true))"),
        lambda text: text.replace("(assert (or", ";\r(assert false)\n(assert (or"),
    ],
)
def test_another_question_about_a_bound_is_refused(change):
    found = bound_evidence()
    changed = change(found.script.text)
    assert changed != found.script.text
    with pytest.raises(EvidenceError):
        check_bound(found.checked, changed)
    with pytest.raises(EvidenceError, match="solvers are asked"):
        check_bound({**found.checked, "bound": 1, "status": "refuted"}, found.script.text)


def test_text_is_read_as_it_was_meant():
    found = script(["mixed"], MIXED)
    assert {each.name for each in asked(found.text)} == {name_of(*rows_of(statement)) for statement in MIXED}
    assert len(asked(found.text)) == len(MIXED)


def test_bad_folders_have_exit_codes(tmp_path, capsys):
    assert main([]) == 2
    assert main([str(tmp_path)]) == 2
    (tmp_path / "manifest.json").write_text("[]")
    assert main([str(tmp_path)]) == 1
    (tmp_path / "manifest.json").write_text('{"gpipe-makespan": {}}')
    assert main([str(tmp_path)]) == 1
    assert "gpipe-makespan: not readable" in capsys.readouterr().out


def test_published_formulas_are_checked_where_they_are_wrong(capsys, tmp_path):
    found = {"kind": "published", "family": "1f1b", "corrected": certified("1f1b", "idle")}
    assert "proved; 1f1b-idle" in check_published("published-1f1b-bubble", {**found, "counterexample": None})
    right = {"P": 2, "M": 4, "rank": 0, "costs": {"F": 1, "I": 1, "W": 2}}
    with pytest.raises(EvidenceError, match="is wrong at"):
        check_published("published-1f1b-bubble", {**found, "counterexample": right})
    with pytest.raises(EvidenceError, match="is none of"):
        check_published("published-zb1p-bubble", {**found, "counterexample": None})


def test_what_was_not_decided_has_no_evidence():
    assert evidence_of(Proof("gpipe-legal", "", "", UNKNOWN, 1, 0, 0.0)) is None
    assert Evidence({}).script is None
    assert evidence_of(Proof("gpipe-legal", "", "", PROVED, 1, 1, 0.0)).not_covered == ()


# ---------------------------------------- numbers that would make work without end

HUGE = 10**30


def numbers_in(written, path=()):
    """Where whole numbers stand in JSON values."""
    items = written.items() if isinstance(written, dict) else enumerate(written) if isinstance(written, list) else ()
    for key, value in items:
        if type(value) is int:
            yield (*path, key)
        yield from numbers_in(value, (*path, key))


def with_value(evidence, path, value):
    changed = copy.deepcopy(evidence)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def bubble_evidence(name, costs, *sizes):
    return json.loads(json.dumps(prove_bubble_constant(build_family(name, *sizes), CostModel.of(**costs)).evidence))


@pytest.mark.parametrize("costs", [{}, {"F": 10, "I": 10, "W": 10, "hop": 1}])
def test_no_number_of_the_evidence_about_a_schedule_makes_work_without_end(costs):
    evidence = bubble_evidence("1f1b", costs, 3, 6)
    assert check_bubble(evidence)
    began = time.monotonic()
    for path in numbers_in(evidence):
        for value in (HUGE, -HUGE, "1e999999999", 10**9):
            try:
                check_bubble(with_value(evidence, path, value))
            except (EvidenceError, ValueError, TypeError):
                continue
            # What runs late in a timeline, or is priced and not run, may be as late and dear as it likes.
            assert path[0] in ("free", "timed", "costs")
    assert time.monotonic() - began < 60


def test_no_number_of_the_evidence_of_a_bound_makes_work_without_end():
    written = {"placement": [[0, 1]], "microbatches": [1], "order": [["0F0", "0B0"], ["1F0", "1B0"]]}
    evidence = {"kind": "bubble-at-most", "schedule": written, "costs": "F=1..2", "bound": "1/2", "status": "proved"}
    assert check_bound(evidence)
    for path in [("bound",), *numbers_in(evidence)]:
        for value in (HUGE, "1e999999999"):
            with pytest.raises((EvidenceError, ValueError, TypeError)):
                check_bound(with_value(evidence, path, value) | ({"status": "refuted"} if value == HUGE else {}))
    for costs in ("F=[" + ",".join(["1..2"] * 40) + "]", "F=1e99999999"):
        with pytest.raises((EvidenceError, ValueError)):
            check_bound({**evidence, "costs": costs})


def test_no_number_of_other_evidence_makes_work_without_end(evidence):
    some = dict(sorted(evidence["certificates"].items())[::17])
    for path in list(numbers_in({**evidence, "certificates": some}))[::11]:
        changed = with_value(evidence, path, HUGE)
        try:
            assert "all " in check_theorem("1f1b-idle", changed)
        except (EvidenceError, ValueError, IndexError):
            continue
        # A certificate that nobody asks for is not looked at.
        assert path[0] == "certificates"
    proof = prove("published-zb1p-bubble")
    found = json.loads(json.dumps(evidence_of(proof).checked))
    for path in numbers_in(found["counterexample"]):
        with pytest.raises((EvidenceError, ValueError)):
            check_published("published-zb1p-bubble", with_value(found, ("counterexample", *path), HUGE))


def test_start_times_over_no_denominator_show_nothing():
    evidence = bubble_evidence("1f1b", {}, 3, 6)
    # All inequalities hold between zeros.
    blocks = len(evidence["free"]["start"])
    for denominator in (0, -1):
        free = {"per_copy": 0, "denominator": denominator, "start": [0] * blocks}
        with pytest.raises(EvidenceError, match="denominator"):
            check_bubble({**evidence, "free": free})


def test_a_base_beyond_all_sizes_is_one_line(tmp_path, capsys):
    proof = prove_bubble_constant(build_family("1f1b", 4, 16))
    entry = write(proof, evidence_of(proof), str(tmp_path))
    file = tmp_path / entry["certificates"]["file"]
    evidence = json.loads(file.read_text())
    evidence["paths"][0]["base"] = HUGE
    file.write_text(json.dumps(evidence))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (name,) = manifest
    manifest[name]["certificates"]["sha256"] = sha256(file.read_bytes()).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert main([str(tmp_path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "a path's base is a whole number from 0 to" in line


def test_what_evidence_says_makes_no_lines_of_its_own(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text(json.dumps({"gpipe-legal\nall: proved": {"certificates": {"file": "x" * 5000}}}))
    assert main([str(tmp_path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert len(line) < 1000


@pytest.mark.deep
def test_the_evidence_of_dualpipe_is_accepted():
    evidence = json.loads(json.dumps(certified("dualpipe", "idle")))
    assert "agree" in check_theorem("dualpipe-idle", evidence)
    book = checking.Book(THEORY["dualpipe"], evidence)
    for demand in checking.DEMANDS["idle"]:
        demand(book)
    for name in sorted(evidence["certificates"].keys() - book.table.left_over)[::400]:
        changed = copy.deepcopy(evidence)
        changed["certificates"][name] = {"sum": []}
        refused("dualpipe-idle", changed)


def test_families_that_are_unfolded_here_are_those_of_the_product():
    theory = THEORY["dualpipe"]
    assert theory.name in FAMILIES
    reading = Reading(theory.program, (), lambda rows: False)
    assert check_instances(theory, "peak-activations", [reading], {}) > 5
