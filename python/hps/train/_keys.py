"""The keys of a batch, those of all features in one tensor."""

import functools
import itertools

import torch

# Integers that every int64 holds.
_NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values in memory as the engine reads it: without gaps, and not as their negatives."""
    return tensor.contiguous().resolve_neg()


def place_of(device):
    """What messages call a device."""
    return "the CPU" if device.type == "cpu" else str(device)


class _Owner:
    """Says on which device the tensors of keys must be, and whose device that is: `name`, for
    messages."""

    def __init__(self, name, device):
        self.name, self.device = name, device

    def check(self, tensor, what, part):
        if tensor.device != self.device:
            way = "cpu()" if self.device.type == "cpu" else f"to('{self.device}')"
            raise ValueError(f"{what()}: {part} are on {place_of(tensor.device)}, but {self.name} "
                             f"are on {place_of(self.device)}; pass {part}.{way}")


def _check_kind_of_device(tensor, what, part):
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what()}: {part} are on {tensor.device}, but the tables are on the CPU "
                         f"or on a GPU; pass {part}.cpu()")


def _read(value, dtype, what, part: str, owner: _Owner | None) -> torch.Tensor:
    """`value` as a plain tensor, which must be where `owner` is. Raises TypeError or ValueError,
    which begins with `what()`."""
    if isinstance(value, torch.Tensor):
        tensor = value
    else:
        try:
            tensor = torch.as_tensor(value, device="cpu")
        except (RuntimeError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{what()}: {part} can't be made a tensor of {dtype}: {error}"
                             ) from error
        if not tensor.numel():
            tensor = tensor.to(dtype)
    if owner is None:
        _check_kind_of_device(tensor, what, part)
    else:
        owner.check(tensor, what, part)
    if dtype == torch.int64 and tensor.dtype in _NARROW:
        tensor = tensor.to(torch.int64)
    if dtype == torch.int64 and tensor.dtype == torch.uint64:
        tensor = tensor.view(torch.int64)
    if tensor.dtype != dtype:
        raise TypeError(f"{what()}: {part} must be {dtype}, not {tensor.dtype}")
    return plain(tensor)


class Keys:
    """The keys of all features of a batch in one tensor: the bags of the first feature, one for
    each sample, then those of the second, and so on. This is the layout of TorchRec's
    KeyedJaggedTensor, and the fastest input of an `EmbeddingCollection`.

    features  the names of the features
    values    integers [n]. Values of int64 are not copied
    offsets   integers [features * batch + 1]: bag b of feature f has the keys from
              offsets[f * batch + b] to offsets[f * batch + b + 1]; None: every key is a bag
    weights   float32 [n]: factors of the rows, for features with the pooling "sum"; None: 1. They
              may require gradients

    All tensors are on one device, that of the tables of the collection that gets them: the CPU, or
    a GPU. Lists and NumPy arrays become tensors of the CPU.

    Raises TypeError or ValueError for tensors of a wrong type, device or size. Offsets that do not
    ascend are found when the keys are looked up; on a GPU, a later call raises the error.
    """

    # _bag_counts: of each feature, or one number for all of them.
    __slots__ = ("_bag_counts", "_features", "_is_weighted", "_key_counts", "_offsets", "_values",
                 "_weights", "_widths")

    def __init__(self, features, values, offsets=None, weights=None, *, _bag_counts=None):
        self._features = tuple(features)
        if len(set(self._features)) != len(self._features) or not self._features:
            raise ValueError(f"keys: features must be one or more different names, not "
                             f"{list(self._features)}")
        self._values = _read(values, torch.int64, self._what, "keys", None)
        owner = _Owner("the keys", self._values.device)
        if self._values.dim() != 1:
            raise ValueError(f"{self._what()}: values must be [n], not {list(self._values.shape)}")
        self._offsets = None if offsets is None else _read(offsets, torch.int64, self._what,
                                                           "offsets", owner)
        bags = self._values.numel() if offsets is None else self._offsets.numel() - 1
        if offsets is not None and (self._offsets.dim() != 1 or bags < 0):
            raise ValueError(f"{self._what()}: offsets must be [features * batch + 1], not "
                             f"{list(self._offsets.shape)}")
        if _bag_counts is None and bags % len(self._features):
            raise ValueError(f"{self._what()}: {bags} {'keys' if offsets is None else 'bags'} are "
                             f"not as many for each of {len(self._features)} features")
        if _bag_counts is not None and (min(_bag_counts) < 0 or sum(_bag_counts) != bags or
                                        len(_bag_counts) != len(self._features)):
            raise ValueError(f"{self._what()}: {bags} bags, but the features have {_bag_counts}")
        self._weights = None if weights is None else _read(weights, torch.float32, self._what,
                                                           "weights", owner)
        if weights is not None and self._weights.shape != self._values.shape:
            raise ValueError(f"{self._what()}: {self._weights.numel()} weights for "
                             f"{self._values.numel()} keys")
        self._bag_counts = [bags // len(self._features)] if _bag_counts is None else (
            _short(_bag_counts))
        self._is_weighted = []  # of each feature; empty: all, if there are weights
        self._widths = None  # of each feature: the length of all its bags; None: not known
        self._key_counts = None  # of each feature; None: only the offsets tell

    # Read-only, because the engine relies on the checks above.
    features = property(lambda self: self._features)
    values = property(lambda self: self._values)
    offsets = property(lambda self: self._offsets)
    weights = property(lambda self: self._weights)

    def _what(self):
        return f"keys of the features {list(self.features)}"

    @classmethod
    def from_dict(cls, inputs):
        """From {feature: keys}, where keys are [batch], one for each sample; [batch, k], a bag of k
        keys in each line; (keys [n], offsets [batch + 1]), ragged bags; (keys, offsets or None,
        weights [n]), weighted ones."""
        return pack(inputs, lambda name: f"feature {name!r}")

    @classmethod
    def from_kjt(cls, jagged):
        """From a torchrec KeyedJaggedTensor."""
        counts = list(jagged.stride_per_key()) if jagged.variable_stride_per_key() else None
        return cls(jagged.keys(), jagged.values(), jagged.offsets(), jagged.weights_or_none(),
                   _bag_counts=counts)

    @classmethod
    def from_nested(cls, inputs):
        """From {feature: tensor [batch, j]} of torch.nested with the layout torch.jagged."""
        parts = {}
        for name, nested in inputs.items():
            if not nested.is_nested or nested.layout != torch.jagged or nested.dim() != 2:
                raise TypeError(f"feature {name!r}: expected a nested tensor [batch, j] with the "
                                "layout torch.jagged")
            if nested.lengths() is not None:
                raise ValueError(f"feature {name!r}: the nested tensor has gaps between its bags; "
                                 "pass tensor.contiguous()")
            parts[name] = (nested.values(), nested.offsets())
        return cls.from_dict(parts)

    def to(self, device, non_blocking=False):
        """These keys with their tensors on `device`. `non_blocking`: as that of `Tensor.to`."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self):
        """These keys in page-locked memory, from which `to(device, non_blocking=True)` copies
        while the program goes on. A DataLoader with pin_memory=True calls it."""
        return self._mapped(torch.Tensor.pin_memory)

    def _mapped(self, function):
        keys = Keys.__new__(Keys)
        for name in self.__slots__:
            setattr(keys, name, getattr(self, name))
        for name in ("_values", "_offsets", "_weights"):
            tensor = getattr(self, name)
            setattr(keys, name, None if tensor is None else function(tensor))
        return keys

    def with_rows_of_weighted(self, name_of):
        """Keys that also look up the row of each key of the weighted features, as features of their
        own. `name_of(feature)` is the name of such a feature."""
        weighted = self._is_weighted or [True] * len(self.features)
        chosen = [i for i, is_weighted in enumerate(weighted) if is_weighted]
        ends = list(itertools.accumulate(self.key_counts(), initial=0))
        keys = Keys.__new__(Keys)
        keys._features = (*self.features, *(name_of(self.features[i]) for i in chosen))
        keys._values = torch.cat([self.values, *(self.values[ends[i]:ends[i + 1]] for i in chosen)])
        counts = [ends[i + 1] - ends[i] for i in chosen]
        keys._bag_counts = [*self.bag_counts(), *counts]
        keys._offsets = None if self.offsets is None else torch.cat(
            [self.offsets, torch.arange(ends[-1] + 1, keys.values.numel() + 1,
                                         device=self.values.device)])
        keys._weights = torch.cat([self._weights.detach(), _ones(sum(counts), self.values.device)])
        keys._is_weighted = weighted + [False] * len(chosen)
        keys._widths = None if self._widths is None else self._widths + [None] * len(chosen)
        keys._key_counts = self.key_counts() + counts
        return keys

    def bag_counts(self):
        """The number of bags of each feature."""
        counts = self._bag_counts
        return counts * len(self.features) if len(counts) == 1 else counts

    def key_counts(self):
        """The number of keys of each feature. Waits for a GPU, if only its offsets tell it."""
        if self._offsets is None:
            return self.bag_counts()
        if self._key_counts is not None:
            return self._key_counts
        found = self._offsets[list(itertools.accumulate(self.bag_counts(), initial=0))]
        if torch.compiler.is_compiling():  # the engine checks the offsets
            counts = found.diff().clamp(min=0).tolist()
            for count in counts:
                torch._check(count >= 0)
            return counts
        found = found.tolist()
        counts = [end - begin for begin, end in itertools.pairwise(found)]
        if found[0] != 0 or found[-1] != self._values.numel() or min(counts) < 0:
            at = next((i for i, count in enumerate(counts) if count < 0), 0)
            raise ValueError(f"feature {self._features[at]!r}: offsets must ascend from 0 to the "
                             f"number of keys, {self._values.numel()}; those at the ends of the "
                             f"features are {found}")
        return counts

    def arguments(self, device):
        """What the engine of `device` reads, by address; this object keeps the memory alive."""
        return (_array(self._values, torch.int64, device),
                _array(self._offsets, torch.int64, device),
                _array(self._weights, torch.float32, device), self._bag_counts, self._is_weighted)

    def __repr__(self):
        return f"Keys(features={list(self.features)}, {self.values.numel()} keys)"


