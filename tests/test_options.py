"""What the commands share: that none writes over what it reads, and that a time is a number."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from verifier.cli import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schedule, a spec, costs, a trace and a sweep."""
    monkeypatch.chdir(tmp_path)
    assert (
        CliRunner().invoke(main, ["export", "1f1b", "-P", "2", "-M", "2", "--to", "json", "-o", "schedule.json"]).exit_code == 0
    )
    (tmp_path / "costs.toml").write_text('[costs]\nunit = "ms"\nF = 2\n')
    (tmp_path / "problem.toml").write_text('[problem]\nplacement = "sequential"\nranks = 2\nmicrobatches = 2\n')
    (tmp_path / "trace.json").write_text(
        '[{"ph": "X", "name": "PP:0F0", "dur": 12.5}, {"ph": "X", "name": "PP:0B0", "dur": 30}]'
    )
    (tmp_path / "sweep.svg").write_text('[sweep]\nfamily = "1f1b"\nranks = 2\nmicrobatches = 2\n')
    (tmp_path / "link").symlink_to("schedule.json")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("export schedule.json --to torch-csv -o schedule.json", "schedule.json"),
        ("export schedule.json --to json -o link", "schedule.json"),
        ("export schedule.json --to svg -o ./schedule.json", "schedule.json"),
        ("export schedule.json 1f1b -P 2 -M 2 --to html -o schedule.json", "schedule.json"),
        ("export 1f1b -P 2 -M 2 --costs costs.toml --to html -o costs.toml", "costs.toml"),
        ("synthesize --spec problem.toml -o problem.toml", "problem.toml"),
        ("synthesize --placement sequential -P 2 -M 2 --costs costs.toml -o costs.toml", "costs.toml"),
        ("costs trace.json -o trace.json", "trace.json"),
        ("run schedule.json --on torch --trace schedule.json", "schedule.json"),
        ("sweep sweep.svg --plot sweep.svg", "sweep.svg"),
    ],
)
def test_no_command_writes_over_what_it_reads(folder: Path, line: str, kept: str) -> None:
    before = (folder / kept).read_text()
    result = CliRunner().invoke(main, line.split())
    output = line.split()[-1]
    assert (result.exit_code, result.output) == (
        2,
        f"{output}: is what this command reads; expected another file to write\n",
    )
    assert (folder / kept).read_text() == before


@pytest.mark.parametrize("budget", ["-1", "nan", "inf", "long"])
@pytest.mark.parametrize("line", ["synthesize --placement sequential -P 2 -M 2", "window x.toml", "plan x.toml"])
def test_a_budget_is_a_number_of_seconds(line: str, budget: str) -> None:
    result = CliRunner().invoke(main, [*line.split(), "--budget", budget])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "Invalid value for '--budget'" in result.output


@pytest.mark.parametrize(
    "line",
    [
        "export schedule.json --to json -o other.json",
        "export 1f1b -P 2 -M 2 --to json -o schedule.json",
        "export 1f1b -P 2 -M 2 --to json -o /dev/stdout",
        "verify 1f1b -P 2 -M 2 --costs costs.toml",
        "costs trace.json -o costs.toml",
    ],
)
def test_another_file_is_written_as_ever(folder: Path, line: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0, result.output
