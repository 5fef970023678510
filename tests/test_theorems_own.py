"""Theorems about loops that nobody has a theory of."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from verifier.affine import Condition, affine, greatest, least, symbols
from verifier.commands.proving import prove
from verifier.costs import CostModel
from verifier.families import DUALPIPE, GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV, build_program, program_on
from verifier.formats.loop_text import OwnLoops
from verifier.loops import loop, unroll
from verifier.model import ScheduleError
from verifier.simulate import simulate
from verifier.specs import read_spec
from verifier.theorems import demands
from verifier.theorems.claiming import grouped, settings_of, theory_of
from verifier.theorems.conditions import Formula
from verifier.theorems.cones import COSTS, rays_of
from verifier.theorems.finding import NotFoundError
from verifier.theorems.ledger import Ledger
from verifier.theorems.own import KINDS, prove_own
from verifier.theorems.statements import prove_theory
from verifier.theorems.theories import ANY_COSTS, THEORIES

P, M, q, m, r, h = symbols("P M q m r h")
F, I, W, FB = COSTS  # noqa: E741
EVEN = (F >= I, I >= F, I >= W, W >= I)
THEORY = {theory.name: theory for theory in THEORIES}
EARLY = read_spec("specs/loops-early-1f1b.toml").loops


@pytest.mark.parametrize("kind", ["legal", "peak-activations", "idle"])
def test_all_is_proved_from_the_loops_alone(kind):
    proof = prove_own(EARLY, kind)
    assert (proof.status, proof.witness, proof.theorem) == ("proved", (), kind)
    assert proof.conditions == proof.discharged > 0


@pytest.mark.parametrize(
    ("name", "program", "costs"),
    [
        ("gpipe", GPIPE, ()),
        ("1f1b", ONE_F_ONE_B, ()),
        ("zb1p", replace(ZB1P, domain=(P >= 1, M >= P)), ()),
        ("zb2p", replace(ZB2P, domain=(P >= 1, M >= 2 * P - 1)), ()),
        ("zbv", ZBV, EVEN),
        ("dualpipe", DUALPIPE, EVEN),
        ("dualpipe", DUALPIPE, (F >= I, I >= W)),
    ],
)
def test_what_is_seen_is_what_is_known_of_the_family(name, program, costs):
    # The theory of the family was written by hand.
    seen, known = theory_of(program, costs=costs), THEORY[name]
    sizes = [each for setting in known.settings for each in setting.small]
    for region in seen.regions:
        for ray in region.rays:
            for size in sizes:
                lengths = [max(f.along(ray).value(size) for f in theory.makespan) for theory in (seen, known)]
                assert lengths[0] == lengths[1]
    for size in sizes:
        for rank in range(program.ranks.value(size)):
            values = {**size, program.rank: rank}
            assert seen.peak.value(values) == known.peak.value(values)
            busy = [next(p.busy for p in t.parts if all(c.holds(values) for c in p.where)) for t in (seen, known)]
            assert [part.value(values) for part in busy[0].parts] == [part.value(values) for part in busy[1].parts]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "where", "costs"),
    [
        (GPIPE, "sequential", ()),
        (ONE_F_ONE_B, "sequential", ()),
        (replace(ZB1P, domain=(P >= 1, M >= P)), "sequential", ()),
        (replace(ZB2P, domain=(P >= 1, M >= 2 * P - 1)), "sequential", ()),
        (ZBV, "v", EVEN),
        (DUALPIPE, "bidirectional", EVEN),
    ],
)
def test_families_are_proved_from_their_loops_alone(program, where, costs):
    for kind in KINDS:
        assert prove_own(OwnLoops(program, where, costs), kind).status == "proved", kind


# ---------------------------------------- what is false is not proved


def claiming(**claims):
    return replace(EARLY, **claims)


def test_a_wrong_claim_is_refuted_and_a_right_one_proved():
    right = (M + P - 1, M + P - 1, M + P - 1, affine(0))
    less = (M + P - 2, *right[1:])
    assert prove_own(claiming(makespan=(right,)), "makespan").status == "proved"
    proof = prove_own(claiming(makespan=(less,)), "makespan")
    assert proof.status == "refuted"
    assert "the makespan is" in proof.witness[0]
    assert prove_own(claiming(peak=2 * (P - r)), "peak-activations").status == "refuted"
    assert prove_own(claiming(peak=2 * (P - r) - 2), "peak-activations").status == "refuted"


def test_legality_does_not_depend_on_what_is_claimed_besides():
    less = claiming(makespan=((M + P - 2, M + P - 1, M + P - 1, affine(0)),))
    assert prove_own(less, "legal").status == "proved"


def own(*loops, where="sequential", domain=()):
    return OwnLoops(program_on(where, "own", loops, domain), where)


@pytest.mark.parametrize(
    "loops",
    [
        own(loop(M, "F0"), loop(M, "I0")),
        own(loop(M, "F0"), loop(M - 1, "B0")),
        own(loop(M, "W"), loop(M, "F0"), loop(M, "I0")),
        own(loop(M - 3, "F0"), loop(M, "B0")),
        own(loop(M, "B0"), loop(M, "F0")),
        own(loop(M, "F0", "B0"), domain=(M >= 2,), where="v"),
        own(loop(M, "F0", "F1"), loop(M, "B0", "B1"), domain=(M >= 2 * P,), where="v"),
    ],
    ids=["no W", "a B too few", "W first", "negative", "B first", "no second stage", "backwards from the front"],
)
def test_loops_that_are_not_legal_are_refuted(loops):
    for kind in ("legal", "makespan"):
        proof = prove_own(loops, kind)
        assert proof.status == "refuted"
        assert proof.witness


def test_what_has_no_formula_is_unknown():
    # Every micro-batch waits for the one before: (M P)(F+B) is not affine.
    serial = own(loop(M, "F0", "B0"))
    proof = prove_own(serial, "makespan")
    assert (proof.status, proof.discharged) == ("unknown", proof.conditions)
    with pytest.raises(NotFoundError):
        theory_of(replace(ZB2P, domain=(P >= 1, M >= 1)))


def test_too_many_cases_are_refused():
    with pytest.raises(ScheduleError, match=r"13 cases of min and max .* where P >= M\+1.*expected fewer sizes"):
        prove_own(OwnLoops(ZB1P, "sequential"), "legal")


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("F=1,hop=1", "costs.hop"),
        ("F=[1,2]", "take all stages alike"),
        ("F=1,I=1,W=1,B=1", "B = I"),
        ("F=0,I=0,W=0", "all are 0"),
    ],
)
def test_costs_that_theorems_do_not_know_are_refused(costs, message):
    with pytest.raises(ScheduleError, match=message):
        prove_own(EARLY, "makespan", CostModel.parse(costs))


def test_costs_outside_of_the_cone_are_refused():
    with pytest.raises(ScheduleError, match="no costs fulfil"):
        prove_own(OwnLoops(DUALPIPE, "bidirectional"), "makespan", CostModel.of(FB=1))


def test_costs_are_one_ratio():
    proof = prove_own(replace(EARLY, costs=(F >= I,)), "makespan", CostModel.of(F=3, I=2, W=1))
    assert (proof.status, "3I = 2F, 3W = F" in proof.domain) == ("proved", True)


@pytest.mark.parametrize(
    "where",
    [(P <= 3,), (M >= 4,), (P >= 4, P <= 4), (M >= 2 * P, M <= 2 * P), (M <= P,), (M <= 6,), (P >= 4, P <= 4, M >= 8, M <= 8)],
    ids=["P <= 3", "M >= 4", "P = 4", "M = 2P", "M <= P", "M <= 6", "one size"],
)
def test_sizes_are_looked_for_inside_the_domain(where):
    program = replace(GPIPE, domain=(P >= 1, M >= 1, *where))
    for setting in settings_of(program):
        assert setting.small
        assert setting.spread
        for sizes in (*setting.small, *setting.spread):
            assert all(condition.holds(sizes) for condition in (*program.domain, *setting.domain))
    kind = "peak-activations" if where in ((P <= 3,), (M <= 6,)) else "makespan"
    assert prove_own(OwnLoops(program, "sequential"), kind).status == "proved"


def test_a_domain_without_sizes_is_refused():
    with pytest.raises(ScheduleError, match="no sizes to look at"):
        settings_of(replace(GPIPE, domain=(P >= 1, M >= 1, M >= 2 * P, M <= P)))


# ---------------------------------------- whether ranks ever hang


LATE = [
    loop(least(r, greatest(0, M - 40)), "F0"),
    loop(greatest(0, M - 40 - r), "F0", "B0"),
    loop(least(r, greatest(0, M - 40)), "B0"),
    loop(least(M, 40), "F0"),
    loop(least(M, 40), "B0"),
]
"""They hang where there are at least two ranks and 42 micro-batches."""


@pytest.mark.parametrize("kind", KINDS)
def test_loops_that_hang_only_at_large_sizes_are_not_proved(kind):
    loops = OwnLoops(program_on("sequential", "late", LATE, (P <= 20,)), "sequential", peak=least(M, 40))
    proof = prove_own(loops, kind)
    assert (proof.status, proof.witness[0].split(":")[0]) == ("refuted", "P=2, M=42")


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_proof_that_no_rank_hangs_nothing_is_proved(kind, monkeypatch):
    def nothing(*_):
        raise NotFoundError("none")

    monkeypatch.setattr("verifier.theorems.own.without_deadlock", nothing)
    proof = prove_own(OwnLoops(GPIPE, "sequential", peak=M), kind)
    assert (proof.status, "not shown that ranks never hang" in proof.witness[0]) == ("unknown", True)


def test_listed_peaks_rest_on_a_proof_that_no_rank_hangs(monkeypatch):
    def nothing(*_):
        raise NotFoundError("no timeline")

    monkeypatch.setattr("verifier.theorems.statements.without_deadlock", nothing)
    for theory in THEORIES:
        assert demands.every_block_takes_time(theory)
        assert prove_theory(theory, "peak-activations").status == "unknown"


def test_costs_of_zero_hide_no_circle():
    # At costs at which only W takes time, blocks that wait in a circle take none.
    theory = theory_of(GPIPE, costs=(F <= 0, I <= 0))
    assert not demands.every_block_takes_time(theory)
    proof = prove_theory(theory, "makespan", fresh=True)
    more = prove_theory(theory_of(GPIPE), "makespan", fresh=True)
    assert (proof.status, more.status) == ("proved", "proved")


def test_a_guess_is_never_refuted(monkeypatch):
    monkeypatch.setattr("verifier.theorems.own._never_hangs", lambda *_: Ledger())  # That takes long to give up.
    steps = [loop(n, kind) for n in (least(M, 40), greatest(0, M - 40)) for kind in ("F0", "B0")]
    twice = own(*steps, domain=(P <= 1,))
    proof = prove_own(twice, "peak-activations")
    assert (proof.status, "it looked like M, but P=1, M=" in proof.witness[0]) == ("unknown", True)
    proof = prove_own(replace(twice, peak=M), "peak-activations")
    assert (proof.status, proof.witness[0].endswith("rank 0 holds 40 activations at most, not 41")) == ("refuted", True)


def test_a_wrong_claim_is_refuted_with_the_least_size():
    assert prove_own(claiming(peak=2 * (P - r)), "peak-activations").witness == (
        "P=1, M=2: rank 0 holds 1 activations at most, not 2",
    )
    assert prove_own(own(loop(M, "F0"), loop(M, "I0"), loop(M - 1, "W")), "legal").witness == (
        "P=1, M=1: 0W0 is missing; expected once, on rank 0",
    )


def test_a_peak_needs_no_critical_path():
    serial = own(loop(M, "F0", "B0"), domain=(P <= 1,))
    assert prove_own(serial, "peak-activations").status == "proved"
    with pytest.raises(NotFoundError, match="fewer sizes may help"):
        theory_of(own(loop(M, "F0", "B0")).program)


# ---------------------------------------- the parts


def test_a_formula_reads_well():
    zero, one = affine(0), affine(1)
    assert grouped(Formula(zero, zero, zero, zero)) == "0"
    assert grouped(Formula(one, one, -1 * one, zero)) == "F+I-W"
    assert grouped(Formula(1 - P, 1 - P, zero, 2 * P)) == "- (P-1)(F+I) + 2PFB"
    assert grouped(Formula(P - 1, zero, -2 * P + 2, zero)) == "(P-1)F - 2(P-1)W"


def test_rays_generate_cones():
    assert set(rays_of(ANY_COSTS)) == {(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)}
    for theory in THEORIES:
        for region in theory.regions:
            assert set(rays_of((*region.where, *theory.costs))) <= set(region.rays)
    assert rays_of((F >= 0, F <= 0, I >= 0, I <= 0, W >= 0, W <= 0, FB >= 0, FB <= 0)) == ()


def test_what_is_proved_is_what_is_generated():
    for ranks, microbatches in ((2, 5), (3, 6), (4, 11)):
        schedule = build_program(EARLY.program, EARLY.placement, ranks, microbatches)
        found = simulate(schedule, CostModel.of(F=3, I=5, W=2))
        assert found.timeline.makespan == 10 * (microbatches + ranks - 1)
        assert list(found.peak_activations) == [2 * (ranks - rank) - 1 for rank in range(ranks)]
    assert isinstance(EARLY.program.domain[0], Condition)


# ---------------------------------------- on the command line


def run(*arguments):
    found = CliRunner().invoke(prove, list(arguments), standalone_mode=False)
    if found.exception:
        raise found.exception
    return found.return_value, found.output


def test_loops_of_a_spec_are_proved():
    code, output = run("peak-activations", "specs/loops-early-1f1b.toml")
    assert (code, output.splitlines()[1]) == (0, "the most activations that a rank holds are exactly 2P-2r-1 on rank r")
    code, output = run("makespan", "specs/loops-early-1f1b.toml", "--costs", "F=1,I=1,W=1", "--json")
    assert (code, json.loads(output)["status"]) == (0, "proved")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("legal", "gpipe"), "of a family it is gpipe-legal"),
        (("legal",), "expected a spec with"),
        (("legal", "specs/loops-early-1f1b.toml", "-P", "4"), "no sizes"),
        (("legal", "specs/1f1b-p4-m8.toml"), r"no table \[loops\]"),
        (("makespan", "specs/loops-early-1f1b.toml", "--costs", "hop=1"), r"1f1b\.toml: costs\.hop"),
        (("makespan", "specs/loops-early-1f1b.toml", "--evidence", "x"), "leave no evidence"),
        (("makespn", "specs/loops-early-1f1b.toml"), "did you mean makespan"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments, message):
    with pytest.raises(ScheduleError, match=message):
        run(*arguments)


@pytest.mark.parametrize("name", ["dualpipe-paired", "zbv-mirrored"])
def test_the_orders_of_theorems_that_are_no_families_are_shipped_as_loops(name):
    program, listed = read_spec(f"specs/loops-{name}.toml").loops.program, THEORY[name].program
    for ranks, microbatches in ((1, 2), (2, 5), (3, 9)):
        for rank in range(ranks):
            rows = [
                unroll(each, {str(each.ranks): ranks, str(each.microbatches): microbatches}, rank) for each in (program, listed)
            ]
            assert [str(row) for row in rows[0]] == [str(row) for row in rows[1]]