def _array(tensor, dtype, device):
    if tensor is None:
        return 0, 0
    size = tensor.numel()
    end = (tensor.storage_offset() + size) * tensor.element_size()
    if tensor.dtype is not dtype or tensor.device != device or not tensor.is_contiguous() or (
            tensor.untyped_storage().nbytes() < end):
        raise ValueError("keys: a tensor of Keys was changed to another type, size or memory after "
                         "the Keys were made")
    return tensor.data_ptr(), size


def pack(inputs, describe, device=None):
    """Keys from a dict, see Keys.from_dict. `describe(name)` begins the messages of errors.
    `device`: that of the tables; None: the tensors may be on any, all on the same."""
    if not inputs:
        raise ValueError("keys: no feature is given")
    place = device or getattr(next(iter(inputs.values())), "device", None)
    if all(type(value) is torch.Tensor and value.dtype is torch.int64 and value.dim() == 1
           and value.device == place for value in inputs.values()):  # the usual case, in less time
        tensors = list(inputs.values())
        keys = Keys.__new__(Keys)
        keys._features, keys._is_weighted = tuple(inputs), []
        keys._widths = keys._key_counts = None
        keys._values = plain(torch.cat(tensors) if len(tensors) > 1 else tensors[0])
        keys._bag_counts = _short([tensor.numel() for tensor in tensors])
        keys._offsets = keys._weights = None
        return keys
    parts = _parts(inputs, describe, None if device is None else _Owner("the tables", device))
    values = [part[0] for part in parts]
    keys = Keys.__new__(Keys)
    keys._features = tuple(inputs)
    keys._values = torch.cat(values) if len(values) > 1 else values[0]
    keys._bag_counts = _short([part[3] for part in parts])
    keys._key_counts = [part.numel() for part in values]
    widths = [part[4] for part in parts]
    keys._widths = widths if any(width is not None for width in widths) else None
    keys._offsets = keys._weights = None
    if any(part[1] is not None for part in parts):
        keys._offsets = _joined_offsets(parts)
    weighted = [part[2] is not None for part in parts]
    keys._is_weighted = [] if all(weighted) else weighted
    if any(weighted):
        keys._weights = torch.cat([_ones(part[0].numel(), part[0].device) if part[2] is None else
                                   part[2] for part in parts])
    return keys


