"""Arrays of the frameworks: what comes in, and arrays of the same kind to go out.

A `Kind` knows one framework. The extension takes NumPy arrays and everything with DLPack as they
are; of a torch tensor it gets the address, which takes a tenth of the time.
"""

from __future__ import annotations

import math
import operator
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hps._errors import FailedPreconditionError, InvalidArgumentError

__all__ = ["HostKeys", "Kind", "Memory", "Rows", "Statuses", "check_apart", "kind_of",
           "plain_keys", "tell_written"]

# Keys whose rows are NumPy arrays, for the types of lookups.
HostKeys: TypeAlias = "np.ndarray | Sequence[int] | int"
Rows: TypeAlias = npt.NDArray[np.float32]
Statuses: TypeAlias = npt.NDArray[np.uint8]

# Smaller arrays cost little to make, larger ones are not kept.
_KEPT_ELEMENTS_MIN = 1 << 14
_KEPT_ELEMENTS_MAX = 1 << 24


class Memory(threading.local):
    """Memory for the rows of one lookup after the other. New memory costs a page fault for every
    4 KiB; so that of the last answer is used again, once no array of it is left."""

    def __init__(self) -> None:
        self._kept: Any = None
        self._references_when_free = 0
        self._kept = np.empty(0, np.float32)
        self._references_when_free = self._references()

    def take(self, count: int) -> np.ndarray:
        """`count` float32 elements."""
        if not _KEPT_ELEMENTS_MIN <= count <= _KEPT_ELEMENTS_MAX:
            return np.empty(count, np.float32)
        if self._kept.size < count or self._references() != self._references_when_free:
            self._kept = np.empty(count, np.float32)
        return self._kept[:count]

    def _references(self) -> int:
        """Those to the kept array; each array over its memory is one more."""
        return sys.getrefcount(self._kept)


def _argument(name: str, table: str) -> str:
    return f"{name} of table '{table}'" if table else name


_KEY_TYPES = ("int64", "uint64", "int32", "uint32", "int16", "uint16", "int8", "uint8")


def _check_type(found: str, expected: tuple[str, ...], argument: str) -> None:
    if found not in expected:
        text = "integers" if expected is _KEY_TYPES else expected[0]
        raise InvalidArgumentError(f"{argument}: expected {text}, found {found}")


def _check_contiguous(is_contiguous: bool, argument: str) -> None:
    if not is_contiguous:
        raise InvalidArgumentError(f"{argument}: not contiguous; pass an array that is")


