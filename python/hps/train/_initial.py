"""The initial values of rows. They depend on the key of the row and the seed only, and are the same
bits on every machine."""

import dataclasses
import math

from hps.train._values import FINITE, NOT_NEGATIVE, check_number, check_numbers, check_seed

# Beyond, nothing of the distribution is left.
_BOUND = ("a number from -8 to 8", lambda value: -8 <= value <= 8)
_PROBABILITY_BITS = 44


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Initial values of a row, uniform in [low, high). They depend on the key and the seed only, as
    those of every distribution."""

    low: float
    high: float
    seed: int = 0

    def __post_init__(self):
        check_numbers(self, low=FINITE, high=FINITE)
        check_seed(self)
        if self.low > self.high:
            raise ValueError(f"Uniform: low must be at most high, {self.high}, not {self.low}")

    def engine(self):
        """What the engine makes of it: the fields of Initializer (src/train)."""
        return {"kind": 0, "low": self.low, "high": self.high, "seed": self.seed}


@dataclasses.dataclass(frozen=True)
class Constant:
    """The same initial value for every element of every row."""

    value: float

    def __post_init__(self):
        check_numbers(self, value=FINITE)

    def engine(self):
        return {"kind": 0, "low": self.value, "high": self.value}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normal:
    """Initial values of a row, normal. Arguments are given by name."""

    mean: float = 0.0
    std: float
    seed: int = 0

    def __post_init__(self):
        check_numbers(self, mean=FINITE, std=NOT_NEGATIVE)
        check_seed(self)

    def engine(self):
        return {"kind": 1, "low": -math.inf, "high": math.inf, "mean": self.mean,
                "deviation": self.std, "seed": self.seed}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedNormal:
    """Initial values of a row, normal, without those below mean + low * std or above
    mean + high * std. Arguments are given by name."""

    mean: float = 0.0
    std: float
    low: float = -2.0
    high: float = 2.0
    seed: int = 0

    def __post_init__(self):
        check_numbers(self, mean=FINITE, std=NOT_NEGATIVE, low=_BOUND, high=_BOUND)
        check_seed(self)
        if _probability(self.low) >= _probability(self.high):
            raise ValueError(f"TruncatedNormal: low must be below high, {self.high}, so that there "
                             f"are values between them, not {self.low}")

    def engine(self):
        return {"kind": 1, "low": self.mean + self.low * self.std,
                "high": self.mean + self.high * self.std, "mean": self.mean, "deviation": self.std,
                "probability_low": _probability(self.low),
                "probability_high": _probability(self.high), "seed": self.seed}


def _probability(bound):
    """Of a standard normal variable to be below. Rounded, so that the last bits of the C library's
    function do not count: they differ between its versions."""
    mantissa, exponent = math.frexp(math.erfc(-bound / math.sqrt(2)) / 2)
    return math.ldexp(round(math.ldexp(mantissa, _PROBABILITY_BITS)), exponent - _PROBABILITY_BITS)
