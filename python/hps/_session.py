"""Lookups of one model."""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

import numpy as np

from hps import _hps
from hps._arguments import fraction, seconds, tables_of
from hps._arrays import HostKeys, Kind, Memory, Rows, Statuses, kind_of, tell_written
from hps._errors import InvalidArgumentError

# A wait that may be longer is made on another thread, so that Ctrl-C can end it.
_UNINTERRUPTED_S = 1.0
_STARTING_S = 2.0  # longest wait for a thread that may not have started
_PLANS_MAX = 256
_counter = itertools.count()


class Status(enum.IntEnum):
    """How a key was answered: the values of the arrays that `status=True` gives."""

    ABSENT = 0
    HIT_L1 = 1
    HIT_L2 = 2
    HIT_L3 = 3
    DEFAULT_PENDING = 4
    DEFAULT_DEGRADED = 5


class Plan:
    """What a session knows of the tables of a call, in the order of the call."""

    def __init__(self, tables: list[tuple[int, int, str]]):
        self.numbers = [number for number, _, _ in tables]
        self.dims = [dim for _, dim, _ in tables]
        # The dim of all tables, or 0 if they differ.
        self.dim = self.dims[0] if len(set(self.dims)) == 1 else 0
        # For operators of frameworks.
        self.text = "\n".join(f"{name}:{dim}" for _, dim, name in tables)