class Kind:
    """NumPy, and everything that NumPy can see through DLPack or a buffer."""

    name = "numpy"
    type: type = np.ndarray

    def keys(self, keys: Any, name: str, table: str = "") -> Any:
        """`keys` as an array of this kind. `name` and `table` are for messages."""
        if isinstance(keys, np.ndarray):
            return keys
        argument = _argument(name, table)
        if isinstance(keys, (list, tuple, range, int)):
            return self._from_sequence(keys, argument)
        if hasattr(keys, "__dlpack__") or hasattr(keys, "__array_interface__"):
            try:
                return np.from_dlpack(keys) if hasattr(keys, "__dlpack__") else np.asarray(keys)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                raise InvalidArgumentError(f"{argument}: {error}") from error
        if hasattr(keys, "__array__"):  # pandas; whole numbers that may be missing are objects
            array = np.asarray(keys)
            return array if array.dtype.kind in "iu" else self._from_sequence(array.tolist(),
                                                                              argument)
        raise TypeError(f"{argument}: expected an array of keys, found {type(keys).__name__}")

    def check_keys(self, keys: Any, argument: str) -> None:
        """Refuses keys that a lookup can't take, as the extension does."""
        if isinstance(keys, np.ndarray):
            if keys.dtype.kind not in "iufcb" or not keys.dtype.isnative:
                raise TypeError(f"{argument}: expected an array of numbers in this machine's byte "
                                f"order, found one of {keys.dtype}")
            _check_type(str(keys.dtype), _KEY_TYPES, argument)

    def check_out(self, array: Any, table: str, shape: tuple) -> None:
        """Refuses memory that can't take rows of this shape."""
        found = getattr(array, "shape", None)
        if found == shape:
            return
        argument = _argument("out", table)
        if found is None:
            raise TypeError(f"{argument}: expected an array, found {type(array).__name__}")
        if tuple(found) != shape:
            raise InvalidArgumentError(f"{argument}: expected the shape {list(shape)}, found "
                                       f"{list(found)}")

    def check_memory(self, array: Any, table: str) -> None:
        """Refuses memory for rows that is not float32, contiguous and writeable."""
        argument = _argument("out", table)
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{argument}: expected an array of NumPy or a torch tensor, found "
                            f"{type(array).__name__}")
        _check_type(str(array.dtype), ("float32",), argument)
        _check_contiguous(array.flags.c_contiguous, argument)
        if not array.flags.writeable:
            raise InvalidArgumentError(f"{argument}: the array is read-only")

    def copy_to(self, out: Any, rows: np.ndarray) -> None:
        """Copies rows into `out`, for which `check_out` has passed."""
        np.copyto(out, rows)

    def changed(self, arrays: list) -> None:
        """Tells the framework that arrays of this kind were written."""

    @staticmethod
    def _from_sequence(keys: Any, argument: str) -> np.ndarray:
        if isinstance(keys, (list, tuple)) and not keys:
            return np.empty(0, np.int64)
        try:
            array = np.asarray(keys)
        except (OverflowError, ValueError) as error:
            raise InvalidArgumentError(f"{argument}: {error}") from error
        if array.dtype.kind not in "iu":
            raise InvalidArgumentError(f"{argument}: expected integers, found {array.dtype}")
        return array

    def read(self, keys: Any, table: str) -> tuple[Any, Any, tuple, int]:
        """Keys of a table: as the extension takes them, what keeps them alive, shape, count."""
        if type(keys) is not np.ndarray:
            keys = self.keys(keys, "keys", table)
        return keys, keys, keys.shape, keys.size

    def lookup(self, session: Any, plan: Any, keys: list) -> list | None:
        """The rows of keys of each table of a `Plan`, the quick way; None if keys have to be looked
        at more closely first, or are wrong."""
        if set(map(type, keys)) != {np.ndarray}:
            return None
        counts = [array.size for array in keys]
        total = sum(counts)
        dim = plan.dim
        if dim:
            rows = session._memory.take(total * dim)
        else:
            rows = session._memory.take(sum(map(operator.mul, counts, plan.dims)))
        session._session.lookup(plan.numbers, keys, (rows, None), None)
        shapes = {array.shape for array in keys}
        if dim and len(shapes) == 1:  # NumPy makes the parts itself, in less time
            return list(rows.reshape((len(keys), *shapes.pop(), dim)))
        return self.split(rows, [(*array.shape, dim) for array, dim in zip(keys, plan.dims)])

    def take_rows(self, memory: Memory, count: int) -> Any:
        """Room for `count` float32 elements of rows."""
        return memory.take(count)

    def rows_of(self, memory: Any) -> Any:
        """An array of this kind over the room of `take_rows`."""
        return memory

    def split(self, block: Any, shapes: list[tuple]) -> list:
        """The parts of one array for all tables, in these shapes, in their order."""
        parts, begin = [], 0
        for shape in shapes:
            end = begin + math.prod(shape)
            parts.append(block[begin:end].reshape(shape))
            begin = end
        return parts

    def empty_status(self, count: int) -> Any:
        """Memory for `count` statuses."""
        return np.empty(count, np.uint8)

    def memory(self, array: Any, name: str, table: str = "") -> Any:  # noqa: ARG002, torch's
        """`array` as the extension takes it."""
        return array

    # Of a kind in the memory of a device: its number, and the stream to work on.
    device: int | None = None

    def stream(self) -> int:
        raise NotImplementedError