def joined(parts):
    """The keys of several look-ups as those of one. Nothing is read from their tensors."""
    keys = Keys.__new__(Keys)
    keys._features = tuple(itertools.chain(*(part.features for part in parts)))
    keys._values = torch.cat([part.values for part in parts])
    keys._bag_counts = list(itertools.chain(*(part.bag_counts() for part in parts)))
    keys._widths = keys._key_counts = keys._offsets = keys._weights = None
    keys._is_weighted = []
    if any(part.offsets is not None for part in parts):
        keys._offsets = _joined_offsets(
            [(part.values, part.offsets, None, part.values.numel(), None) for part in parts])
    if any(part.weights is not None for part in parts):
        keys._weights = torch.cat([
            _ones(part.values.numel(), part.values.device) if part.weights is None else
            part.weights.detach() for part in parts])
        for part in parts:
            keys._is_weighted += part._is_weighted or (
                [part.weights is not None] * len(part.features))
    return keys


def _ones(count, device):
    return torch.ones(count, dtype=torch.float32, device=device)


def _short(counts):
    """One number, if all are equal."""
    return counts[:1] if counts.count(counts[0]) == len(counts) else counts


def _joined_offsets(parts):
    device = parts[0][0].device
    pieces, first = [torch.zeros(1, dtype=torch.int64, device=device)], 0
    for values, offsets, _, bags, _ in parts:
        if offsets is None:
            pieces.append(torch.arange(first + 1, first + bags + 1, device=device))
        else:
            pieces.append(offsets[1:] + first)
        first += values.numel()
    return torch.cat(pieces)


