"""Pages that are written by a program are as it would write them now."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_theorems_is_current():
    listed = runpy.run_path(str(DOCS / "list_theorems.py"))["listed"]
    assert (DOCS / "theorems.md").read_text("utf-8") == listed(), "run docs/list_theorems.py"