def plain_keys(keys: Any, torch: Any) -> Any:
    """A tensor of keys as hps reads it: without gaps, and as 64 bits if they are narrower than what
    its level reads."""
    if not torch.compiler.is_compiling() and keys.is_neg():
        # A view that says that its memory has the negatives of its values.
        keys = keys.resolve_neg()
    dtype = keys.dtype
    if dtype is torch.int64:
        return keys.contiguous()
    is_integer = not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    if is_integer and dtype.itemsize < (8 if keys.is_cuda else 4):
        keys = keys.long()
    return keys.contiguous()


def _torch_operator() -> Any:
    """The module of the operator of hps; None with a PyTorch that is too old for it."""
    try:
        from hps import _torch
    except FailedPreconditionError:
        return None
    return _torch


class _Torch(Kind):
    """Tensors of PyTorch in host memory."""

    name = "torch"

    def __init__(self, torch: Any):
        self._torch = torch
        self._operator = _torch_operator()
        self._tensor = self.type = torch.Tensor
        self._place = torch.device("cpu")
        self._number = -1  # of the place, as torch counts
        self._int64 = torch.int64
        self._float32 = torch.float32
        self._is_negative = torch.Tensor.is_neg
        self._names = {torch.int64: "int64", torch.int32: "int32", torch.float32: "float32",
                       torch.float16: "float16", torch.bfloat16: "bfloat16",
                       torch.uint8: "uint8"}
        for name in ("uint32", "uint64"):
            if hasattr(torch, name):
                self._names[getattr(torch, name)] = name

    def keys(self, keys: Any, name: str, table: str = "") -> Any:
        if not isinstance(keys, self._tensor):
            raise TypeError(f"{_argument(name, table)}: expected a torch tensor as the other keys "
                            f"are, found {type(keys).__name__}")
        return plain_keys(keys, self._torch)

    def check_keys(self, keys: Any, argument: str) -> None:
        _check_type(self._name_of(keys), _KEY_TYPES, argument)

    def check_out(self, array: Any, table: str, shape: tuple) -> None:
        if (array.shape == shape and array.dtype is self._float32 and not array.requires_grad
                and not array.is_neg()):
            return
        super().check_out(array, table, shape)
        argument = _argument("out", table)
        if array.dtype is not self._float32:
            raise InvalidArgumentError(f"{argument}: expected float32, found "
                                       f"{self._name_of(array)}")
        if array.requires_grad:
            raise InvalidArgumentError(f"{argument}: requires a gradient, and rows have none; pass "
                                       "a tensor without, or its .data")
        if array.is_neg():
            raise InvalidArgumentError(f"{argument}: a view of the negatives of its memory; pass a "
                                       "tensor of its own")

    def check_memory(self, array: Any, table: str) -> None:
        _check_contiguous(array.is_contiguous(), _argument("out", table))

    def copy_to(self, out: Any, rows: np.ndarray) -> None:
        out.copy_(self._torch.from_numpy(rows))

    def changed(self, arrays: list) -> None:
        """Tells autograd that tensors were written, so that a backward pass that needs what they
        were raises an error instead of taking wrong values."""
        self._torch.autograd.graph.increment_version(arrays)

    def _name_of(self, tensor: Any) -> str:
        return self._names.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")

    def lookup(self, session: Any, plan: Any, keys: list) -> list | None:
        if self._operator is None:
            return None
        if self._torch.compiler.is_compiling():
            keys = [plain_keys(some, self._torch) for some in keys]
            return self._operator.lookup(keys, session._name, plan.text)
        try:
            if any(map(self._is_negative, keys)):
                return None
            block = self._operator.block_for(session._memory, keys, plan.dims)
            rows = self._operator.lookup_shared(keys, block, session._name, plan.text)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as raised:
            error = self._operator.error_of_operator(raised)
            if error is None or isinstance(error, (FailedPreconditionError,
                                                   InvalidArgumentError)):
                return None  # the other way has a message that names the argument
            raise error from None
        # With a tensor of another kind among the keys PyTorch may take another way.
        return rows if rows[0].device == self._place else None

    def rows_of(self, memory: np.ndarray) -> Any:
        return self._torch.from_numpy(memory)

    def read(self, keys: Any, table: str) -> tuple[Any, Any, tuple, int]:
        # Each property of a tensor costs a tenth of a microsecond, and 26 tables have 26 tensors.
        if (type(keys) is not self._tensor or keys.dtype is not self._int64
                or keys.get_device() != self._number or not keys.is_contiguous() or keys.is_neg()
                or (self._number < 0 and not keys.is_cpu)):  # "meta" is no device either
            keys = self.keys(keys, "keys", table)
            memory = self.memory(keys, "keys", table)
            _check_type(memory[2], _KEY_TYPES, _argument("keys", table))
            return memory, keys, keys.shape, keys.numel()
        count = keys.numel()
        shape = (count,) if keys.dim() == 1 else keys.shape
        return (keys.data_ptr(), count, "int64"), keys, shape, count

    def split(self, block: Any, shapes: list[tuple]) -> list:
        last = shapes[0][-1]
        if all(len(shape) == 2 and shape[1] == last for shape in shapes):
            return block.view(-1, last).split([shape[0] for shape in shapes])
        parts = block.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes)]

    def empty_status(self, count: int) -> Any:
        return self._torch.empty(count, dtype=self._torch.uint8)

    def memory(self, array: Any, name: str, table: str = "") -> Any:
        if not isinstance(array, self._tensor):
            return array
        if array.device != self._place:
            raise InvalidArgumentError(
                f"{_argument(name, table)}: expected a tensor on {self._place}, as the keys of the "
                f"first table are, found one on {array.device}")
        _check_contiguous(array.is_contiguous(), _argument(name, table))
        return array.data_ptr(), array.numel(), self._name_of(array)


