"""What a look-up returns: the rows of every feature."""

import collections.abc
import itertools

import torch

from hps.train._keys import plain
from hps.train._table import DTYPE_NUMBERS, POOLINGS


class Layout:
    """How the outputs of certain features lie in memory, as far as it is the same in each step."""

    def __init__(self, names, dims, is_pooled):
        self.names, self.dims, self.is_pooled = names, dims, is_pooled
        self.places = {name: i for i, name in enumerate(names)}
        self.pooled = [i for i, each in enumerate(is_pooled) if each]
        self.width = sum(dims[i] for i in self.pooled)  # of all pooled features together
        self.columns = [0]  # where pooled features begin
        for dim, each in zip(dims, is_pooled):
            self.columns.append(self.columns[-1] + dim * each)
        # The blocks of the usual outputs; see Work.
        self.blocks = [0 if each else bool(self.pooled) + i - sum(is_pooled[:i])
                       for i, each in enumerate(is_pooled)]


class Call(Layout):
    """What the engine needs besides for a look-up of these features."""

    def __init__(self, names, features):
        """`features`: {name: (number on all ranks, Feature, Table)}."""
        chosen = [features[name] for name in names]
        super().__init__(names, [table.dim for _, _, table in chosen],
                         [feature.pooling != "none" for _, feature, _ in chosen])
        self.tables = list({table.name: table for _, _, table in chosen}.values())
        numbers = {table.name: i for i, table in enumerate(self.tables)}
        self.features = [(feature.name, number, numbers[table.name], POOLINGS[feature.pooling])
                         for number, feature, table in chosen]
        self.feature_tables = [numbers[table.name] for _, _, table in chosen]
        self.free_steps = []  # steps of the engine that no look-up uses


_HIDDEN = object()


def hidden(name):
    """The name of the feature that looks up the rows of the keys of a weighted feature, one for
    each key, for the gradients of the weights. No caller can give such a name."""
    return _HIDDEN, name


