"""The operators torch.ops.hps_train, which a compiled program has in the place of an
`EmbeddingCollection`.

`look_up` does the work of a forward and returns the number of the look-up, int64 [1]. `rows`
returns the blocks of that look-up (see `Work`). Its gradient is `take_gradients`, which gives the
anchor a zero and returns the gradients of the weights. The tables are updated when the anchor gets
its gradient, as without a compiler.

`collection` is int64 [1], the number of a collection of this process. `look_up` says that it
changes it, so that a compiler neither drops nor reorders look-ups: what it changes are the tables.

The kernels are Python functions, because what they call is: the exchange between ranks, and the
hooks of a backward pass. PyTorch takes 3 us to call one, as for its own operators.
"""

import ctypes
import itertools
import secrets
import weakref

import torch

from hps.train._table import DTYPE_NUMBERS

_LIBRARY = torch.library.Library("hps_train", "FRAGMENT")
# They call Python, and wait for other ranks: no part of a CUDA graph.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",)
              if hasattr(torch.Tag, name))
_LIBRARY.define(
    "look_up(Tensor(a!) collection, Tensor keys, Tensor? offsets, Tensor? weights, int[] features, "
    "SymInt[] bag_counts, bool[] is_weighted, bool is_training, bool is_frozen, "
    "bool weights_need_gradients, ScalarType dtype) -> Tensor", tags=_TAGS)
_LIBRARY.define("rows(Tensor look_up, Tensor anchor, Tensor? weights, SymInt[] heights, "
                "int[] widths, ScalarType dtype) -> Tensor[]", tags=_TAGS)
_LIBRARY.define("take_gradients(Tensor look_up, Tensor?[] gradients, SymInt weight_count) "
                "-> (Tensor, Tensor)", tags=_TAGS)

_collections = weakref.WeakValueDictionary()  # the `LookUps` of each, by number
_open = weakref.WeakValueDictionary()  # look-ups, by number
_numbers = itertools.count(1)


class _OpenLookUp(ctypes.c_int64 * 1):
    """A look-up whose rows or gradients are still to be taken. It is the memory of the tensor that
    has its number: PyTorch frees both together, after a backward or without one."""

    look_ups = work = blocks = shapes = dtype = is_training = None


def register(look_ups):
    """Gives the look-ups of a collection their number, as the argument of the operators."""
    # Not a small number: an exported program keeps it, and may be run by another process.
    number = secrets.randbits(62)
    _collections[number] = look_ups
    with torch.inference_mode(False):  # in which operators could not change it later
        return torch.tensor([number], dtype=torch.int64, device="cpu")


_NO_LOOK_UP = ("there is no such look-up: its tensor was freed, or is not a result of "
               "hps_train::look_up")


def _find(numbered, number, error):
    found = numbered.get(number.item())
    if found is None:
        raise RuntimeError(f"hps_train: {error}")
    return found


def _look_up(collection, keys, offsets, weights, features, bag_counts, is_weighted, is_training,
             is_frozen, weights_need_gradients, dtype):
    if dtype not in DTYPE_NUMBERS:
        raise ValueError(f"hps_train::look_up: dtype must be one of "
                         f"{list(DTYPE_NUMBERS)}, not {dtype}")

    look_ups = _find(_collections, collection, "the EmbeddingCollection of this program was "
                     "deleted, or is in another process")

    def read():
        look_ups.check_frozen(is_training, is_frozen)
        if weights_need_gradients and weights is None:
            raise ValueError("hps_train::look_up: weights_need_gradients, but there are no weights")
        return look_ups.keys_of(features, keys, offsets, weights, bag_counts, is_weighted)
    work = look_ups.begin(read, is_training, dtype, weights_need_gradients)
    look_up = _OpenLookUp(next(_numbers))
    look_up.blocks = look_ups.look_up(work, is_training)
    look_up.shapes = [block.shape for block in look_up.blocks]
    look_up.dtype = dtype
    look_up.look_ups, look_up.is_training = look_ups, is_training
    look_up.work = work if is_training else None
    _open[look_up[0]] = look_up
    return torch.frombuffer(look_up, dtype=torch.int64)


