"""The optimizers of embedding rows. A step updates only the rows of its keys."""

import dataclasses
import math
import weakref

from hps.train._values import DECAY, NOT_NEGATIVE, check_number, check_numbers

_CORRECTIONS = ("row", "step")
_LEAST = 1e-12  # smaller learning rates are refused by some optimizers


class _Optimizer:
    """What the engine and checkpoints ask of an optimizer."""

    def tell_lr(self, optimizer, name):
        """From now on, setting `lr` also sets it for the table `name` of a TablesOptimizer."""
        told = self.__dict__.setdefault("_told", [])
        told.append((weakref.ref(optimizer), name))

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "lr":
            for optimizer, table in self.__dict__.get("_told", ()):
                if optimizer() is not None:
                    optimizer().set_rate(table, value)

    lr_least = -math.inf  # smaller learning rates are refused when they are used

    def engine(self):
        """What the engine makes of it: the fields of SparseOptimizer (src/train)."""
        raise NotImplementedError

    def state(self):
        """What must be the same when a checkpoint is loaded."""
        raise NotImplementedError


@dataclasses.dataclass
class SGD(_Optimizer):
    """w -= lr * g. With a momentum: b = momentum * b + g; w -= lr * b; with `nesterov`, too:
    w -= lr * (g + momentum * b).

    lr            of every optimizer; may be changed at any time. The other arguments count when the
                  collection is made
    momentum      at least 0 and below 1; 0 keeps no state
    weight_decay  of every optimizer but Ftrl: w -= lr * weight_decay * w comes before the update of
                  the row, as in AdamW
    """

    lr: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self):
        check_numbers(self, momentum=DECAY, weight_decay=NOT_NEGATIVE)
        if not isinstance(self.nesterov, bool):
            raise TypeError(f"SGD: nesterov must be True or False, not {self.nesterov!r}")
        if self.nesterov and not self.momentum:
            raise ValueError("SGD: nesterov must be False without a momentum")

    def engine(self):
        kind = 0 if not self.momentum else 4 if self.nesterov else 3
        return {"kind": kind, "momentum": self.momentum, "weight_decay": self.weight_decay}

    def state(self):
        return {"optimizer": "SGD", "states": 1 if self.momentum else 0}


@dataclasses.dataclass
class _Accumulating(_Optimizer):
    """Of AdaGrad and its variant. A subclass has the number of its `kind`."""

    lr: float = 0.01
    initial_accumulator: float = 0.0
    eps: float = 1e-10
    weight_decay: float = 0.0

    def __post_init__(self):
        check_numbers(self, initial_accumulator=NOT_NEGATIVE, eps=NOT_NEGATIVE,
                      weight_decay=NOT_NEGATIVE)

    def engine(self):
        return {"kind": self.kind, "initial_accumulator": self.initial_accumulator,
                "epsilon": self.eps, "weight_decay": self.weight_decay}

    def state(self):
        return {"optimizer": type(self).__name__, "states": 1}


@dataclasses.dataclass
class Adagrad(_Accumulating):
    """a += g^2; w -= lr * g / (sqrt(a) + eps)."""

    kind = 1


@dataclasses.dataclass
class RowwiseAdagrad(_Accumulating):
    """a += mean(g^2), one value for the row; w -= lr * g / (sqrt(a) + eps). The same as FBGEMM's
    EXACT_ROWWISE_ADAGRAD."""

    kind = 5


@dataclasses.dataclass
class Adam(_Optimizer):
    """Lazy Adam: a step updates only the rows of its keys.

    bias_correction  "row": counts the updates of the row. "step": counts those of the table, and
                     adds `eps` before the correction, as torch.optim.SparseAdam does
    """

    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    bias_correction: str = "row"

    def __post_init__(self):
        check_numbers(self, eps=NOT_NEGATIVE, weight_decay=NOT_NEGATIVE)
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise TypeError(f"Adam: betas must be two numbers, not {self.betas!r}")
        for i, beta in enumerate(self.betas):
            check_number(self, f"betas[{i}]", beta, DECAY)
        if self.bias_correction not in _CORRECTIONS:
            raise ValueError(f"Adam: bias_correction must be one of {list(_CORRECTIONS)}, "
                             f"not {self.bias_correction!r}")

    def engine(self):
        return {"kind": 2 if self.bias_correction == "row" else 6, "beta1": self.betas[0],
                "beta2": self.betas[1], "epsilon": self.eps, "weight_decay": self.weight_decay}

    def state(self):
        state = {"optimizer": "Adam", "states": 2}
        # Checkpoints of "row" are as they were before there was a choice.
        return state if self.bias_correction == "row" else state | {"bias_correction": "step"}


@dataclasses.dataclass
class Ftrl(_Optimizer):
    """FTRL-Proximal (McMahan et al., 2013): n' = n + g^2;
    z += g - (sqrt(n') - sqrt(n)) / lr * w; n = n'; w = 0 if |z| <= l1, else
    (sign(z) * l1 - z) / ((beta + sqrt(n)) / lr + l2).

    `beta` and `initial_accumulator` are by default those of tf.keras.optimizers.Ftrl, which counts
    its l2 twice: half of this `l2` is the same there. HugeCTR begins with an accumulator of 0.
    The formula computes w from z. So with an accumulator above 0, a row's first update makes its
    initial values smaller. At least one of `l2`, `beta` and `initial_accumulator` must be above 0,
    and `lr` at least 1e-12, because the formula divides by them.
    """

    lr: float = 0.01
    l1: float = 0.0
    l2: float = 0.0
    beta: float = 0.0
    initial_accumulator: float = 0.1

    lr_least = _LEAST

    def __post_init__(self):
        check_numbers(self, l1=NOT_NEGATIVE, l2=NOT_NEGATIVE, beta=NOT_NEGATIVE,
                      initial_accumulator=NOT_NEGATIVE)
        if not (self.l2 or self.beta or self.initial_accumulator):
            raise ValueError("Ftrl: initial_accumulator must be above 0 if l2 and beta are 0")

    def engine(self):
        return {"kind": 7, "l1": self.l1, "l2": self.l2, "beta": self.beta,
                "initial_accumulator": self.initial_accumulator}

    def state(self):
        return {"optimizer": "Ftrl", "states": 2}


def learning_rates(tables, rates=None):
    """Those of the tables' next update. `rates`: {table: its rate}; None: as their optimizers
    say."""
    found = [float(rates[table.name]) if rates else table.optimizer.lr for table in tables]
    if not math.isfinite(sum(found)) or min(found) < _LEAST:
        for table, rate in zip(tables, found):
            _check_rate(table, rate)
    return found


def _check_rate(table, rate):
    least = table.optimizer.lr_least
    if not math.isfinite(rate):
        raise ValueError(f"table {table.name!r}: the learning rate is {rate}")
    if rate < least:
        raise ValueError(f"table {table.name!r}: the learning rate is {rate}, but must be at least "
                         f"{least} for {type(table.optimizer).__name__}; a schedule must not "
                         "begin or end with 0")