class Work:
    """One look-up, from its forward to its update. `shapes`: of the tensors of its outputs.

    If all pooled features have the same number of bags, as usual, the first block is [batch,
    columns] and has their outputs side by side. Otherwise each of them has a block of its own, as
    every feature with the pooling "none" has.

    `dtype`: of the outputs and their gradients. `engine_dtype`: what the engine writes and reads;
    that of the CPU has float32.
    """

    def __init__(self, call, keys, dtype=torch.float32):
        self.call, self.keys, self.dtype = call, keys, dtype
        self.engine_dtype = dtype if keys.values.is_cuda else torch.float32
        self.step = None  # the engine's
        # Of the features in the first block: (the backward pass, their gradients).
        self.column_gradients = None
        self.gradients = None  # places of gradients; see `places`
        self.weights = None  # of the keys, if they need gradients
        self.hidden_blocks = []  # of hidden features, which come last
        self.shown = len(call.names)  # features that are not hidden
        # Of several ranks: the number of the call, the received sums, whether they are allowed, and
        # the learning rates.
        self.call_number = self.sums = self.is_allowed = self.rates = None
        self.kept = None  # the tensors with these gradients, of columns or of blocks:
        self.is_by_column = False
        self.memory = self.stream = None  # of a GPU: the memory that the step uses, and its stream
        if len(keys._bag_counts) == 1 and len(call.pooled) == len(call.names):
            self.is_joined, self.blocks = True, call.blocks
            self.shapes = [(keys._bag_counts[0], call.width)]
            return
        counts = keys.bag_counts()
        pooled = [counts[i] for i in call.pooled]
        self.is_joined = len(pooled) > 0 and pooled.count(pooled[0]) == len(pooled)
        self.blocks = call.blocks if self.is_joined or not pooled else list(range(len(counts)))
        self.shapes = [(pooled[0], call.width)] if self.is_joined else []
        key_counts = None if all(call.is_pooled) else keys.key_counts()
        for i, is_pooled in enumerate(call.is_pooled):
            if is_pooled and self.is_joined:
                continue
            self.shapes.append((counts[i] if is_pooled else key_counts[i], call.dims[i]))

    def release(self):
        """Called when the rows have been updated, or their sums. The output may live on."""
        self.call.free_steps.append(self.step)
        self.step = self.column_gradients = self.gradients = self.kept = self.sums = None
        self.memory = None
        self.hidden_blocks = []

    def new_blocks(self):
        device = self.keys.values.device
        return [torch.empty(shape, dtype=self.engine_dtype, device=device)
                for shape in self.shapes]

    def places(self, blocks):
        """Where the rows of each feature lie: (address, elements from one row to the next). One
        place: that of the first feature; those of the others are side by side."""
        bases = [(0, 0) if block is None else (block.data_ptr(), block.stride(0))
                 for block in blocks]
        if self.is_joined and len(blocks) == 1:
            return bases
        found = []
        for block, column, is_pooled in zip(self.blocks, self.call.columns, self.call.is_pooled):
            base, stride = bases[block]
            is_column = is_pooled and self.is_joined and base
            found.append((base + self.engine_dtype.itemsize * column if is_column else base,
                          stride))
        return found

    def take_gradients(self, block_gradients):
        """Keeps the gradients of the blocks, and those of columns that came by themselves."""
        columns = self._columns_of_pass()
        if columns is not None and block_gradients[0] is None and len(block_gradients) == 1:
            self._keep(columns, is_by_column=True)
            return
        if columns is not None:
            if block_gradients[0] is not None:  # the sum of both is not one of the outputs' type
                self.engine_dtype = torch.float32
            block_gradients = [self._joined(columns, block_gradients[0]), *block_gradients[1:]]
        self._keep(block_gradients, is_by_column=False)

    def _keep(self, gradients, is_by_column):
        self.is_by_column = is_by_column
        self.kept = [None if each is None else _rows_of(each, self.engine_dtype)
                     for each in gradients]
        if not is_by_column:
            self.gradients = self.places(self.kept)
            return
        self.gradients = [(0, 0) if each is None else (each.data_ptr(), each.stride(0))
                          for each in self.kept]

    def widen(self):
        """Makes the gradients float32, to go with those of other look-ups."""
        self.engine_dtype = torch.float32
        self._keep(self.kept, self.is_by_column)

    @property
    def typed_gradients(self):
        """The places of the gradients, with their type as the engine of a GPU takes it."""
        return self.gradients, DTYPE_NUMBERS[self.engine_dtype]

    def feature_gradients(self):
        """The place of the gradients of each feature."""
        if len(self.gradients) == len(self.call.names):
            return self.gradients
        (base, stride), = self.gradients
        return [(base + self.engine_dtype.itemsize * column if base else 0, stride)
                for column in self.call.columns[:-1]]

    def weight_gradients(self, block_gradients):
        """Those of the weights: for each key, the product of its row and of the gradient of its
        bag."""
        names, keys = self.call.names, self.keys
        ends = list(itertools.accumulate(keys.key_counts(), initial=0))
        bags = list(itertools.accumulate(keys.bag_counts(), initial=0))
        found = torch.zeros(self.weights.numel(), dtype=torch.float32, device=self.weights.device)
        for name, rows in zip(names[self.shown:], self.hidden_blocks):
            i = self.call.places[name[1]]
            gradient = self._gradient_of(i, block_gradients)
            if gradient is None:
                continue
            if keys.offsets is not None:
                lengths = keys.offsets[bags[i]:bags[i + 1] + 1].diff()
                gradient = gradient.repeat_interleave(lengths, 0)
            found[ends[i]:ends[i + 1]] = (gradient.float() * rows.float()).sum(1)
        return found

    def _gradient_of(self, i, block_gradients):
        """That of a pooled feature's output; None: the loss does not depend on it."""
        block = block_gradients[self.blocks[i]]
        if not self.is_joined:
            return block
        parts = [] if block is None else [block[:, self.call.columns[i]:self.call.columns[i + 1]]]
        if (columns := self._columns_of_pass()) is not None:
            parts.append(columns[self.call.pooled.index(i)])
        parts = [part for part in parts if part is not None]
        return sum(part.float() for part in parts) if parts else None

    def _columns_of_pass(self):
        number, columns = self.column_gradients or (None, None)
        return columns if number == torch._C._current_graph_task_id() else None

    def _joined(self, columns, block):
        """The gradients of columns side by side, plus that of the whole block if there is one."""
        rows = self.shapes[0][0]
        joined = torch.cat([
            torch.zeros(rows, self.call.dims[i], dtype=self.dtype, device=self.keys.values.device)
            if each is None else each for i, each in zip(self.call.pooled, columns)], 1)
        return joined if block is None else joined.float() + block.float()


