"""The example that interprets a program, with nothing but Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from verifier.families import build_family
from verifier.formats import load
from verifier.formats.program_json import dump
from verifier.messages import Program, lower

EXAMPLE = Path(__file__).parents[1] / "examples" / "interpret_program.py"
MISORDERED = Path(__file__).parent / "data" / "cases" / "derived__P2V2_same_peer_reordered_recv.csv"


def interpret(program: Program, path: Path, *, groups: bool = False) -> subprocess.CompletedProcess[str]:
    path.write_text(dump(program, groups=groups))
    return subprocess.run([sys.executable, "-S", EXAMPLE, path], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches"), [("dualpipe", 4, 8), ("zbv", 3, 5), ("interleaved", 2, 4), ("1f1b", 1, 2)]
)
@pytest.mark.parametrize("groups", [False, True])
def test_a_program_trains_as_a_single_process(family: str, ranks: int, microbatches: int, groups: bool, tmp_path: Path) -> None:
    done = interpret(lower(build_family(family, ranks, microbatches), marks=groups), tmp_path / "p.json", groups=groups)
    assert done.returncode == 0, done.stderr
    assert f"{ranks} ranks" in done.stdout
    assert done.stdout.endswith("every gradient as in a single process\n")


def test_a_misordered_program_trains_on_wrong_gradients(tmp_path: Path) -> None:
    program = load(MISORDERED).program
    assert program is not None
    done = interpret(program, tmp_path / "p.json")
    assert "AssertionError: stage 2: the gradient is 122, in a single process it is 150" in done.stderr


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80
