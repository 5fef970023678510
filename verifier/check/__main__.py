"""
``python -m verifier.check DIR``: exit code 0 if all evidence in a folder holds, 1 if some does not, 2 if it cannot be read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verifier.check.bubble import check_bubble
from verifier.check.conditions import EvidenceError
from verifier.check.theorems import check_theorem


def main(arguments: list[str]) -> int:
    """Check every entry of the folder's manifest, one line each."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m verifier.check DIR\n")
        return 2
    folder = Path(arguments[0])
    try:
        entries = json.loads((folder / "manifest.json").read_text("utf-8"))
        read = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in entries}
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{folder}: cannot be read: {error}\n")
        return 2
    wrong = 0
    for name, evidence in read.items():
        try:
            found = check_bubble(evidence) if evidence["kind"] == "bubble-constant" else check_theorem(name, evidence)
            sys.stdout.write(f"{found}\n")
        except (EvidenceError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            wrong += 1
            sys.stdout.write(f"{name}: {error}\n")
    return 1 if wrong or not read else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
