"""The look-ups of an EmbeddingCollection, in plain code and within torch.compile."""

import collections.abc
import warnings

import torch

from hps.train import _operators
from hps.train._keys import Keys, pack, place_of
from hps.train._rows import Call, Layout, Rows, Work, hidden
from hps.train._table import Feature


def features_of(tables):
    """{feature: (its number, the same on all ranks; Feature; Table)}."""
    found = {}
    for table in tables:
        for feature in table.features:
            if feature.name in found:
                raise ValueError(f"two tables, or two of one, have the feature {feature.name!r}: "
                                 f"{found[feature.name][2].name!r} and {table.name!r}")
            found[feature.name] = len(found), feature, table
    return found


class _LookUp(torch.autograd.Function):
    """Rows of all tables. Its backward takes their gradients and gives the anchor a zero: when
    PyTorch has added up the zeros of all look-ups of a backward pass, the rows are updated."""

    @staticmethod
    def forward(ctx, _anchor, _weights, look_ups, work):
        ctx.look_ups, ctx.work = look_ups, work
        ctx.set_materialize_grads(False)
        return tuple(look_ups.look_up(work, True))

    @staticmethod
    @torch.compiler.disable
    def backward(ctx, *gradients):
        work, ctx.work = ctx.work, None
        look_ups, ctx.look_ups = ctx.look_ups, None
        if work is None:
            raise RuntimeError("the gradients of this look-up were taken before: backward runs "
                               "once for each forward; call the collection again")
        weights = look_ups.take_gradients(work, gradients)
        return look_ups.zero, weights, None, None