class Session:
    """Looks up rows of one model. Made by `Store.session`; any thread may call it.

    `tables` has the dim of each table, by name, in the declared order. A pickle names the store and
    the model, as one of a `Store`; a copy (`copy.deepcopy`) is the object itself.
    """

    def __init__(self, store: Any, model: str, device: int, keys_max: int):
        self._store = store
        # Compiled programs name their session. A name has the store and the model in it, so that a
        # program that was made in another process never gets rows of another model.
        path = store.path.encode(errors="backslashreplace").decode()  # it may be no text
        self._name = f"{path}:{model}:{next(_counter)}"
        self._session = _hps.session(store._store, model, device, keys_max, self._name)
        self._device = device
        self._keys_max = keys_max
        self._memory = Memory()
        self._default_is_short = store._lookup_timeout <= _UNINTERRUPTED_S
        self.model = model
        self.tables: dict[str, int] = {}
        self._numbers: dict[str, tuple[int, int, str]] = {}
        self._plans: dict[tuple, Plan] = {}
        for number, (name, dim, _) in enumerate(self._session.tables()):
            short = name.partition("/")[2]
            self.tables[short] = dim
            self._numbers[short] = self._numbers[name] = (number, dim, name)

    def __reduce__(self) -> tuple:
        return _make_session, (self._store, self.model, self._device, self._keys_max)

    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, _: dict) -> Session:
        return self

    def __repr__(self) -> str:
        place = "the host" if self._device < 0 else f"cuda:{self._device}"
        is_open = self._session.is_open or not self._store._store.is_open  # else the store tells
        text = self._store._tables_text(self.model) if is_open else "this session is closed"
        return f"<hps.Session of '{self.model}' on {place}, {text}>"

    @overload
    def lookup(self, table: str, keys: HostKeys, *, status: Literal[False] = ...,
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: None = ...) -> Rows: ...

    @overload
    def lookup(self, table: str, keys: HostKeys, *, status: Literal[True],
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: None = ...) -> tuple[Rows, Statuses]: ...

    @overload
    def lookup(self, table: str, keys: Any, *, status: Literal[True],
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: Any = ...) -> tuple[Any, Any]: ...

    @overload
    def lookup(self, table: Mapping[str, Any], keys: None = ..., *, status: Literal[False] = ...,
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> dict[str, Any]: ...

    @overload
    def lookup(self, table: Mapping[str, Any], keys: None = ..., *, status: Literal[True],
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> tuple[dict[str, Any], dict[str, Any]]: ...

    @overload
    def lookup(self, table: str | Mapping[str, Any], keys: Any = ..., *, status: bool = ...,
               timeout: float | None = ..., hit_rate_threshold: float | None = ...,
               out: Any = ...) -> Any: ...

    def lookup(self, table: str | Mapping[str, Any], keys: Any = None, *, status: bool = False,
               timeout: float | None = None, hit_rate_threshold: float | None = None,
               out: Any = None) -> Any:
        """The rows of keys, as float32.

        `lookup(table, keys)` returns an array of the shape [*keys.shape, dim].
        `lookup({table: keys, ...})` returns a dictionary of such arrays from one lookup, which sees
        one version of the model.

        Keys are integers of any width; uint64 is taken bit for bit. NumPy arrays give NumPy arrays;
        so do lists, Series of pandas, and arrays of other packages that have DLPack or `__array__`.
        torch tensors give torch tensors. Contiguous int64 and uint64 are read without a copy. If
        the keys are tensors on the session's GPU, the rows are there too, and are ready
        in the order of torch's current stream.

        status: True: return (rows, statuses). A status tells how a key was answered (`Status`, as
            uint8); statuses have the shape of the keys.
        timeout: longest wait in seconds. Keys whose rows have not arrived by then get default rows
            and DEFAULT_DEGRADED. None: the setting [lookup] timeout.
        hit_rate_threshold: 0 to 1, see docs/configuration.md. None: the setting [lookup]
            hit_rate_threshold.
        out: arrays into which the rows are written, instead of new ones: one, or a dictionary.
            Float32, contiguous, without overlaps. A torch tensor must not require a gradient.

        The arrays of one call may share their memory; copy one to keep it without the others.
        Raises: InvalidArgumentError, TypeError (an argument, which the message names),
        NotFoundError (no such table), ResourceExhaustedError (no memory), UnavailableError (the
        model is not loaded), FailedPreconditionError (closed; the table was imported again with
        another shape).
        """
        if type(keys) is np.ndarray and timeout is None and hit_rate_threshold is None and \
                out is None and isinstance(table, str) and self._default_is_short:
            return self._lookup_array(table, keys, status)
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        if hit_rate_threshold is not None:
            hit_rate_threshold = fraction(hit_rate_threshold, "hit_rate_threshold")
        if isinstance(table, str):
            outs = None if out is None else {table: out}
            answer, statuses = self._lookup({table: keys}, outs, status, timeout,
                                            hit_rate_threshold)
            return (answer[table], statuses[table]) if status else answer[table]
        asked = tables_of(table, keys)
        answer, statuses = self._lookup(asked, out, status, timeout, hit_rate_threshold)
        return (answer, statuses) if status else answer

    def close(self) -> None:
        """Gives the session's memory back. Later calls raise FailedPreconditionError."""
        self._session.close()

    def _lookup_array(self, table: str, keys: np.ndarray, want_status: bool) -> Any:
        """The most frequent call, with the least work."""
        number, dim, _ = self._number(table)
        rows = self._memory.take(keys.size * dim)
        status = np.empty(keys.shape, np.uint8) if want_status else None
        self._session.lookup([number], [keys], (rows, status), None)
        rows = rows.reshape((*keys.shape, dim))
        return (rows, status) if want_status else rows

    def _lookup(self, asked: Mapping[str, Any], out: Mapping[str, Any] | None, want_status: bool,
                timeout: float | None, threshold: float | None) -> tuple[dict, dict]:
        kind = kind_of(next(iter(asked.values()), None))
        if out is None and not want_status and timeout is None and threshold is None and \
                self._default_is_short and asked:
            quick = kind.lookup(self, self._plan(tuple(asked)), list(asked.values()))
            if quick is not None:
                return dict(zip(asked, quick)), {}
        numbers, shapes, key_arrays, owners, total, elements = [], [], [], [], 0, 0
        for name, keys in asked.items():
            number, dim, _ = self._numbers.get(name) or self._number(name)
            memory, owner, shape, count = kind.read(keys, name)
            numbers.append(number)
            shapes.append(shape)
            owners.append(owner)  # for as long as the extension has its address
            key_arrays.append(memory)
            total += count
            elements += count * dim
        if out is None:
            rows = kind.take_rows(self._memory, elements)
        else:
            rows = self._outs(kind, asked, shapes, out)
        statuses = kind.empty_status(total) if want_status else None
        status_memory = None if statuses is None else kind.memory(statuses, "status")
        if kind.device is None:
            self._call(self._session.lookup, numbers, key_arrays, (rows, status_memory), timeout,
                       threshold)
        else:
            self._check_device(kind)
            memory = kind.memory(rows, "out") if out is None else rows
            self._call(self._session.lookup_on_device, numbers, key_arrays,
                       (memory, status_memory, kind.stream()), timeout, threshold)
        if out is None:
            answer = self._split(kind, asked, shapes, kind.rows_of(rows), True)
        else:
            answer = dict(out)
            tell_written(out.values())
        return answer, {} if statuses is None else self._split(kind, asked, shapes, statuses,
                                                               False)

    def _plan(self, names: tuple) -> Plan:
        plan = self._plans.get(names)
        if plan is None:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = self._plans[names] = Plan([self._number(name) for name in names])
        return plan

    def _number(self, name: Any) -> tuple[int, int, str]:
        try:
            return self._numbers[name]
        except KeyError:
            raise self._unknown(name) from None

    def _unknown(self, name: Any) -> Exception:
        from difflib import get_close_matches

        from hps._errors import NotFoundError
        near = get_close_matches(str(name), self.tables, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return NotFoundError(f"table: model '{self.model}' has no table '{name}'{hint}")

    def _split(self, kind: Kind, asked: Mapping[str, Any], shapes: list[tuple], block: Any,
               is_rows: bool) -> dict:
        """The part of each table of one array for all."""
        if is_rows:
            shapes = [(*shape, self._numbers[name][1]) for name, shape in zip(asked, shapes)]
        if len(shapes) == 1:
            (name,) = asked
            return {name: block.reshape(shapes[0])}
        return dict(zip(asked, kind.split(block, shapes)))

    def _outs(self, kind: Kind, asked: Mapping[str, Any], shapes: list[tuple],
              out: Mapping[str, Any]) -> list:
        if not isinstance(out, Mapping) or set(out) != set(asked):
            raise InvalidArgumentError("out: expected an array for each table that is asked")
        rows = []
        for name, shape in zip(asked, shapes):
            array = out[name]
            its_kind = kind if type(array) is kind.type else kind_of(array)
            its_kind.check_out(array, name, (*shape, self._numbers[name][1]))
            rows.append(kind.memory(array, "out", name))
        return rows

    def _check_device(self, kind: Kind) -> None:
        if kind.device != self._device:
            mine = "the host" if self._device < 0 else f"cuda:{self._device}"
            raise InvalidArgumentError(f"keys: on cuda:{kind.device}, and the session is of "
                                       f"{mine}; make one with device='cuda:{kind.device}'")

    def _call(self, call: Callable[..., None], numbers: list, keys: list, outputs: tuple,
              timeout: float | None, threshold: float | None) -> None:
        me = threading.get_ident()
        is_short = self._default_is_short if timeout is None else timeout <= _UNINTERRUPTED_S
        if not is_short and threading.current_thread() is threading.main_thread():
            cancel = _hps.Cancel()
            _interruptible(lambda: call(numbers, keys, outputs, (timeout, threshold, cancel, me)),
                           cancel.cancel)
        elif timeout is None and threshold is None:
            call(numbers, keys, outputs, None)
        else:
            call(numbers, keys, outputs, (timeout, threshold, None, me))


def _make_session(store: Any, model: str, device: int, keys_max: int) -> Session:
    """The session of a pickle."""
    return store.session(model, None if device < 0 else device, keys_max=keys_max)


def _interruptible(call: Callable[[], None], cancel: Callable[[], None]) -> None:
    """Makes a call on another thread; an exception on this one, as of Ctrl-C, cancels it."""
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001, raised again below
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="hps-lookup")
    try:
        thread.start()
        thread.join()
    except BaseException:
        # The exception may have come while the thread was starting; it must not outlive the
        # interpreter. Of a thread that has not started there is nothing to wait for.
        cancel()
        ended.wait(timeout=_STARTING_S)
        if thread.is_alive():
            thread.join()
        raise
    if errors:
        raise errors[0]
