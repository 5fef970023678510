"""Every worked example of the README and of docs/learn.md prints what the page says; so do the numbers of the latter."""

import doctest
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from verifier.cli import main

ROOT = Path(__file__).parents[1]
README, LEARN = ROOT / "README.md", ROOT / "docs" / "learn.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def examples(page: Path) -> list[tuple[str, str]]:
    """Each ``$ verifier ...`` of a console block, with the lines that should follow it."""
    found = []
    for block in BLOCK.findall(page.read_text()):
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


@pytest.mark.parametrize(("command", "expected"), examples(README), ids=lambda value: value.split("\n")[0][:60])
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
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert (failed, tried) == (0, tried)
    assert tried >= 3


def test_readme_has_examples() -> None:
    assert len(examples(README)) >= 5


# ------------------------------------------------------------------------------------------------------- docs/learn.md


@cache
def printed(command: str) -> tuple[int, str]:
    """What a command of the page says, which writes no files; several sections may show parts of one output."""
    result = CliRunner().invoke(main, shlex.split(command)[1:], env={"COLUMNS": "120"})
    return result.exit_code, result.output


@pytest.mark.parametrize(("command", "expected"), examples(LEARN), ids=lambda value: value.split("\n")[0][:60])
def test_learn_example(command: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, output = printed(command)
    assert code in (0, 1), output
    assert matches(expected, output), f"the page says:\n{expected}\nreality:\n{output}"


def test_learn_python_runs() -> None:
    failed, tried = doctest.testfile(str(LEARN), module_relative=False)
    assert (failed, tried) == (0, 2)


NUMBER = re.compile(r"(?<![\w.:/-])-?\d+(?:[./]\d+)?(?!\w)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(section: str) -> str:
    """A section without its heading, commands, outputs, code, pictures, links, and where a citation is to be found."""
    text = FENCE.sub("", section).partition("\n")[2]
    return re.sub(r"`[^`]*`|<picture>.*?</picture>|\]\([^)]*\)|arXiv:[\d.]+|table \d+", "", text, flags=re.DOTALL)


def without_numbers(section: str) -> set[str]:
    """The numbers of a section's prose that are in none of its commands and outputs."""
    shown = set(NUMBER.findall(" ".join(FENCE.findall(section)).replace("=", " ")))
    return set(NUMBER.findall(prose(section).replace("=", " "))) - shown


def test_every_number_of_learn_is_in_an_output_of_its_section() -> None:
    page = LEARN.read_text()
    sections = re.split(r"^(?=##)", page, flags=re.MULTILINE)
    assert len(sections) > 15
    assert [without_numbers(section) for section in sections[1:]] == [set()] * (len(sections) - 1)
    assert NUMBER.findall(prose(sections[0])) == ["1", "3"], "the costs, which every output repeats"


def test_a_number_out_of_the_air_is_found() -> None:
    shown = "## A\n```console\n$ verifier show x -P 8\nidle  6.5 of 7 (1/13), P=9\n```\n"
    assert without_numbers(shown + "With P = 8 it is 6.5, or 1/13 of 9.\n") == set()
    assert without_numbers(shown + "It idles 6, and not 13; a bubble of 12 %.\n") == {"6", "13", "12"}


def test_every_link_inside_learn_leads_somewhere() -> None:
    page = LEARN.read_text()
    headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors
    assert all((LEARN.parent / name).exists() for name in re.findall(r'(?:src|srcset)="([^"]*)"', page))