class _TorchOnDevice(_Torch):
    """Tensors of PyTorch in the memory of a GPU. All work is put on torch's current stream."""

    def __init__(self, torch: Any, place: Any):
        super().__init__(torch)
        self._place = place
        self._number = self.device = place.index

    def take_rows(self, memory: Memory, count: int) -> Any:  # noqa: ARG002, the host's
        return self._torch.empty(count, dtype=self._torch.float32, device=self._place)

    def rows_of(self, memory: Any) -> Any:
        return memory

    def empty_status(self, count: int) -> Any:
        return self._torch.empty(count, dtype=self._torch.uint8, device=self._place)

    def stream(self) -> int:
        # torch's default stream is the null stream, which hps would take for none.
        return self._torch.cuda.current_stream(self._place).cuda_stream or _LEGACY_STREAM


_LEGACY_STREAM = 1  # cudaStreamLegacy
_NUMPY = Kind()
_torch_kinds: dict[Any, _Torch] = {}  # by device; None: the host


def kind_of(array: Any) -> Kind:
    """The kind of arrays that an answer for keys like these has."""
    if isinstance(array, np.ndarray):
        return _NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        place = array.device if array.is_cuda else None
        kind = _torch_kinds.get(place)
        if kind is None:
            kind = _Torch(torch) if place is None else _TorchOnDevice(torch, place)
            _torch_kinds[place] = kind
        return kind
    return _NUMPY


def check_apart(out: Mapping[str, Any]) -> None:
    """Refuses an array that is there for the rows of two tables."""
    if len(set(map(id, out.values()))) != len(out):
        names = {id(array): name for name, array in out.items()}
        first, second = next((name, names[id(array)]) for name, array in out.items()
                             if names[id(array)] != name)
        raise InvalidArgumentError("out: the memory of two tables overlaps: "
                                   f"'{first}' and '{second}'")


def tell_written(arrays: Iterable[Any]) -> None:
    """Tells the frameworks of arrays that hps has written."""
    tensors = [array for array in arrays
               if type(array) is not np.ndarray and kind_of(array) is not _NUMPY]
    if tensors:
        kind_of(tensors[0]).changed(tensors)
