"""Waits of tests for what another process or thread does.

A wait that ends in vain raises MissedWait, whose text begins with MISSED_WAIT: tools/run_tests.py
tells by it a test that was late from one that was wrong.
"""

import time

MISSED_WAIT = "missed wait: "  # as src/testing/await.h has it
WAIT_S = 120  # for anything: a busy machine gets there too


class MissedWait(AssertionError):
    """What was waited for has not come in time."""

    def __init__(self, what: str, wait_s: float):
        super().__init__(f"{MISSED_WAIT}{what} within {wait_s:g} s")


def await_true(holds, what="what is awaited", wait_s: float = WAIT_S, pause_s: float = 0.02):
    """Asks `holds()` again and again, and returns its first answer that is true. `what` names what
    has not come in time; a function makes the text then."""
    end = time.monotonic() + wait_s
    while not (answer := holds()):
        if time.monotonic() > end:
            raise MissedWait(f"no {what() if callable(what) else what}", wait_s)
        time.sleep(pause_s)
    return answer
