"""What needs torch is looked at only where torch is, and runs with the other tests that need it: ``make test`` does without."""

import signal
from importlib.util import find_spec

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs tests in the background has interrupts ignored, and what the tests start would never hear one.
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore_glob = [] if find_spec("torch") else ["verifier/runtimes/*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in the runtimes' docstrings are tests of the runtimes."""
    for item in items:
        if "runtimes" in item.path.parts:
            item.add_marker(pytest.mark.runtime)
