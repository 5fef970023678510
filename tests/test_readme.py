"""Every worked example of the README prints what the README says."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from verifier.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def examples() -> list[tuple[str, str]]:
    """Each ``$ verifier ...`` of a console block, with the lines that should follow it."""
    found = []
    for block in BLOCK.findall((ROOT / "README.md").read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("verifier "):
                found.append((command, output))
    return found


def matches(expected: str, actual: str) -> bool:
    """Equal line by line; a line ``...`` stands for any lines."""
    lines = [
        ".*\n" if line.strip() == "..." else re.escape(line.rstrip()) + " *\n" for line in expected.strip("\n").splitlines()
    ]
    pattern = "".join(r"(?:.*\n)*?" if line == ".*\n" else line for line in lines)
    return re.fullmatch(pattern + r"\s*", actual.strip("\n") + "\n") is not None


@pytest.mark.parametrize(("command", "expected"), examples(), ids=lambda value: value.split("\n")[0][:60])
def test_readme_example(command: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    words = [word.replace("/tmp/", f"{tmp_path}/") for word in shlex.split(command)[1:]]
    redirect = words[words.index(">") + 1] if ">" in words else None
    words = words[: words.index(">")] if redirect else words
    result = CliRunner().invoke(main, words, env={"COLUMNS": "120"})
    output = result.output
    if redirect:
        Path(redirect).write_text(output)
        output = ""
    assert result.exit_code in (0, 1), output
    assert matches(expected, output), f"README says:\n{expected}\nreality:\n{output}"


def test_readme_python_runs() -> None:
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert (failed, tried) == (0, tried)
    assert tried >= 3


def test_readme_has_examples() -> None:
    assert len(examples()) >= 5