def _parts(inputs, describe, owner):
    found = []
    for name, value in inputs.items():
        found.append(_part(value, functools.partial(describe, name), owner))
        owner = owner or _Owner(f"the keys of feature {name!r}", found[0][0].device)
    return found


def _part(value, what, owner):
    """(keys [n], offsets or None, weights or None, number of bags, their length or None)."""
    pieces = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(pieces) <= 3:
        raise TypeError(f"{what()}: give keys, (keys, offsets) or (keys, offsets, weights)")
    keys = _read(pieces[0], torch.int64, what, "keys", owner)
    owner = owner or _Owner("the keys", keys.device)
    weights = None
    if len(pieces) == 3 and pieces[2] is not None:
        weights = _read(pieces[2], torch.float32, what, "weights", owner)
        if weights.shape not in (keys.shape, (keys.numel(),)):
            raise ValueError(f"{what()}: {weights.numel()} weights for {keys.numel()} keys: "
                             f"{list(weights.shape)} for {list(keys.shape)}")
        weights = weights.view(-1)
    if len(pieces) > 1 and pieces[1] is not None:
        offsets = _read(pieces[1], torch.int64, what, "offsets", owner)
        if keys.dim() != 1 or offsets.dim() != 1 or offsets.numel() == 0:
            raise ValueError(f"{what()}: keys [n] and offsets [batch + 1] expected")
        if (torch.compiler.is_compiling() or offsets.is_cuda) and (
                offsets.numel() > 1 or not keys.numel()):
            # A program can't branch on values, and those of a GPU would have to be waited for; the
            # engine refuses an offset of -1.
            is_right = (offsets[0] == 0) & (offsets[-1] == keys.numel())
            offsets = torch.where(is_right, offsets, -1)
        elif offsets.numel() == 1 and keys.numel() or (
                offsets[0] != 0 or offsets[-1] != keys.numel()):
            raise ValueError(f"{what()}: offsets must ascend from 0 to the number of keys, "
                             f"{keys.numel()}, not from {offsets[0]} to {offsets[-1]}")
        return keys, offsets, weights, offsets.numel() - 1, None
    if keys.dim() == 1:
        return keys, None, weights, keys.numel(), None
    if keys.dim() != 2:
        raise ValueError(f"{what()}: keys must be [batch] or [batch, k], not {list(keys.shape)}")
    batch, k = keys.shape
    offsets = torch.arange(batch + 1, dtype=torch.int64, device=keys.device) * k
    return keys.view(-1), offsets, weights, batch, k
