"""The tables of training on a GPU, in one process. One launch of each phase works on all tables.

Steps queue their work in PyTorch's current stream, and wait for the GPU only where the engine does
(src/train/table_set.h). Their memory comes from PyTorch's allocator, which gives it to later work
of that stream only.
"""

import contextlib
import secrets

import torch

from hps._errors import ResourceExhaustedError
from hps._hps import train as _engine
from hps.train._keys import joined
from hps.train._local import Alone, Engine
from hps.train._table import DTYPE_NUMBERS


def device_of(device):
    """The torch.device of the argument `device`; that of a GPU has its number."""
    try:
        found = torch.device("cpu" if device is None else device)
    except RuntimeError as error:
        raise ValueError(f"device {device!r} is none of PyTorch: {error}") from error
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise ValueError(f'device must be "cpu" or a GPU such as "cuda:0", not {device!r}')
    if found.index is not None:
        return found
    return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)


@contextlib.contextmanager
def _memory_errors():
    """The GPU's lack of memory as the error that PyTorch has for it."""
    try:
        yield
    except ResourceExhaustedError as error:
        raise torch.OutOfMemoryError(str(error)) from error


class _Joined:
    """The features of several look-ups as those of one; what `_new_step` asks of a `Call`."""

    def __init__(self, calls):
        tables = {table.name: table for call in calls for table in call.tables}
        self.tables = list(tables.values())
        numbers = {name: i for i, name in enumerate(tables)}
        self.features = [(name, number, numbers[call.tables[table].name], pooling)
                         for call in calls for name, number, table, pooling in call.features]
        self.free_steps = []


class DeviceTables(Alone, Engine):
    """The tables of one GPU, with the interface of LocalTables."""

    def __init__(self, tables, device):
        self._all = tables
        self.device = device
        with _memory_errors():
            self._set = _engine.make_table_set(device.index, [table.engine() for table in tables])
        self._numbers = {table.name: i for i, table in enumerate(tables)}
        self.shards = {name: self._set.shard(i) for name, i in self._numbers.items()}
        self._joined = {}  # by the calls of its look-ups
        self.run = secrets.token_hex(8)

    def skipped_updates(self):
        """Updates that changed no row. Waits for the GPU."""
        return self._set.skipped_updates()

    def _new_step(self, call):
        if call.free_steps:
            return call.free_steps.pop()
        return _engine.TableStep.make(self._set, [self._numbers[t.name] for t in call.tables],
                                      call.features)

    def _memory(self, count, stream):
        """Bytes of the GPU, and these with the stream as the engine takes them."""
        memory = torch.empty(count, dtype=torch.uint8, device=self.device)
        return memory, (memory.data_ptr(), count, stream)

    def _stream(self):
        """The handle of PyTorch's current stream. Making a torch.cuda.Stream takes 4 us."""
        return torch._C._cuda_getCurrentRawStream(self.device.index)

    def forward(self, work, is_training):
        """Returns the blocks of the outputs."""
        call = work.call
        step = self._new_step(call)
        blocks = work.new_blocks()
        stream = self._stream()
        memory = self._prepare(step, work.keys, _engine.TRAIN if is_training else _engine.EVALUATE,
                               (work.places(blocks), DTYPE_NUMBERS[work.engine_dtype]), stream)
        if is_training:
            work.step, work.memory, work.stream = step, memory, stream
        else:
            call.free_steps.append(step)
        return blocks

    def _prepare(self, step, keys, mode, outputs, stream):
        """Makes the step ready, and writes `outputs` if there are any. Returns the memory that the
        step works in."""
        batch = keys.arguments(self.device)
        memory, place = self._memory(step.forward_bytes(batch, mode), stream)
        try:
            step.forward(batch, mode, outputs, place)
        except ResourceExhaustedError:  # the step was not made
            torch.cuda.empty_cache()  # memory that PyTorch keeps may be enough for new rows
            with _memory_errors():
                step.forward(batch, mode, outputs, place)
        return memory

    def update(self, works, verdict):
        """Updates the rows once, with the gradients of all `works`. `verdict`, a float32 [1] of the
        GPU, becomes infinite if no row was changed, see LocalTables.update."""
        stream = self._stream()
        for work in works:
            if work.stream != stream:
                _lend(work, torch.cuda.current_stream(self.device))
        if len(works) > 1:
            self._update_together(works, verdict, stream)
            return
        work, = works
        self._apply(work.step, work.call.tables, work.typed_gradients, verdict, stream)

    def _update_together(self, works, verdict, stream):
        calls = tuple(work.call for work in works)
        call = self._joined.get(calls)
        if call is None:
            call = self._joined[calls] = _Joined(calls)
        step = self._new_step(call)
        keys = joined([work.keys for work in works])
        if len({work.engine_dtype for work in works}) > 1:
            for work in works:
                work.widen()
        gradients = [place for work in works for place in work.feature_gradients()]
        dtype = DTYPE_NUMBERS[works[0].engine_dtype]
        # In use until the end.
        _kept = self._prepare(step, keys, _engine.ORDER, ([], dtype), stream)
        self._apply(step, call.tables, (gradients, dtype), verdict, stream)
        call.free_steps.append(step)

    def _apply(self, step, tables, gradients, verdict, stream):
        with _memory_errors():
            _kept, place = self._memory(step.update_bytes(), stream)
            step.update(gradients, (self._rates(tables), 1.0), verdict.data_ptr(), place)


def _lend(work, stream):
    """Tells PyTorch's allocator that `stream`, which is not that of the work's forward, now uses
    its memory."""
    keys = work.keys
    for tensor in (work.memory, keys.values, keys.offsets, keys.weights, *work.kept):
        if tensor is not None:
            tensor.record_stream(stream)
