"""Specs: what is read from them, what is refused and where, and that every one of ours is proved."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.costs import CostModel
from verifier.model import Limits, Problem, ScheduleError
from verifier.sources import judged_under, open_source
from verifier.specs import MAX_BYTES, limits_of, read_costs, read_spec
from verifier.verify import verify

SHIPPED = sorted((Path(__file__).parents[1] / "specs").glob("*.toml"))
SPECS = [path for path in SHIPPED if "[schedule]" in path.read_text()]
FAMILY = '[schedule]\nfamily = "1f1b"\nranks = 4\nmicrobatches = 8\n'


@pytest.fixture
def spec(tmp_path):
    """Write a spec and read it."""

    def read(text):
        path = tmp_path / "x.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_spec(path)

    return read


def refusal(spec, text):
    with pytest.raises(ScheduleError) as caught:
        spec(text)
    message = str(caught.value)
    assert "\n" not in message
    assert "x.toml: " in message
    return message.partition("x.toml: ")[2]


# ------------------------------------------------------------------------------------------------------------- our own


def test_the_shipped_specs_are_those_that_are_promised():
    names = {path.stem for path in SPECS}
    assert names >= {
        "dualpipe-p8-m20",
        "dualpipev-p4-m10",
        "1f1b-p4-m8",
        "zb1p-p4-m8",
        "zbv-p4-m8",
        "chimera-p4-m4",
        "dualpipe-unequal-costs",
        "uneven-stages",
    }


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_proved_with_expectations_that_have_a_source(path):
    source = open_source(str(path))
    report = verify(source.schedule, source.costs, source.limits, claims=source.claims, solver="replay")
    assert report.status == "proved"
    assert report.properties["claims"].status == "proved"
    assert read_spec(path).reference


def test_the_unequal_costs_give_the_makespan_of_the_closed_form():
    assert read_spec("specs/dualpipe-unequal-costs.toml").expectations["makespan"] == 619


# ---------------------------------------------------------------------------------------------------------- what is read


def test_a_family_with_everything(spec):
    read = spec(
        FAMILY + '[costs]\nF = 0.1\nFB = "5/2"\n[limits]\nactivations = [4, 3.5, 2, 1]\nweights = 1\n[expect]\nidle = 9\n'
    )
    assert read.source.schedule.name == "1f1b P=4 M=8"
    assert read.problem == read.source.schedule.problem
    assert read.costs == CostModel.of(F=Fraction(1, 10), FB=Fraction(5, 2))
    assert read.limits == Limits((Fraction(4), Fraction(7, 2), Fraction(2), Fraction(1)), 1)
    assert read.expectations == {"idle": 9}


def test_decimals_keep_their_digits(spec):
    assert spec("[costs]\nF = 1_000.00000000000001\n").costs.prices["F"] == Fraction("1000.00000000000001")


def test_interleaved_takes_its_options(spec):
    read = spec('[schedule]\nfamily = "interleaved"\nranks = 2\nmicrobatches = 4\nstages_per_rank = 3\nrule = "megatron"\n')
    assert read.problem.stages == 6


def test_a_file_is_found_beside_the_spec(spec, tmp_path):
    (tmp_path / "order.csv").write_text("0F0,0B0,0W0\n")
    read = spec('[schedule]\nfile = "order.csv"\nmicrobatches = 1\ndialect = "legacy"\n')
    assert [str(block) for block in read.source.schedule.order[0]] == ["0F0", "0I0", "0W0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('placement = "bidirectional"\nranks = 2\nmicrobatches = 6', Problem(((0, 1), (1, 0)), (3, 3))),
        ('placement = "interleaved"\nranks = 2\nstages_per_rank = 3\nmicrobatches = 6', Problem(((0, 1, 0, 1, 0, 1),), (6,))),
        ("placement = [[0, 1, 1, 0]]\nmicrobatches = 6", Problem(((0, 1, 1, 0),), (6,))),
        ("placement = [[0, 1], [1, 0]]\nranks = 2\nmicrobatches = [1, 5]", Problem(((0, 1), (1, 0)), (1, 5))),
    ],
)
def test_problems(spec, text, expected):
    assert spec(f"[problem]\n{text}\n").problem == expected


def test_a_byte_order_mark_is_no_content(spec):
    assert spec(b"\xef\xbb\xbf" + FAMILY.encode()).source is not None


def test_costs_are_text_or_a_file(tmp_path):
    path = tmp_path / "costs.toml"
    path.write_text('[costs]\nF = "1/2"\n')
    assert read_costs(str(path)) == read_costs("F=1/2") == CostModel.of(F="1/2")


def test_limits_from_the_command_line():
    assert limits_of("5/2", "1,2") == Limits(Fraction(5, 2), (1, 2))


# --------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty; expected tables such as [schedule]"),
        ('[costs]\nFB = "fast"\n', 'costs.FB: expected a number such as 3, 2.5 or "5/2", got "fast"'),
        ("[costs]\nF = -1\n", "costs.F: expected a number that is not negative, got -1"),
        ("[costs]\nF = nan\n", 'costs.F: expected a number such as 3, 2.5 or "5/2", got "nan"'),
        ("[costs]\nF = inf\n", 'costs.F: expected a number such as 3, 2.5 or "5/2", got "inf"'),
        ("[costs]\nF = 1e999999999\n", "costs.F: expected at most 18 digits"),
        ("[costs]\nF = true\n", "costs.F: expected a number"),
        ("[costs]\nF = 2020-01-01\n", "costs.F: expected a number"),
        (f"[costs]\nF = {'9' * 5000}\n", "a number with too many digits"),
        (f"[costs]\nF = 0x{'f' * 5000}\n", "costs.F: expected at most 18 digits"),
        ('[costs]\nF = "1/999999999999999989"\nI = "1/999999999999999877"\n', "costs: the common denominator needs more"),
        ("[costs]\ncls = 1\n", "costs.cls: unknown key"),
        ("[costs]\nF = [1, 2]\n" + FAMILY, "costs.F: expected 4 numbers, one per stage; got 2"),
        ("costs = 3\n", "costs: expected a table [costs]"),
        ("[cost]\nF = 1\n", "cost: unknown key; did you mean costs?"),
        ("[plot]\nF = 1\n", "plot: unknown key; expected schedule, loops, problem, costs, limits, expect"),
        ("[expect]\nmakespn = 1\n", "expect.makespn: unknown key; did you mean makespan?"),
        ("[expect]\nmakespan = [1, true]\n", "expect.makespan[1]: expected a number"),
        ("[expect]\nsource = 3\n", "expect.source: expected text, got 3"),
        ("[limits]\nweights = 1.5\n", "limits.weights: expected whole numbers"),
        ("[limits]\nactivations = [1, 2]\n" + FAMILY, "limits.activations: expected one number or 4"),
        (FAMILY.replace("family", "famly"), "schedule.famly: unknown key; did you mean family?"),
        (FAMILY.replace("1f1b", "1f2b"), "unknown family '1f2b'; did you mean '1f1b'?"),
        (FAMILY.replace("ranks = 4", "ranks = 4.0"), 'schedule.ranks: expected a whole number from 0 to 10000000, got "4.0"'),
        (FAMILY.replace("ranks = 4", "ranks = 0"), "1f1b: 0 ranks; expected at least 1"),
        (FAMILY.replace("ranks = 4", "ranks = 1000000000"), "schedule.ranks: expected a whole number"),
        (FAMILY.replace("ranks = 4", "ranks = true"), "schedule.ranks: expected a whole number"),
        (FAMILY.replace("ranks = 4\n", ""), "schedule.ranks: missing; expected a whole number"),
        (FAMILY.replace("ranks = 4", f"ranks = 0x{'f' * 5000}"), "schedule.ranks: expected a whole number"),
        (FAMILY.replace("ranks = 4", "ranks ="), "not TOML: Invalid value (at line 3, column 8)"),
        ('[schedule]\nfile = "absent.csv"\n', "absent.csv: no such file or directory"),
        ('[schedule]\nfile = "a\\u0000b"\n', "embedded null byte"),
        ('[schedule]\nfile = 3\n', "schedule.file: expected text, got 3"),
        (FAMILY + '[problem]\nplacement = "v"\n', "expected [schedule] or [problem], got both"),
        ('[problem]\nplacement = "vee"\nranks = 2\nmicrobatches = 2\n', "unknown placement 'vee'"),
        ("[problem]\nmicrobatches = 2\n", 'problem.placement: expected a name such as "bidirectional"'),
        ("[problem]\nplacement = [[0, 1], [1]]\nmicrobatches = [1, 1]\n", "placement: expected the same number of stages"),
        ("[problem]\nplacement = [[0, 1]]\nranks = 3\nmicrobatches = 2\n", "problem.ranks: the placement has 2 ranks"),
        ("[problem]\nplacement = [[0, 1]]\nstages_per_rank = 3\nmicrobatches = 2\n", "problem.stages_per_rank: "),
        ('[problem]\nplacement = "bidirectional"\nranks = 2\nmicrobatches = 5\n', "problem.microbatches: 5 over two"),
        ("[problem]\nplacement = [[0, 1]]\nmicrobatches = [1, 2]\n", "expected one or two directions"),
        (f"a = {'[' * 100_000}", "nested too deeply"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"x" * (MAX_BYTES + 1), "larger than 1 MB"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_its_place(spec, text, message):
    assert message in refusal(spec, text)


def test_a_directory_and_an_absent_file_are_refused(tmp_path):
    for path, message in ((tmp_path, "is a directory"), (tmp_path / "absent.toml", "no such file or directory")):
        with pytest.raises(ScheduleError, match=message):
            read_spec(path)


def is_spec_or_one_line(path):
    try:
        read_spec(path)
    except ScheduleError as error:
        return "\n" not in str(error)
    return True


@given(st.text(alphabet='[]=".,\n{}0123456789abcdefimnorstuvx_-', max_size=80))
def test_any_text_is_a_spec_or_one_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "x.toml"
    path.write_text(text)
    assert is_spec_or_one_line(path)


_VALUES = st.recursive(
    st.sampled_from(["1", "0", "-3", "2.5", "nan", "inf", "true", '"5/2"', '"v"', '"1f1b"', "1979-05-27", "1e400", '""']),
    lambda items: st.lists(items, max_size=3).map(lambda words: f"[{', '.join(words)}]"),
    max_leaves=6,
)
_KEYS = (
    "family file ranks microbatches placement stages_per_rank rule dialect F B FB hop release activations weights idle source"
)


@given(st.lists(st.tuples(st.sampled_from(["schedule", "problem", "costs", "limits", "expect"]), st.dictionaries(
    st.sampled_from(_KEYS.split()), _VALUES, max_size=4)), max_size=3, unique_by=lambda item: item[0]))  # fmt: skip
def test_any_tables_are_a_spec_or_one_line(tmp_path_factory, tables):
    path = tmp_path_factory.mktemp("fuzz") / "x.toml"
    path.write_text("".join(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in table.items()) for name, table in tables))
    assert is_spec_or_one_line(path)


# ---------------------------------------------------------------------------------------------------------- judged under


def test_an_option_has_precedence_over_the_spec_and_the_spec_over_the_source(spec):
    against = spec("[costs]\nF = 2\n[limits]\nactivations = 3\nweights = 7\n")
    source = open_source("1f1b", ranks=4, microbatches=8)
    judged = judged_under(source, spec=against, activations="4")
    assert (judged.costs, judged.limits) == (CostModel.of(F=2), Limits(Fraction(4), 7))
    assert judged_under(source, spec=against, costs="F=3").costs == CostModel.of(F=3)


def test_expectations_are_not_judged_under_other_costs(spec):
    against = spec("[costs]\nF = 2\n[expect]\nmakespan = 1\n")
    source = open_source("1f1b", ranks=4, microbatches=8)
    assert judged_under(source, spec=against).claims == {"makespan": 1}
    other = judged_under(source, spec=against, costs="F=3")
    assert not other.claims
    assert "not judged" in other.notes[-1]


def test_the_order_is_judged_as_an_answer_to_the_problem_of_the_spec(spec):
    source = open_source("1f1b", ranks=4, microbatches=8)
    judged = judged_under(source, spec=spec('[problem]\nplacement = "sequential"\nranks = 4\nmicrobatches = 9\n'))
    witness = verify(judged.schedule, solver="replay").properties["complete"].witnesses[0]
    assert str(witness).startswith("micro-batch 8 of 9 missing")
    with pytest.raises(ScheduleError, match="a problem of 2 ranks; the schedule has 4"):
        judged_under(source, spec=spec('[problem]\nplacement = "v"\nranks = 2\nmicrobatches = 9\n'))