class LookUps:
    """Makes the look-ups of one collection. `features`: the result of `features_of`.
    `is_scaler_known`: float16 under autocast needs no warning."""

    def __init__(self, features, engine, updates, is_scaler_known):
        self._features, self._engine, self._updates = features, engine, updates
        self._is_scaler_known = is_scaler_known
        # With those for the gradients of weights.
        self._all_features = features | {
            hidden(name): (len(features) + number, Feature(f"{name} (rows)", "none"), table)
            for name, (number, _, table) in features.items()}
        self._calls = {}  # by the names of their features
        # What a compiled program reads of the features. torch.compile guards each value that it
        # reads, so these are few and plain. {feature: (number, dim, is pooled)}
        self._layout = {name: (number, table.dim, feature.pooling != "none")
                        for name, (number, feature, table) in features.items()}
        self.device = engine.device
        self.zero = torch.zeros(1, dtype=torch.float32, device=self.device)
        self.number = _operators.register(self)

    def forward(self, inputs, anchor, may_train):
        """The forward of the collection. `anchor`: its parameter."""
        is_training = may_train and anchor.requires_grad
        if torch.compiler.is_compiling():
            is_frozen = may_train and not anchor.requires_grad
            return self._forward_of_program(inputs, anchor, is_training, is_frozen)
        return self._forward_now(inputs, anchor, is_training)

    # Where PyTorch compiles parts of a program, it must not look into this.
    @torch.compiler.disable
    def _forward_now(self, inputs, anchor, is_training):
        def read():
            self._check_anchor(anchor, is_training)
            return self._read(inputs)
        work = self.begin(read, is_training, _output_dtype(self.device))
        if is_training:
            blocks = _LookUp.apply(anchor, work.weights, self, work)
        else:
            blocks = self.look_up(work, False)
        return Rows(work, blocks)

    def _forward_of_program(self, inputs, anchor, is_training, is_frozen):
        """What torch.compile sees of a forward. When the program runs, the operators do the rest
        of it, with the methods below."""
        self._check_anchor(anchor, is_training)
        if is_training and not self._is_scaler_known:
            _warn_of_half_precision()
        keys = self._read(inputs)
        layout = [self._layout[name] for name in keys.features]
        work = Work(Layout(keys.features, [dim for _, dim, _ in layout],
                           [is_pooled for _, _, is_pooled in layout]), keys)
        weights = keys.weights
        need_gradients = is_training and weights is not None and weights.requires_grad
        dtype = _output_dtype(self.device)
        look_up = torch.ops.hps_train.look_up(
            self.number, keys.values, keys.offsets, None if weights is None else weights.detach(),
            [number for number, _, _ in layout], keys.bag_counts(), keys._is_weighted,
            is_training, is_frozen, need_gradients, dtype)
        blocks = torch.ops.hps_train.rows(
            look_up, anchor if is_training else self.zero, weights if need_gradients else None,
            [height for height, _ in work.shapes], [width for _, width in work.shapes], dtype)
        return Rows(work, blocks)

    def _check_anchor(self, anchor, is_training):
        if is_training and anchor is not self._updates.anchor:
            raise RuntimeError("an EmbeddingCollection can't be trained with other parameters, as "
                               "torch.func.functional_call gives it: its rows are not in its "
                               "parameters")

    def _read(self, inputs):
        is_packed = isinstance(inputs, Keys)
        if not is_packed and not isinstance(inputs, collections.abc.Mapping):
            raise TypeError("expected {feature: keys} or Keys, not "
                            f"{type(inputs).__name__}; for a KeyedJaggedTensor, pass "
                            "Keys.from_kjt(jagged)")
        names = inputs.features if is_packed else tuple(inputs)
        if torch.compiler.is_compiling() or names not in self._calls:
            self._check_names(names)
        if not is_packed:
            return pack(inputs, self._describe, self.device)
        self._check_device(inputs)
        return inputs

    def _check_device(self, keys):
        if keys.values.device != self.device:
            raise ValueError(f"keys of the features {list(keys.features)} are on "
                             f"{place_of(keys.values.device)}, but the tables are on "
                             f"{place_of(self.device)}; pass keys.to('{self.device}')")

    def _check_names(self, names):
        for name in names:
            if name not in self._layout:
                raise KeyError(f"no table has the feature {name!r}; there are "
                               f"{list(self._layout)}")

    def _call(self, names):
        call = self._calls.get(names)
        if call is None:
            call = self._calls[names] = Call(names, self._all_features)
        return call

    def _describe(self, name):
        return f"feature {name!r} of table {self._features[name][2].name!r}"

    def check_frozen(self, is_training, is_frozen):
        """Whether a program may train, or is to leave frozen tables alone, was decided when it was
        compiled. PyTorch does not see that `requires_grad` has changed since."""
        requires_grad = self._updates.anchor.requires_grad
        if is_training and not requires_grad or is_frozen and requires_grad:
            raise RuntimeError(
                "requires_grad of the EmbeddingCollection's parameter has changed since this "
                "program was compiled; call torch.compiler.reset() after such a change")

    def keys_of(self, numbers, values, offsets, weights, bag_counts, is_weighted):
        """`Keys` of the features with these numbers."""
        names = list(self._layout)
        if not all(0 <= number < len(names) for number in numbers):
            raise ValueError(f"features must be numbers from 0 to {len(names) - 1}, not {numbers}")
        keys = Keys([names[number] for number in numbers], values, offsets, weights,
                    _bag_counts=bag_counts)
        self._check_device(keys)
        if len(is_weighted) not in (0, len(numbers)):
            raise ValueError(f"is_weighted must have a value for each of {len(numbers)} features, "
                             f"or none, not {len(is_weighted)}")
        keys._is_weighted = is_weighted
        return keys

    def begin(self, read, is_training, dtype, weights_need_gradients=None):
        """Returns the `Work` of the keys that `read()` returns. If anything fails, `read` included,
        the other ranks are told. `dtype`: of the outputs. `weights_need_gradients`: None: as the
        weights say."""
        if is_training and not self._is_scaler_known:
            self._is_scaler_known = _warn_of_half_precision()
        try:
            keys = read()
            call, weights = self._call(keys.features), keys.weights
            if weights_need_gradients is None:
                weights_need_gradients = weights is not None and weights.requires_grad
            if not weights_need_gradients or not is_training:
                return Work(call, keys, dtype)
            keys = keys.with_rows_of_weighted(hidden)
            work = Work(self._call(keys.features), keys, dtype)
            work.weights, work.shown = weights, len(call.names)
            return work
        except Exception:
            self._engine.refuse(is_training)
            raise

    def look_up(self, work, is_training):
        """The blocks of the output."""
        if is_training:
            self._updates.before_forward()
            self._engine.steps += 1
        blocks = self._engine.forward(work, is_training)
        shown = len(blocks) - (len(work.call.names) - work.shown)
        work.hidden_blocks = blocks[shown:]
        return [block.to(work.dtype) for block in blocks[:shown]]

    def take_gradients(self, work, gradients):
        """Takes the gradients of the blocks. Returns those of the weights, if they need any."""
        weights = None
        if work.weights is not None:
            with self._engine.telling():
                weights = work.weight_gradients(gradients)
        self._updates.take(work, [*gradients, *[None] * len(work.hidden_blocks)])
        return weights


def _output_dtype(device):
    """That of autocast where it is on. A program has the one that it was compiled with; PyTorch
    compiles it again for another."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return torch.float32


@torch.compiler.assume_constant_result
def _warn_of_half_precision():
    """Warns if autocast is on with the type that needs a GradScaler, and returns whether it is. A
    program calls this while it is compiled: PyTorch turns autocast off while it runs."""
    is_on = any(torch.is_autocast_enabled(device) and
                torch.get_autocast_dtype(device) is torch.float16 for device in ("cuda", "cpu"))
    if is_on:
        warnings.warn("float16 under autocast needs a GradScaler, and rows that are updated in "
                      'backward would be updated with scaled gradients; make the collection '
                      'with update="step"', stacklevel=2)
    return is_on
