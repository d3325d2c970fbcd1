"""The settings of a table: width, optimizer, initial values, placement, when rows come and go."""

import dataclasses
import math
import operator
import re

import torch

from hps._hps import train as _engine
from hps.train._initial import Constant, Normal, TruncatedNormal, Uniform
from hps.train._optimizers import SGD, Adagrad, Adam, Ftrl, RowwiseAdagrad

POOLINGS = {"sum": 0, "mean": 1, "none": 2}  # the numbers of the engine
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3}  # the numbers of the engine
DTYPE_NUMBERS = {getattr(torch, name): number for name, number in DTYPES.items()}
PLACEMENTS = ("auto", "distributed", "hybrid", "localized", "replicated")
_NAME = re.compile("[a-zA-Z0-9_-]{1,120}")
# The least and the largest value of each.
_INTEGERS = {"dim": (1, 4096), "admit_after": (1, 2**32 - 1), "expire_after": (0, 2**32 - 1),
             "rows_max": (0, 2**64 - 1)}


@dataclasses.dataclass
class Feature:
    """A name under which keys are looked up in a table.

    pooling   how the rows of a bag of keys become one: "sum", "mean"; "none": a row for each key;
              None: as the table says
    """

    name: str
    pooling: str | None = None

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a feature's name must be a text, not {self.name!r}")
        if self.pooling is not None:
            _check_pooling(f"feature {self.name!r}", self.pooling)


@dataclasses.dataclass
class Table:
    """One embedding table. Every 64-bit key is legal; a key gets a row when it first occurs.

    name          1 to 120 of the characters a-z A-Z 0-9 _ -, as in serving
    dim           elements of a row, 1 to 4096
    optimizer     `SGD`, `Adagrad`, `RowwiseAdagrad`, `Adam` or `Ftrl`, of this table alone
    pooling       of features that say nothing else: how the rows of a bag of keys become one,
                  "sum" or "mean"; "none": a row for each key
    init          initial values: `Uniform`, `Normal`, `TruncatedNormal` or `Constant`; None:
                  uniform in +-1/sqrt(dim)
    placement     which rank of a process group has a row. "distributed": a hash of the key selects
                  the rank. "localized": one rank has the whole table. "replicated": every rank has
                  it. "hybrid": every rank has the hot rows, the others are distributed. "auto":
                  localized if that spreads the work evenly over ranks that share memory, else
                  hybrid
    admit_after   a key gets a row when it has occurred in this number of steps; until then its
                  values are zeros
    expire_after  a row whose key did not occur in the last `expire_after` steps is erased; 0: never
    rows_max      largest number of rows on each rank; the rows beyond it whose keys have not
                  occurred for the longest time are erased; 0: no limit
    features      the features that look up this table, `Feature`s or names; None: one with the
                  name of the table. In a step, the gradients of a key are summed over all of them,
                  and its row is updated once
    dtype         type of a row's elements: "float32", "bfloat16" or "float16", or a torch.dtype.
                  Optimizer states are float32. An update computes in float32 and rounds the result
                  at random to one of the two nearest values, so that small updates count in the
                  mean; equal updates of a row give equal bits. On a CPU, 16-bit elements take the
                  memory of float32
    """

    name: str
    dim: int
    optimizer: SGD | Adagrad | RowwiseAdagrad | Adam | Ftrl = dataclasses.field(default_factory=SGD)
    pooling: str = "sum"
    init: Uniform | Normal | TruncatedNormal | Constant | None = None
    placement: str = "auto"
    admit_after: int = 1
    expire_after: int = 0
    rows_max: int = 0
    features: list[Feature | str] | None = None
    dtype: str | torch.dtype = "float32"

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
        _check_pooling(f"table {self.name!r}", self.pooling)
        self.dtype = str(self.dtype).removeprefix("torch.")
        if self.dtype not in DTYPES:
            raise ValueError(f"table {self.name!r}: dtype must be one of {list(DTYPES)}, not "
                             f"{self.dtype!r}")
        self._read_features()
        if self.placement not in PLACEMENTS:
            raise ValueError(f"table {self.name!r}: placement must be one of {list(PLACEMENTS)}, "
                             f"not {self.placement!r}")
        if self.init is None:
            bound = 1 / math.sqrt(self.dim)
            self.init = Uniform(-bound, bound)

    def _read_features(self):
        given = [self.name] if self.features is None else self.features
        if isinstance(given, (str, Feature)) or not given:
            raise ValueError(f"table {self.name!r}: features must be a list of features or names, "
                             f"not {given!r}")
        features = [each if isinstance(each, Feature) else Feature(each) for each in given]
        self.features = [Feature(each.name, each.pooling or self.pooling) for each in features]

    def engine(self):
        """The options as the engine takes them."""
        return {"name": self.name, "dim": self.dim, "dtype": DTYPES[self.dtype],
                "optimizer": self.optimizer.engine(),
                "initializer": self.init.engine(), "admit_after": self.admit_after,
                "expire_after": self.expire_after, "rows_max": self.rows_max}

    def make_shard(self):
        return _engine.make_shard(self.engine())


def _check_pooling(what, pooling):
    if pooling not in POOLINGS:
        raise ValueError(f"{what}: pooling must be one of {list(POOLINGS)}, not {pooling!r}")
