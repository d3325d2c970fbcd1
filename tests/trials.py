"""How often a random test or a fault test tries, and from which seed: src/testing/trials.h in
Python."""

import os

TEST_SEED = int(os.environ.get("HPS_TEST_SEED", "0"))  # is added to fixed seeds


def trials(count: int) -> int:
    """The part of `count` trials that this run makes, at least three: an eighth, or
    $HPS_TEST_TRIALS_PERCENT percent of them."""
    percent = os.environ.get("HPS_TEST_TRIALS_PERCENT")
    return max(3, count // 8 if percent is None else count * int(percent) // 100)
