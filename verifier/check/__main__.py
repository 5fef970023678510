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
from verifier.check.sentences import check_sentences
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
            sys.stdout.write(f"{_checked(folder, name, entries[name])}\n")
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
            sys.stdout.write(f"{_one_line(name)}: {_one_line(why)}\n")
    return 1 if wrong or not names else 0


def _checked(folder: Path, name: str, entry: Mapping[str, Any]) -> str:
    """What was found about one entry, after all that is asked of it."""
    text = _read(folder, entry["smt2"]) if "smt2" in entry else None
    evidence = json.loads(_read(folder, entry["certificates"]))
    check_sentences(name, entry, evidence)
    if evidence["kind"] == "theorem":
        require(entry["status"] == "proved", "what is covered is proved")
        return check_theorem(name, evidence, asked(text or ""))
    if evidence["kind"] == "published":
        return check_published(name, evidence, asked(text or ""))
    if evidence["kind"] == "bubble-constant":
        require(text is None, "a bubble is decided without a solver")
        return check_bubble(evidence)
    return check_bound(evidence, text)


def _one_line(text: str) -> str:
    """What evidence says, so that it cannot make lines of its own."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 3]}..."


def _read(folder: Path, listed: Mapping[str, str]) -> str:
    """A file, which must be the one that was written."""
    require("/" not in listed["file"] and "\\" not in listed["file"], "files stand beside the manifest")
    content = (folder / listed["file"]).read_bytes()
    require(sha256(content).hexdigest() == listed["sha256"], f"{listed['file']} is the file that was written")
    return content.decode("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
