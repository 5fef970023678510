"""Pages that are written by a program are as it would write them now."""

import json
import runpy
from pathlib import Path

from verifier.theorems.ideas import BY_FAMILY, idea
from verifier.theorems.statements import THEOREMS, prove
from verifier.theorems.theories import THEORIES

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_theorems_is_current():
    listed = runpy.run_path(str(DOCS / "list_theorems.py"))["listed"]
    assert (DOCS / "theorems.md").read_text("utf-8") == listed(), "run docs/list_theorems.py"


def test_the_page_has_the_numbers_of_every_theorem():
    numbers = json.loads((DOCS / "theorems.json").read_text("utf-8"))
    assert set(numbers) == set(THEOREMS), "run docs/list_theorems.py --measure"
    for name in ("gpipe-makespan", "1f1b-peak-activations", "zbv-mirrored-legal"):
        proof = prove(name)
        assert numbers[name].startswith(f"{proof.status}; {proof.discharged} of {proof.conditions} conditions")


def test_every_theorem_says_how_it_is_proved():
    for name, theorem in THEOREMS.items():
        text = idea(theorem.kind, theorem.theory.name)
        assert len(text.splitlines()) <= 15, name
    assert set(BY_FAMILY) == {theory.name for theory in THEORIES}
