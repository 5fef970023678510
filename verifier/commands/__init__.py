"""The commands of ``verifier``: one small function each, registered in ``verifier.cli``, that returns its exit code."""