def _rows_of(gradient, dtype):
    """The gradient as rows of this type, each without gaps."""
    if gradient.dtype is dtype and gradient.stride(1) == 1 and not gradient.is_neg():
        return gradient
    return plain(gradient.to(dtype))


class _Columns(torch.autograd.Function):
    """The outputs of the features in a block. Their gradients go to the look-up where they are:
    PyTorch's own split would copy all of them into one tensor first."""

    @staticmethod
    def forward(ctx, block, work, dims):
        ctx.work = work
        ctx.set_materialize_grads(False)
        return block.split(dims, 1)

    @staticmethod
    @torch.compiler.disable
    def backward(ctx, *gradients):
        ctx.work.column_gradients = torch._C._current_graph_task_id(), gradients
        return None, None, None


class Rows(collections.abc.Mapping):
    """The output of an `EmbeddingCollection`: rows[feature], `tensor` and `stack()` are views of
    the same memory. It is a mapping {feature: tensor} in the order of the keys.

    A pooled feature has [batch, dim]; one with the pooling "none" a row for each key, [n, dim], or
    [batch, k, dim] where its keys were [batch, k].

    They are float32; where autocast is on, they have its type, and so have their gradients.

    No operation may change these tensors in place. Hooks and `retain_grad` of `tensor` see the
    gradients of `tensor` and `stack()` only, not those of rows[feature].
    """

    __slots__ = ("_blocks", "_columns", "_work")

    def __init__(self, work, blocks):
        self._work, self._blocks = work, blocks
        self._columns = None

    @property
    def tensor(self):
        """The outputs of all pooled features side by side, [batch, columns], in the order of the
        features."""
        if not self._work.is_joined:
            call, counts = self._work.call, self._work.keys.bag_counts()
            found = {call.names[i]: counts[i] for i in call.pooled}
            raise ValueError(f"pooled features have different numbers of bags, {found}, so that "
                             "they have no common tensor" if found else
                             'no feature is pooled, so that there is no common tensor; use '
                             'rows[feature]')
        return self._blocks[0]

    def stack(self):
        """The outputs of all pooled features, [batch, features, dim], in the order of the features.
        Their tables must have one width."""
        call, tensor = self._work.call, self.tensor
        dims = {call.names[i]: call.dims[i] for i in call.pooled}
        if len(set(dims.values())) != 1:
            raise ValueError(f"the features have different widths: {dims}")
        return tensor.view(tensor.shape[0], len(dims), -1 if tensor.numel() else
                           call.dims[call.pooled[0]])

    def __getitem__(self, name):
        work = self._work
        if name not in work.call.places:
            raise KeyError(f"no feature {name!r} was looked up; there are {list(self)}")
        i = work.call.places[name]
        block = self._blocks[work.blocks[i]]
        if work.call.is_pooled[i]:
            return self._column(i) if work.is_joined else block
        width = None if work.keys._widths is None else work.keys._widths[i]
        return block if width is None else block.view(work.keys.bag_counts()[i], width, -1 if
                                                      block.numel() else work.call.dims[i])

    def _column(self, i):
        pooled, block = self._work.call.pooled, self._blocks[0]
        if len(pooled) == 1:
            return block
        dims = [self._work.call.dims[each] for each in pooled]
        if not torch.is_grad_enabled():  # these have no gradients later, either
            return block.split(dims, 1)[pooled.index(i)]
        if self._columns is None:
            # In a program, and after it, this `Work` is not the engine's: `_Columns` could not give
            # it the gradients.
            is_engines = not torch.compiler.is_compiling() and self._work.step is not None
            split = (_Columns.apply(block, self._work, dims) if is_engines else
                     block.split(dims, 1))
            self._columns = dict(zip(pooled, split))
        return self._columns[i]

    def __iter__(self):
        return iter(self._work.call.names[:self._work.shown])

    def __len__(self):
        return self._work.shown

    # Views of a dict, which torch.compile understands where it does not those of a Mapping.

    def keys(self):
        return dict.fromkeys(self).keys()

    def values(self):
        return {name: self[name] for name in self}.values()

    def items(self):
        return {name: self[name] for name in self}.items()

    def __repr__(self):
        return f"Rows({ {name: list(rows.shape) for name, rows in self.items()} })"
