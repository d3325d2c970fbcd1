"""The cases of `python -m hps.bench train --device cuda`, and their targets.

A case is an optimizer and types; it has some shapes of batches. A bound is a peer, or the time in
which a copy in the same run moves the bytes that a step must move at least:

    "the fewest bytes"            each different row is read once in the forward, and read and
                                  written in the update; its state is read and written; outputs and
                                  gradients are moved once; a key and its order take 12 bytes
    "a gradient row for each key"  the same, but each key reads the gradient of its bag, which many
                                  keys of a bag share
"""

import dataclasses
from collections.abc import Callable

import torch

import hps.train as ht

CRITEO = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10,
          2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36]
ROWS_MAX = 10_000_000
DIM = 128
FEWEST, FEWEST_OF_KEYS = "the fewest bytes", "a gradient row for each key"
FBGEMM, TORCH = "FBGEMM", "torch"
NONE = "none"  # the target where nothing is asked
_KEY_BYTES = 12  # a key, and its place in the order


@dataclasses.dataclass(frozen=True)
class Shape:
    batch: int
    hotness: int  # keys a bag
    alpha: float  # of the power law of the keys

    def __str__(self) -> str:
        return f"{self.batch} x {self.hotness}, {self.alpha}"

    @property
    def bags(self) -> int:
        return self.batch * len(CRITEO)

    @property
    def keys(self) -> int:
        return self.bags * self.hotness

    def params(self) -> dict:
        return {"tables": len(CRITEO), "dim": DIM, "batch": self.batch, "keys_a_bag": self.hotness,
                "alpha": self.alpha, "rows_max": ROWS_MAX}


LARGE, LARGE_12, LARGE_15 = (Shape(65536, 1, alpha) for alpha in (1.05, 1.2, 1.5))
SMALL, SMALL_BAGS = Shape(8192, 1, 1.05), Shape(8192, 10, 1.05)
BAGS_OF_10, BAGS_OF_20 = Shape(65536, 10, 1.05), Shape(65536, 20, 1.2)
ALL_SHAPES = (LARGE, LARGE_12, LARGE_15, SMALL, SMALL_BAGS, BAGS_OF_10, BAGS_OF_20)
FEW_SHAPES = (LARGE, SMALL, SMALL_BAGS)
SHAPES_OF_16_BITS = (LARGE, SMALL, BAGS_OF_10, BAGS_OF_20)


@dataclasses.dataclass(frozen=True)
class Case:
    """An optimizer, types, and how the peers call them."""

    name: str
    own: Callable
    fbgemm: str
    state_bytes: int  # of a row: read and written, a sector of 32 bytes at least
    shapes: tuple[Shape, ...]
    make_torch: Callable | None = None
    rows: str = "float32"
    outputs: str = "float32"  # and gradients
    fbgemm_rows: str = "float32"  # FBGEMM has no rows of bfloat16

    def params(self) -> dict:
        found = {"rows": self.rows, "outputs": self.outputs}
        return found if self.fbgemm_rows == self.rows else found | {"fbgemm_rows": self.fbgemm_rows}

    @property
    def gradient_type(self) -> torch.dtype:
        return getattr(torch, self.outputs)

    def floor_bytes(self, shape: Shape, unique: int) -> dict[str, int]:
        """What a step must move, by the names of the bounds. `unique`: different rows of it."""
        vector = DIM * getattr(torch, self.rows).itemsize
        output = DIM * self.gradient_type.itemsize
        fewest = (shape.keys * _KEY_BYTES + unique * (3 * vector + self.state_bytes) +
                  2 * shape.bags * output)
        if shape.hotness == 1:
            return {FEWEST: fewest}
        return {FEWEST: fewest,
                FEWEST_OF_KEYS: fewest + (shape.keys - shape.bags) * output}


ROWWISE = Case("row-wise AdaGrad", ht.RowwiseAdagrad, "EXACT_ROWWISE_ADAGRAD", 64, ALL_SHAPES)
SGD = Case("SGD", ht.SGD, "EXACT_SGD", 0, FEW_SHAPES,
           make_torch=lambda rows: torch.optim.SGD(rows, lr=1e-3))
ADAM = Case("Adam", ht.Adam, "ADAM", DIM * 16 + 64, FEW_SHAPES,
            make_torch=lambda rows: torch.optim.SparseAdam(rows, lr=1e-3))
ROWS_16 = dataclasses.replace(
    ROWWISE, name="row-wise AdaGrad, bfloat16 rows and outputs", shapes=SHAPES_OF_16_BITS,
    rows="bfloat16", outputs="bfloat16", fbgemm_rows="float16")
OUTPUTS_16 = dataclasses.replace(
    ROWWISE, name="row-wise AdaGrad, bfloat16 outputs", shapes=SHAPES_OF_16_BITS,
    outputs="bfloat16")
CASES = [ROWWISE, SGD, ADAM, ROWS_16, OUTPUTS_16]

# The least ratio to each bound; where there is none, nothing is asked.
TARGETS: dict[tuple[Case, Shape], dict[str, float]] = {
    (ROWWISE, LARGE): {FEWEST: 0.5, FBGEMM: 1.6},
    (ROWWISE, LARGE_12): {FEWEST: 0.48, FBGEMM: 1.6},
    (ROWWISE, LARGE_15): {FEWEST: 0.48, FBGEMM: 1.6},
    (ROWWISE, SMALL): {FBGEMM: 2.5},
    (ROWWISE, BAGS_OF_10): {FEWEST_OF_KEYS: 0.5, FBGEMM: 1.0},
    (ROWWISE, BAGS_OF_20): {FEWEST_OF_KEYS: 0.5, FBGEMM: 0.95},
    (SGD, LARGE): {TORCH: 5},
    (SGD, SMALL): {FBGEMM: 2.5, TORCH: 2.5},
    (SGD, SMALL_BAGS): {TORCH: 6},
    (ADAM, LARGE): {FEWEST: 0.52, FBGEMM: 1.8, TORCH: 17},
    (ADAM, SMALL): {FBGEMM: 2.5, TORCH: 2.5},
    (ROWS_16, LARGE): {FEWEST: 0.45, FBGEMM: 2.2},
    (ROWS_16, SMALL): {FBGEMM: 2.5},
    (OUTPUTS_16, SMALL): {FBGEMM: 2.5},
    (OUTPUTS_16, BAGS_OF_10): {FBGEMM: 1.3},
    (OUTPUTS_16, BAGS_OF_20): {FBGEMM: 1.3},
}


def target_of(case: Case, shape: Shape, bound: str) -> str:
    least = TARGETS.get((case, shape), {}).get(bound)
    return NONE if least is None else f">= {least:g}"


def chosen(names: list[str], asked: list[str] | None) -> list[str]:
    """Those of `names` that are asked for, each by the whole name or, where that is none, by a part
    of it; all if nothing is. Raises ValueError if there is none."""
    if not asked:
        return names
    found: set[str] = set()
    for text in asked:
        whole = [name for name in names if name.lower() == text.lower()]
        found.update(part := whole or [name for name in names if text.lower() in name.lower()])
        if not part:
            raise ValueError(f"{text!r} is none of {', '.join(map(repr, names))}")
    return [name for name in names if name in found]
