from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.affine import affine, symbols
from verifier.costs import CostModel
from verifier.families import DUALPIPE, FAMILIES, GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV, build_family, build_program
from verifier.loops import Item, Program, loop
from verifier.simulate import simulate
from verifier.theorems import demands, finding
from verifier.theorems.classes import Analysis
from verifier.theorems.conditions import AffineTimeline, Formula, Implication, obligations
from verifier.theorems.cones import COSTS, covered, spanned
from verifier.theorems.discovery import Instance
from verifier.theorems.guesses import Guesses, load
from verifier.theorems.ledger import Ledger
from verifier.theorems.pathfinding import AffineFit, find_path
from verifier.theorems.paths import length, path_conditions
from verifier.theorems.solving import counterexample, possible
from verifier.theorems.statements import THEOREMS, prove, prove_theory
from verifier.theorems.theories import THEORIES, total_of

THEORY = {theory.name: theory for theory in THEORIES}
P, M, q, m, r, h, i = symbols("P M q m r h i")


def analysis(name, setting=0):
    theory = THEORY[name]
    return finding.analysis_of(theory.program, theory.settings[setting].domain)


# ---------------------------------------- the theorems


SMALL = [
    name
    for name in THEOREMS
    if not name.startswith("dualpipe") and name.endswith(("-legal", "-peak-activations", "-idle", "-ratio"))
]


@pytest.mark.parametrize("name", SMALL)
def test_the_small_theorems_are_proved(name):
    proof = prove(name)
    assert proof.status == "proved", proof.witness
    assert proof.conditions == proof.discharged > proof.numbers["met"] > 0


@pytest.mark.parametrize("name", ["dualpipe-idle", "dualpipev-legal", "dualpipev-peak-activations", "dualpipe-paired-idle"])
def test_dualpipe_is_proved_for_all_sizes_and_costs(name):
    proof = prove(name)
    assert (proof.status, proof.witness) == ("proved", ())


def test_dualpipe_has_nineteen_classes():
    assert len(analysis("dualpipe").classes) == 19


def test_what_was_found_before_can_be_found_anew():
    ledger = Ledger(fresh=True)
    demands.makespan(THEORY["gpipe"], ledger)
    assert not ledger.failures


@pytest.mark.deep
@pytest.mark.parametrize("name", ["1f1b", "zb1p", "zb2p", "zbv", "dualpipe", "dualpipe-paired"])
def test_all_that_was_found_before_can_be_found_anew(name):
    ledger = Ledger(fresh=True)
    demands.makespan(THEORY[name], ledger)
    assert not ledger.failures


def test_a_ray_of_dualpipe_can_be_found_anew():
    theory = THEORY["dualpipe"]
    region = replace(theory.regions[1], rays=((1, 1, 1, 2),))
    limit, kink, (timeline,) = finding._timelines(analysis("dualpipe"), theory.settings[0], theory, region)
    assert kink is None
    assert limit == theory.makespan[0]
    assert all(counterexample(each.implication) is None for each in obligations(analysis("dualpipe"), timeline, limit))


# ---------------------------------------- instances, by another way: simulation


MIRRORED = ("dualpipe", "dualpipe-paired", "zbv-mirrored")
"""Theories of a folded program that stands for two ranks each."""


