"""Loop programs as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.affine import Affine, affine, greatest, least, symbols
from verifier.families import DUALPIPE, FAMILIES, GPIPE, ONE_F_ONE_B, ZB1P, ZB2P, ZBV, build_family, build_program
from verifier.formats.loop_text import KEYS, read_condition, read_count, read_loops
from verifier.model import ScheduleError
from verifier.sources import fitting, open_source
from verifier.specs import read_spec

P, M, r, i = symbols("P M r i")
PROGRAMS = {"sequential": (GPIPE, ONE_F_ONE_B, ZB1P, ZB2P), "v": (ZBV,), "bidirectional": (DUALPIPE,)}
ROWS = [["M", "F0"], ["M", "B0"]]


def written(program, placement):
    """A program as a table of a spec, in the words in which it is printed."""
    return {
        "name": program.name,
        "placement": placement,
        "where": [str(condition) for condition in program.domain],
        "steps": [[str(each.trips), ", ".join(map(str, each.body))] for each in program.loops],
    }


@pytest.mark.parametrize(("placement", "program"), [(p, each) for p, group in PROGRAMS.items() for each in group])
def test_what_is_printed_is_read_back(placement, program):
    own = read_loops(written(program, placement))
    assert own.program.loops == program.loops
    assert own.program.stages == program.stages
    assert set(own.program.domain) >= set(program.domain)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb1p", "zbv", "dualpipe"])
def test_a_family_from_its_text_is_the_family(name):
    family = FAMILIES[name]
    own = read_loops(written(family.program, family.placement))
    assert build_program(own.program, own.placement, 4, 12).order == build_family(name, 4, 12).order


affines = st.builds(
    Affine, st.lists(st.tuples(st.sampled_from("PMri"), st.integers(-9, 9)), max_size=4).map(tuple), st.integers(-99, 99)
)


@given(st.recursive(affines, lambda each: st.lists(each, min_size=1, max_size=3).map(lambda e: least(*e)), max_leaves=4))
def test_any_count_is_read_back(count):
    assert read_count(str(count), "PMri") == count


@given(affines, affines)
def test_any_condition_is_read_back(left, right):
    assert read_condition(str(left <= right), "PMri") == (left <= right,)


@given(st.text(alphabet="PMri0129+-*(),<>=&minax FIWB", max_size=30))
def test_any_text_is_read_or_refused_in_one_line(text):
    for read in (read_count, read_condition):
        assert "\n" not in outcome(read, text)


def outcome(read, text):
    try:
        return str(read(text, "PMri"))
    except ScheduleError as error:
        return str(error)


def test_counts_as_people_write_them():
    assert read_count("2*(P - 1 - r) + 3 * 2", "Pr") == 2 * (P - 1 - r) + 6
    assert read_count("-(P)2", "P") == -2 * P
    assert read_count("max(0, min(M, P-r))", "MPr") == greatest(affine(0), least(M, P - r))
    assert read_condition("2 i < r", "ir") == (2 * i < r,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": None}, "loops.steps: expected a list, got nothing"),
        ({"steps": []}, "loops.steps: expected 1 to 40 rows"),
        ({"steps": [["M"]]}, "loops.steps[0]: expected a count and blocks"),
        ({"steps": [["M", "F0"], ["N", "B0"]]}, 'loops.steps[1][0]: unknown symbol "N" in "N"; expected M, P, r'),
        ({"steps": [["MM", "F0"]]}, 'unknown symbol "MM"'),
        ({"steps": [["M*P", "F0"]]}, 'loops.steps[0][0]: "M*P" is no count; expected an affine one'),
        ({"steps": [["M+", "F0"]]}, '"M+" is no count'),
        ({"steps": [["M!", "F0"]]}, '"M!" is no count'),
        ({"steps": [["min(M", "F0"]]}, '"min(M" is no count'),
        ({"steps": [["1+max(0,M)", "F0"]]}, "unknown symbol"),
        ({"steps": [["9999999", "F0"]]}, "is no count"),
        ({"steps": [["M", "F0, X1"]]}, 'loops.steps[0][1]: "X1" is no block; expected F0, I1, W, B0 or F0&B1'),
        ({"steps": [["M", "F0 if i"]]}, '"i" is no condition'),
        ({"steps": [["M", "F0 if i >= P"]]}, "a guard decides which F or I run"),
        ({"steps": [["M", "F1"], ["M", "B1"]]}, "expected phases below 1"),
        ({"steps": [["M", "F0"] * 2]}, "expected a count and blocks"),
        ({"steps": [["M", ",".join(["F0"] * 41)]]}, "at most 40 blocks, got 41"),
        ({"steps": [["M", ",".join(f"W if i >= {k}" for k in range(9))]]}, "9 different conditions"),
        ({"steps": [["M" * 300, "F0"]]}, "at most 200 characters, got 300 characters"),
        ({"steps": 3}, "loops.steps: expected a list, got int"),
        ({"placement": "vee"}, 'loops.placement: expected one of sequential, interleaved, v, bidirectional, got "vee"'),
        ({"name": 1.5}, "loops.name: expected text"),
        ({"where": "M >= P"}, "loops.where: expected a list"),
        ({"where": ["M >= r"]}, 'loops.where[0]: unknown symbol "r"'),
        ({"where": ["P <= M <= 2P"]}, "is no condition"),
        ({"costs": ["F > I"]}, "loops.costs: expected multiples of costs"),
        ({"costs": ["F = hop"]}, 'unknown symbol "hop"'),
        ({"makespan": {"F": "max(1, M)"}}, "min and max are not for counts of costs"),
        ({"makespan": {"X": "1"}}, "loops.makespan: expected how often each cost counts"),
        ({"makespan": [{}]}, "loops.makespan[0]: expected how often"),
        ({"peak_activations": "P+"}, "loops.peak_activations:"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change, message):
    with pytest.raises(ScheduleError) as caught:
        read_loops({"steps": ROWS, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_keys_are_read():
    own = read_loops({
        "name": "own", "placement": "sequential", "where": ["M >= P"], "costs": ["F = I"], "steps": ROWS,
        "makespan": {"F": "M+P-1", "I": "M+P-1", "W": "M+P-1"}, "peak_activations": "min(M, 2P)",
    })  # fmt: skip
    assert KEYS == ("name", "placement", "where", "costs", "steps", "makespan", "peak_activations")
    assert (len(own.costs), own.peak, own.makespan) == (2, least(M, 2 * P), ((M + P - 1,) * 3 + (affine(0),),))


# ---------------------------------------- as a source


@pytest.fixture
def spec(tmp_path):
    def write(text):
        path = tmp_path / "own.toml"
        path.write_text('[loops]\nsteps = [["M", "F0"], ["M", "B0"]]\n' + text)
        return str(path)

    return write


def test_loops_are_a_source_at_any_sizes(spec):
    assert open_source(spec(""), ranks=3, microbatches=5).schedule.order == build_family("gpipe", 3, 5).order
    path = spec("[schedule]\nranks = 2\nmicrobatches = 4\n[expect]\nmakespan = 15\n")
    assert open_source(path).claims == {"makespan": 15}
    other = open_source(path, ranks=3)
    assert (other.schedule.name, other.claims) == ("own loops P=3 M=4", {})
    assert fitting(path, {"ranks": 3, "microbatches": 4, "dialect": "legacy"}) == {"ranks": 3, "microbatches": 4}


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        ("", {}, "needs its sizes, for example: "),
        ("", {"ranks": 2}, "needs its sizes"),
        ("", {"ranks": 0, "microbatches": 2}, "own loops: 0 ranks; expected at least 1"),
        ('[schedule]\nfamily = "1f1b"\n', {}, "schedule.family: unknown key"),
        ("[schedule]\nranks = 2\n", {}, "schedule.microbatches: missing"),
        ('[problem]\nplacement = "v"\n', {}, "expected [loops] or [problem], got both"),
        ("[costs]\nF = [1, 2]\n", {"ranks": 3, "microbatches": 3}, "costs.F: expected 3 numbers"),
        ("[limits]\nactivations = [1, 2]\n", {"ranks": 3, "microbatches": 3}, "limits.activations"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(spec, text, sizes, message):
    with pytest.raises(ScheduleError) as caught:
        open_source(spec(text), **sizes)
    assert message in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_other_specs_take_no_sizes():
    with pytest.raises(ScheduleError, match="a spec takes no -P"):
        open_source("specs/1f1b-p4-m8.toml", ranks=3)


def test_unknown_keys_of_loops_are_refused(spec):
    with pytest.raises(ScheduleError, match=r"loops\.step: unknown key; did you mean steps"):
        read_spec(spec("step = 1\n"))
