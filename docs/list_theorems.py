"""Write docs/theorems.md anew: what ``verifier prove`` lists, as a page."""

import json
from pathlib import Path

from click.testing import CliRunner

from verifier.commands.proving import prove

PAGE = Path(__file__).with_name("theorems.md")
HEAD = """# Theorems

What `verifier prove` lists; written by `docs/list_theorems.py`.

`verifier prove NAME` proves one again. `--evidence DIR` writes its conditions as SMT-LIB 2, for any solver, and with
certificates, which `python -m verifier.check DIR` verifies without one; `--second-opinion` lets cvc5 decide them too.

A full backward B is I + W, r is the rank, and hops between ranks take no time, unless something else is said. A published
formula may well be refuted, with a counterexample.
"""


def listed() -> str:
    """The page."""
    entries = json.loads(CliRunner().invoke(prove, ["--json"], standalone_mode=False).output)
    parts = [HEAD]
    for entry in entries:
        part = f"## {entry['theorem']}\n\n{_sentence(entry['statement'])}\n\nWhere: {entry['domain']}.\n"
        parts.append(part + (f"\nSource: {entry['source']}.\n" if entry["source"] else ""))
    return "\n".join(parts)


def _sentence(text: str) -> str:
    """With a capital, a full stop, and nothing that Markdown would take for a mark."""
    return f"{text[0].upper()}{text[1:]}.".replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(listed(), "utf-8")
