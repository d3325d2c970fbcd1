"""What a user says of a table: its width, optimizer, first values, placement and life of rows."""

import dataclasses
import math
import operator
import re

from hps._hps import train as _engine

POOLINGS = {"sum": 0, "mean": 1, "none": 2}  # the numbers of the engine
PLACEMENTS = ("auto", "distributed", "hybrid", "localized", "replicated")
_NAME = re.compile("[a-zA-Z0-9_-]{1,120}")
# The least and the largest value of each.
_INTEGERS = {"dim": (1, 4096), "admit_after": (1, 2**32 - 1), "expire_after": (0, 2**32 - 1),
             "rows_max": (0, 2**64 - 1)}


@dataclasses.dataclass
class SGD:
    """w -= lr * g. `lr` may be changed at any time, here as in the other optimizers."""

    lr: float = 0.01

    kind = 0
    states = 0


@dataclasses.dataclass
class Adagrad:
    """a += g^2; w -= lr * g / (sqrt(a) + eps)."""

    lr: float = 0.01
    initial_accumulator: float = 0.0
    eps: float = 1e-10

    kind = 1
    states = 1


@dataclasses.dataclass
class Adam:
    """Lazy: only rows of a batch are updated, each with the bias correction of its own steps."""

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    kind = 2
    states = 2


@dataclasses.dataclass(frozen=True)
class Uniform:
    """First values of a row, in [low, high); they depend on key and seed only."""

    low: float
    high: float
    seed: int = 0


@dataclasses.dataclass
class Table:
    """One embedding table. Every 64-bit key is legal; a key gets a row when it first occurs.

    name          1 to 120 of the characters a-z A-Z 0-9 _ -, as serving has them
    pooling       of a bag of keys: "sum", "mean", "none" (a row for every key)
    init          None: uniform in +-1/sqrt(dim)
    placement     over the ranks of a process group: "distributed" (rows by a hash of the key),
                  "localized" (all on one rank), "replicated" (all on every rank), "hybrid" (hot
                  rows on every rank, the others distributed), "auto" (hot rows as measured)
    admit_after   steps that must have a key before it gets a row; until then it has zeros
    expire_after  a row that was not in so many last steps is erased; 0: never
    rows_max      the least recently seen rows beyond it (per rank) are erased; 0: no bound
    """

    name: str
    dim: int
    optimizer: SGD | Adagrad | Adam = dataclasses.field(default_factory=SGD)
    pooling: str = "sum"
    init: Uniform | None = None
    placement: str = "auto"
    admit_after: int = 1
    expire_after: int = 0
    rows_max: int = 0

    def __post_init__(self):
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"table {self.name!r}: a name has 1 to 120 of the characters a-z A-Z "
                             "0-9 _ -")
        for argument, (least, largest) in _INTEGERS.items():
            value = getattr(self, argument)
            try:
                value = operator.index(value)
            except TypeError:
                raise TypeError(f"table {self.name!r}: {argument} must be an integer, not "
                                f"{value!r}") from None
            if not least <= value <= largest:
                raise ValueError(f"table {self.name!r}: {argument} must be {least} to {largest}, "
                                 f"not {value}")
            setattr(self, argument, value)
        if self.pooling not in POOLINGS:
            raise ValueError(f"table {self.name!r}: pooling must be one of {list(POOLINGS)}, "
                             f"not {self.pooling!r}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"table {self.name!r}: placement must be one of {list(PLACEMENTS)}, "
                             f"not {self.placement!r}")
        if self.init is None:
            bound = 1 / math.sqrt(self.dim)
            self.init = Uniform(-bound, bound)

    def make_shard(self):
        optimizer = self.optimizer
        beta1, beta2 = getattr(optimizer, "betas", (0.0, 0.0))
        return _engine.make_shard({
            "name": self.name, "dim": self.dim, "optimizer": optimizer.kind,
            "epsilon": getattr(optimizer, "eps", 0.0),
            "initial_accumulator": getattr(optimizer, "initial_accumulator", 0.0),
            "beta1": beta1, "beta2": beta2,
            "low": self.init.low, "high": self.init.high, "seed": self.init.seed,
            "admit_after": self.admit_after, "expire_after": self.expire_after,
            "rows_max": self.rows_max})


def learning_rate(table):
    """Of the table's next update."""
    rate = table.optimizer.lr
    if not math.isfinite(rate):
        raise ValueError(f"table {table.name!r}: the learning rate is {rate}")
    return rate
