"""Checks of arguments that are no arrays. Each message names the argument."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from hps._errors import InvalidArgumentError

__all__ = ["fraction", "seconds", "tables_of", "text"]


def text(value: Any, argument: str) -> str:
    """A str."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: expected a str, found {type(value).__name__}")
    return value


def seconds(value: Any, argument: str) -> float:
    """A number of seconds. Infinity waits for as long as it takes."""
    number = _number(value, argument, "a number of seconds")
    if not number >= 0:  # so that NaN is refused
        raise InvalidArgumentError(f"{argument}: expected a number of seconds, not below 0, found "
                                   f"{value!r}")
    return number


def fraction(value: Any, argument: str) -> float:
    """A number from 0 to 1."""
    number = _number(value, argument, "a number")
    if not 0 <= number <= 1:
        raise InvalidArgumentError(f"{argument}: expected a number from 0 to 1, found {value!r}")
    return number


def tables_of(table: Any, keys: Any) -> Mapping[str, Any]:
    """The keys by table of a lookup whose `table` is not a name."""
    if not isinstance(table, Mapping):
        raise TypeError("table: expected a name, or a dictionary of keys by table, found "
                        f"{type(table).__name__}")
    if keys is not None:
        raise TypeError("keys: expected none beside a dictionary of keys by table")
    return table


def _number(value: Any, argument: str, what: str) -> float:
    if type(value) is float:
        return value
    is_number = isinstance(value, numbers.Real)
    if not is_number:
        raise TypeError(f"{argument}: expected {what}, found {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
