"""
``python -m verifier.check DIR``: exit code 0 if all evidence in a folder holds, 1 if some does not, 2 if it cannot be read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from verifier.check.bounds import check_bound
from verifier.check.bubble import check_bubble
from verifier.check.conditions import EvidenceError, require
from verifier.check.published import check_published
from verifier.check.scripts import asked
from verifier.check.sentences import check_counts, check_sentences, sentence_of
from verifier.check.theorems import check_theorem

MAX_SHOWN = 400
"""Letters of what evidence says wrong."""


def main(arguments: list[str]) -> int:
    """Check every entry of the folder's manifest, one line each."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m verifier.check DIR\n")
        return 2
    folder = Path(arguments[0])
    try:
        entries = json.loads((folder / "manifest.json").read_text("utf-8"))
        names = list(entries)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        sys.stderr.write(f"{folder}: cannot be read: {error}\n")
        return 2
    wrong = 0
    for name in names:
        try:
            sys.stdout.write(f"{_one_line(_checked(folder, name, entries[name]))}\n")
        except (
            EvidenceError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            wrong += 1
            why = str(error) if isinstance(error, EvidenceError) else f"not readable: {error!r}"
            shown = f"{why[: MAX_SHOWN - 3]}..." if len(why) > MAX_SHOWN else why
            sys.stdout.write(f"{_one_line(name)}: {_one_line(shown)}\n")
    return 1 if wrong or not names else 0


def _checked(folder: Path, name: str, entry: Mapping[str, Any]) -> str:
    """What was found about one entry, after all that is asked of it."""
    text = _read(folder, entry["smt2"]) if "smt2" in entry else None
    evidence = json.loads(_read(folder, entry["certificates"]))
    check_sentences(name, entry, evidence)
    if evidence["kind"] in ("theorem", "published"):
        questions = asked(text or "")
        check_counts(name, entry, evidence, len(questions))
    else:
        check_counts(name, entry, evidence, 1)
    if evidence["kind"] == "theorem":
        require(entry["status"] == "proved", "what is covered is proved")
        return check_theorem(name, evidence, questions)
    if evidence["kind"] == "published":
        return check_published(name, evidence, questions)
    # Of statements about a schedule, what was checked: whose, and at which costs.
    whose = entry["statement"].removesuffix(sentence_of(evidence))
    if evidence["kind"] == "bubble-constant":
        require(text is None, "a bubble is decided without a solver")
        costs = ",".join(f"{kind}={json.dumps(price)}" for kind, price in evidence["costs"].items())
        return f"{evidence['kind']} of {whose} at {costs}: {check_bubble(evidence)}"
    bound, _, found = check_bound(evidence, text).partition(": ")
    return f"{bound} of {whose} at {evidence['costs']}: {found}"


def _one_line(text: str) -> str:
    """What evidence says, so that it cannot make lines of its own."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _read(folder: Path, listed: Mapping[str, str]) -> str:
    """A file, which must be the one that was written."""
    require("/" not in listed["file"] and "\\" not in listed["file"], "files stand beside the manifest")
    content = (folder / listed["file"]).read_bytes()
    require(sha256(content).hexdigest() == listed["sha256"], f"{listed['file']} is the file that was written")
    return content.decode("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