def sizes_of(theory, ranks, microbatches):
    half = 2 if theory.name in MIRRORED else 1
    names = map(str, (theory.program.ranks, theory.program.microbatches))
    return dict(zip(names, (ranks // half, microbatches // half), strict=True))


def schedule_of(theory, ranks, microbatches):
    if theory.name in FAMILIES:
        return build_family(theory.name, ranks, microbatches)
    return build_program(theory.program, "bidirectional", ranks, microbatches)


@st.composite
def instances(draw):
    name = draw(st.sampled_from(sorted(THEORY)))
    ranks = draw(st.integers(1, 5))
    more = draw(st.integers(0, 5))
    least = {"gpipe": 1, "1f1b": 1, "zb1p": ranks, "zbv": 2 * ranks - 1, "zb2p": 2 * ranks - 1}.get(name, 2 * ranks)
    least = 2 * ranks - 1 if name == "zbv-mirrored" else least
    double = 2 if name in MIRRORED else 1
    # A cost inside a region: a sum of its rays.
    region = draw(st.sampled_from(THEORY[name].regions))
    weights = draw(st.lists(st.integers(0, 7), min_size=len(region.rays), max_size=len(region.rays)))
    costs = tuple(sum(w * ray[k] for w, ray in zip(weights, region.rays, strict=True)) for k in range(4))
    return name, double * ranks, double * (least + more), costs if any(costs[:3]) else total_of(region.rays)


@given(instances())
def test_instances_agree_with_simulation(drawn):
    agree(drawn)


@pytest.mark.deep
@settings(max_examples=1000)
@given(instances())
def test_a_thousand_instances_agree_with_simulation(drawn):
    agree(drawn)


def agree(drawn):
    name, ranks, microbatches, costs = drawn
    theory = THEORY[name]
    f, i, w, pair = costs
    schedule = schedule_of(theory, ranks, microbatches)
    found = simulate(schedule, CostModel.of(F=f, I=i, W=w, **({"FB": pair} if name.startswith("dualpipe") else {})))
    sizes = sizes_of(theory, ranks, microbatches)
    assert found.timeline.makespan == max(formula.along(costs).value(sizes) for formula in theory.makespan)
    for rank, idle in enumerate(found.timeline.idle):
        values = {**sizes, theory.program.rank: min(rank, ranks - 1 - rank) if name in MIRRORED else rank}
        (part,) = [part for part in theory.parts if all(condition.holds(values) for condition in part.where)]
        formulas = demands.idle_formulas(theory)[part.name]
        assert idle == max(formula.along(costs).value(values) for formula in formulas)
        assert found.peak_activations[rank] == theory.peak.value(values)


@given(st.sampled_from([GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV, DUALPIPE]), st.integers(1, 4), st.integers(0, 4))
def test_classes_say_what_unrolling_does(program, ranks, more):
    from verifier.loops import unroll

    sizes = {"q": ranks, "m": 2 * ranks + more} if program is DUALPIPE else {"P": ranks, "M": 2 * ranks + more}
    whole = finding.analysis_of(program, (M >= 2 * P - 1,) if program is not DUALPIPE else ())
    instance = Instance(whole, sizes)
    for rank, row in enumerate(instance.order):
        jobs = unroll(program, sizes, rank)
        assert len(row) == len(jobs)
        for node, block in zip(row, jobs, strict=True):
            found = {job: e.value(instance.values(node)) for job, e in whole.classes[node[0]].microbatch.items()}
            expected = {("I" if j.kind == "B" else j.kind, j.phase): j.microbatch for j in block if j.kind != "W"}
            assert found == expected


# ---------------------------------------- controls: what is false is not proved


def test_one_less_is_refuted():
    theory = THEORY["dualpipe"]
    less = tuple(replace(formula, FB=formula.FB - 1) for formula in theory.makespan)
    proof = prove_theory(replace(theory, makespan=less), "makespan")
    assert proof.status == "refuted"
    assert "the makespan is" in proof.witness[0]


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", THEORY)
def test_one_less_and_one_more_are_refuted_for_every_family(name, change):
    theory = THEORY[name]
    changed = [replace(formula, F=formula.F + change) for formula in theory.makespan]
    for kind in ("makespan", "idle"):
        proof = prove_theory(replace(theory, makespan=tuple(changed)), kind)
        assert (proof.status, "the makespan is" in proof.witness[0]) == ("refuted", True)
    for bound in (theory.program.ranks - theory.program.ranks, theory.program.microbatches + theory.program.depth):
        assert prove_theory(replace(theory, peak=bound), "peak-activations").status == "refuted"


@pytest.mark.parametrize("name", ["1f1b", "dualpipe-paired"])
def test_legality_is_proved_whatever_is_claimed_of_the_makespan(name):
    theory = THEORY[name]
    less = tuple(replace(formula, F=formula.F - 1) for formula in theory.makespan)
    proof = prove_theory(replace(theory, makespan=less), "legal")
    assert (proof.status, proof.witness) == ("proved", ())


def test_the_conditions_alone_notice_one_less():
    # Also without a look at instances: no timeline ends earlier.
    theory = THEORY["1f1b"]
    short = replace(theory, makespan=(replace(theory.makespan[0], W=M + P - 2),))
    ledger = Ledger()
    demands.makespan(short, ledger)
    assert any("as claimed" in failure.name for failure in ledger.failures)
    with pytest.raises(finding.NotFoundError):
        demands.makespan(short, Ledger(fresh=True))


def test_a_peak_of_p_is_refuted_for_dualpipe():
    for bound in (2 * q, 2 * q + 2):
        proof = prove_theory(replace(THEORY["dualpipe"], peak=bound), "peak-activations")
        assert proof.status == "refuted"


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", "q", "m"]), st.sampled_from([-1, 1]))
def test_a_changed_coefficient_is_refuted(which, cost, symbol, change):
    theory = THEORY["dualpipe"]
    name = ("F", "I", "W", "FB")[cost]
    extra = symbols(symbol)[0] * change if symbol else affine(change)
    formula = theory.makespan[which]
    formulas = list(theory.makespan)
    formulas[which] = replace(formula, **{name: getattr(formula, name) + extra})
    path = load(DUALPIPE.name, 0).paths[which]
    conditions = path_conditions(analysis("dualpipe"), path, formulas[which], {})
    assert any(counterexample(each) for each in conditions if each.name.startswith(f"path: {name} "))


def mutated(program, step, *items, trips=None):
    """The program with another body or another count in one loop."""
    old = program.loops[step]
    new = loop(old.trips if trips is None else trips, *(items or old.body))
    return replace(program, loops=(*program.loops[:step], new, *program.loops[step + 1 :]))


MUTANTS = {
    "a longer warm-up": mutated(DUALPIPE, 0, trips=2 * (q - h)),
    "a shorter step 4": mutated(DUALPIPE, 3, trips=m - 2 * q + h),
    "a missing W": mutated(DUALPIPE, 7, trips=h),
    "a W too early": mutated(DUALPIPE, 2, "W", "I1", "F1"),
    "no W in step 3": mutated(DUALPIPE, 2, "I1", "F1"),
    "another switch in step 6": mutated(
        DUALPIPE,
        5,
        Item.parse("B1", i <= h),
        Item.parse("I1", i > h),
        Item.parse("B0", 2 * i + 1 <= h),
        Item.parse("I0", 2 * i + 1 > h),
    ),
    "a pair of one phase": mutated(DUALPIPE, 4, "B1", "F0&B0"),
    "another placement": replace(DUALPIPE, stages=(h, h + q)),
    "stages beyond the depth": replace(DUALPIPE, stages=(h, 2 * q - h)),
    "negative counts": mutated(GPIPE, 0, trips=M - 2),
}


@pytest.mark.parametrize("program", MUTANTS.values(), ids=MUTANTS)
def test_a_mutated_program_is_refuted(program):
    theory = THEORY["gpipe" if program.name == "gpipe" else "dualpipe"]
    proof = prove_theory(replace(theory, program=program), "legal")
    assert proof.status == "refuted"
    assert proof.witness


def test_an_order_that_hangs_is_refuted():
    swapped = replace(THEORY["dualpipe"], program=mutated(DUALPIPE, 1, "F1", "F0"))
    for kind in ("makespan", "legal"):
        proof = prove_theory(swapped, kind)
        assert (proof.status, "the ranks hang" in proof.witness[0]) == ("refuted", True)


def test_an_order_that_is_only_slower_is_legal():
    swapped = replace(THEORY["dualpipe"], program=mutated(DUALPIPE, 4, "F1&B0", "B1"))
    assert prove_theory(swapped, "legal").status == "proved"
    proof = prove_theory(swapped, "makespan")
    assert (proof.status, "the makespan is" in proof.witness[0]) == ("refuted", True)


def test_rays_that_do_not_span_a_region_are_noticed():
    theory = THEORY["dualpipe"]
    for region in theory.regions:
        for k in range(len(region.rays)):
            rays = region.rays[:k] + region.rays[k + 1 :]
            assert any(counterexample(each) for each in spanned(rays, region.where, "")), (region.name, k)


def test_regions_that_leave_costs_out_are_noticed():
    theory = THEORY["dualpipe"]
    regions = [region.where for region in theory.regions]
    assert not any(map(counterexample, covered(theory.costs, regions, "")))
    assert any(map(counterexample, covered(theory.costs, regions[1:], "")))


def test_an_idle_time_that_grows_is_no_independence():
    # Half a forward more per micro-batch than the ranks run.
    theory = THEORY["gpipe"]
    part = replace(theory.parts[0], busy=Formula(M - 1, M, M, affine(0)))
    assert prove_theory(replace(theory, parts=(part,)), "independence").status == "unknown"


# ---------------------------------------- the parts


def test_affine_fits_are_exact_or_none():
    fit = AffineFit(("P", "M"), [{"P": 1, "M": 2}, {"P": 2, "M": 2}, {"P": 1, "M": 5}, {"P": 3, "M": 7}])
    assert fit.through([2, 3, 5, 9]) == P + M - 1
    assert fit.through([2, 3, 5, 8]) is None
    assert AffineFit(("P",), [{"P": 1}, {"P": 3}]).through([0, 1]) is None


def test_paths_have_as_many_costs_as_blocks():
    whole = analysis("1f1b")
    path = find_path(whole, (103, 207, 51, 0), [Instance(whole, sizes) for sizes in THEORY["1f1b"].settings[0].spread])
    assert length(whole, path) == THEORY["1f1b"].makespan[0]


def test_timelines_are_scaled_to_whole_numbers():
    timeline = AffineTimeline.of((1, 0, 0, 0), ("r",), [[Fraction(1, 2), Fraction(1, 3)]])
    assert (timeline.scale, str(timeline.starts[0])) == (6, "2r+3")


def test_conditions_read_well():
    assert str(Implication("never", (M >= 1, M <= 0), None)) == "never: M >= 1, 0 >= M => false"
    assert str(COSTS[0]) == "F"


def test_a_program_of_ones_own_is_proved_from_its_loops_alone():
    # One forward more in flight than 1F1B on every rank but the last, where there are enough micro-batches.
    own = Program(
        "eager 1f1b",
        "r",
        P,
        M,
        P,
        (r,),
        (P >= 1, M >= 2 * P),
        (loop(2 * (P - 1 - r), "F0"), loop(M - 2 * P + 2 + 2 * r, "F0", "B0"), loop(2 * (P - 1 - r), "B0")),
    )
    theory = replace(
        THEORY["1f1b"],
        name="eager",
        program=own,
        settings=(
            replace(
                THEORY["1f1b"].settings[0],
                domain=(),
                small=tuple({"P": p, "M": 2 * p + k} for p, k in ((1, 0), (1, 3), (2, 0), (2, 1), (3, 1), (8, 9))),
                spread=tuple({"P": p, "M": 2 * p + k} for p, k in ((5, 8), (6, 9), (5, 11), (7, 12))),
            ),
        ),
        peak=2 * (P - r) - 1,
    )
    for kind in ("legal", "peak-activations", "makespan", "idle"):
        assert prove_theory(theory, kind).status == "proved", kind


def test_unknown_programs_have_no_guesses():
    assert load("nothing", 0) == Guesses()
    assert possible((M >= 1,))
    assert Analysis(GPIPE, (), possible).sizes == ("M", "P")