def _rows(number, anchor, weights, heights, widths, dtype):  # noqa: ARG001, of the gradient
    look_up = _find(_open, number, _NO_LOOK_UP)
    shapes = list(zip(heights, widths))
    if shapes != look_up.shapes:
        raise ValueError("hps_train::rows: the look-up has blocks of "
                         f"{_shown(look_up.shapes)}, not {shapes}")
    if dtype is not look_up.dtype:
        raise ValueError(f"hps_train::rows: the look-up was made with {look_up.dtype}, not {dtype}")
    need_gradients = look_up.work is not None and look_up.work.weights is not None
    if (weights is not None) != need_gradients:
        raise ValueError("hps_train::rows: weights must be given if, and only if, the look-up was "
                         "made with weights_need_gradients=True")
    if look_up.blocks is None:
        raise RuntimeError("hps_train::rows: the rows of this look-up were handed out before")
    blocks, look_up.blocks = look_up.blocks, None
    return blocks


def _take_gradients(number, gradients, weight_count):  # noqa: ARG001, for the shape of the result
    look_up = _find(_open, number, _NO_LOOK_UP)
    if not look_up.is_training:
        raise RuntimeError("hps_train::take_gradients: a look-up made with is_training=False has "
                           "no gradients")
    shapes = [None if each is None else each.shape for each in gradients]
    if len(shapes) != len(look_up.shapes) or any(
            shape not in (None, own) for shape, own in zip(shapes, look_up.shapes)):
        raise ValueError("hps_train::take_gradients: expected gradients of the shapes "
                         f"{_shown(look_up.shapes)}, not {_shown(shapes)}")
    work, look_up.work = look_up.work, None
    if work is None:
        raise RuntimeError("the gradients of this look-up were taken before: backward runs once "
                           "for each forward; call the program again. A backward, and a "
                           "torch.autograd.grad, runs the whole backward of a program")
    # The program may use the memory of its tensors again before the rows are updated.
    gradients = [None if each is None else each.clone() for each in gradients]
    weights = look_up.look_ups.take_gradients(work, gradients)
    zero = look_up.look_ups.zero
    return torch.zeros_like(zero), zero.new_empty(0) if weights is None else weights


def _shown(shapes):
    return [shape and tuple(shape) for shape in shapes]


for _name, _kernel in (("look_up", _look_up), ("rows", _rows), ("take_gradients", _take_gradients)):
    for _device in ("CPU", "CUDA"):
        _LIBRARY.impl(_name, torch.compiler.disable(_kernel), _device)


@torch.library.register_fake("hps_train::look_up")
def _(collection, keys, *_, **__):
    if keys.device.type not in ("cpu", "cuda"):  # the one error that no kernel finds
        raise ValueError(f"hps_train::look_up: keys are on {keys.device}, but the tables are on "
                         "the CPU or on a GPU; pass keys.cpu()")
    return torch.empty_like(collection)


@torch.library.register_fake("hps_train::rows")
def _(look_up, anchor, weights, heights, widths, dtype):  # noqa: ARG001
    return [anchor.new_empty((height, width), dtype=dtype)
            for height, width in zip(heights, widths)]


@torch.library.register_fake("hps_train::take_gradients")
def _(look_up, gradients, weight_count):
    # Those of the rows are on the device of the tables.
    rows = next((each for each in gradients if each is not None), look_up)
    return (rows.new_empty((1,), dtype=torch.float32),
            rows.new_empty((weight_count,), dtype=torch.float32))


def _keep(ctx, inputs, output):  # noqa: ARG001
    look_up, _, weights, *_ = inputs
    ctx.has_weights, ctx.weight_count = weights is not None, 0
    if ctx.has_weights:
        ctx.weight_count = weights.numel()
    ctx.save_for_backward(look_up)
    ctx.set_materialize_grads(False)


def _backward(ctx, gradients):
    anchor, weights = torch.ops.hps_train.take_gradients(
        *ctx.saved_tensors, gradients, ctx.weight_count)
    return None, anchor, weights if ctx.has_weights else None, None, None, None


torch.library.register_autograd("hps_train::rows", _backward, setup_context=_keep)
