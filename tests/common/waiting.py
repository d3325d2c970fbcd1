"""Waits of tests for what another process or thread does; how often a test tries, and its seed.

A wait that ends in vain raises MissedWait, whose text begins with MISSED_WAIT: tools/run_tests.py
tells by it a test that was late from one that was wrong.
"""

import os
import subprocess
import time

MISSED_WAIT = "missed wait: "  # as src/testing/await.h has it
WAIT_S = 120  # for anything: a busy machine gets there too
TEST_SEED = int(os.environ.get("HPS_TEST_SEED", "0"))  # is added to fixed seeds


class MissedWait(AssertionError):
    """What was waited for has not come in time."""

    def __init__(self, what: str, wait_s: float):
        super().__init__(f"{MISSED_WAIT}{what} within {wait_s:g} s")


def await_true(holds, what="what is awaited", wait_s: float = WAIT_S,
               pause_s: float = 0.02, process: subprocess.Popen | None = None):
    """Asks `holds()` again and again, and returns its first answer that is true. `what` names what
    has not come; a function makes the text then. `process` is to bring it: when that has ended,
    the wait fails at once, and was not late."""
    end = time.monotonic() + wait_s
    while not (answer := holds()):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > end:
            text = f"no {what() if callable(what) else what}"
            if ended:
                raise AssertionError(f"the process ended with {process.returncode}: {text}")
            raise MissedWait(text, wait_s)
        time.sleep(pause_s)
    return answer


def trials(count: int) -> int:
    """The part of `count` trials that this run makes, at least three: an eighth, or
    $HPS_TEST_TRIALS_PERCENT percent of them. As src/testing/trials.h has it."""
    percent = os.environ.get("HPS_TEST_TRIALS_PERCENT")
    return max(3, count // 8 if percent is None else count * int(percent) // 100)
