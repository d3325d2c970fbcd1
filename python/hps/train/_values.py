"""Checks of the arguments of optimizers and initial values."""

import numbers
import operator

FLOAT_MAX = 3.4028234663852886e38

# Ranges: what they are called, and whether a value is in them. NaN is in none.
FINITE = ("a finite number", lambda value: -FLOAT_MAX <= value <= FLOAT_MAX)
NOT_NEGATIVE = ("a number of at least 0", lambda value: 0 <= value <= FLOAT_MAX)
DECAY = ("a number of at least 0 and below 1", lambda value: 0 <= value < 1)


def check_numbers(owner, **ranges):
    """Raises TypeError or ValueError, which name the owner's class and the attribute, for an
    attribute that is not in its range."""
    for name, kind in ranges.items():
        check_number(owner, name, getattr(owner, name), kind)


def check_number(owner, name, value, kind):
    text, is_within = kind
    problem = f"{type(owner).__name__}: {name} must be {text}, not {value!r}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(problem)
    if not is_within(value):
        raise ValueError(problem)


def check_seed(owner):
    problem = f"{type(owner).__name__}: seed must be an integer, 0 to 2^64 - 1, not {owner.seed!r}"
    try:
        seed = operator.index(owner.seed)
    except TypeError:
        raise TypeError(problem) from None
    if not 0 <= seed < 2**64:
        raise ValueError(problem)
