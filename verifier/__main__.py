"""``python -m verifier`` is the command ``verifier``."""

from verifier.cli import main

main(prog_name="verifier")
