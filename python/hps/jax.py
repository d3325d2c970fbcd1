"""Lookups in JAX, eager or inside `jax.jit`, on the CPU.

    session = store.session("dlrm")
    rows = hps.jax.lookup(session, "user", jnp.array([1, 2]))

    @jax.jit
    def score(weights, keys):
        return hps.jax.lookup(session, "user", keys) @ weights

JAX's keys are 32-bit, unless `jax.config.update("jax_enable_x64", True)`. Rows have no gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from hps import _hps
from hps._errors import FailedPreconditionError, InvalidArgumentError, error_as_tuple
from hps._session import Session

try:
    import jax
    import jax.ffi
    import jax.numpy as jnp
except ImportError:
    raise ImportError("hps.jax needs JAX 0.5 or later: pip install 'hps[jax]'") from None

__all__ = ["lookup"]

_TARGET = "hps_lookup"
_KEY_DTYPES = ("int32", "uint32", "int64", "uint64")

# The sessions that compiled programs name.
_sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()

jax.ffi.register_ffi_target(_TARGET, _hps.jax_handler(), platform="cpu")


def lookup(session: Session, table: str | Mapping[str, Any], keys: Any = None, *,
           status: bool = False) -> Any:
    """The rows of keys, as `Session.lookup`: float32 [*keys.shape, dim].

    `lookup(session, {table: keys, ...})` returns a dictionary from one lookup, which sees one
    version of the model. Works under `jit` and `vmap`. A compiled function looks rows up in each
    call. It holds the session as a constant: keep the session open while the function is used. A
    call waits at most as long as the timeout of the store; Ctrl-C does not end it.

    status: also return how each key was answered (`hps.Status`, as uint8), in the same form.
    Raises, when it is traced: TypeError, InvalidArgumentError (an argument), NotFoundError (no such
    table). What only the lookup finds (the session is closed) JAX raises, as its JaxRuntimeError or
    a ValueError, with the code and the message of hps in the text.
    """
    if not isinstance(session, Session):
        raise TypeError(f"session: expected an hps.Session, found {type(session).__name__}")
    if isinstance(table, str):
        rows, statuses = _lookup(session, {table: keys}, status)
        return (rows[table], statuses[table]) if status else rows[table]
    if keys is not None:
        raise TypeError("keys: expected none beside a dictionary of keys by table")
    if not isinstance(table, Mapping):
        raise TypeError("table: expected a name, or a dictionary of keys by table, found "
                        f"{type(table).__name__}")
    rows, statuses = _lookup(session, table, status)
    return (rows, statuses) if status else rows


def _lookup(session: Session, asked: Mapping[str, Any], want_status: bool) -> tuple[dict, dict]:
    dims = [session._number(name)[1] for name in asked]
    if not asked:
        return {}, {}
    keys = [_keys(value, name) for name, value in asked.items()]
    outputs = [jax.ShapeDtypeStruct((*array.shape, dim), np.float32)
               for array, dim in zip(keys, dims)]
    if want_status:
        outputs += [jax.ShapeDtypeStruct(array.shape, np.uint8) for array in keys]
    # Lookups are of each key alone: vmap makes one lookup of all its keys.
    call = jax.ffi.ffi_call(_TARGET, outputs, vmap_method="broadcast_all")
    _sessions[session._name] = session
    answer = call(*keys, session=session._name, tables="\n".join(asked))
    return dict(zip(asked, answer)), dict(zip(asked, answer[len(keys):]))


def _keys(keys: Any, table: str) -> jax.Array:
    """`keys` as an array of JAX, which would cut 64 bits down to 32 without a word."""
    argument = f"keys of table '{table}'"
    if not isinstance(keys, (jax.Array, np.ndarray, list, tuple, int)):
        raise TypeError(f"{argument}: expected an array of keys, found {type(keys).__name__}")
    given = keys if isinstance(keys, jax.Array) else _as_numpy(keys, argument)
    if str(given.dtype) not in _KEY_DTYPES:
        raise InvalidArgumentError(f"{argument}: expected int32, uint32, int64 or uint64, found "
                                   f"{given.dtype}")
    array = jnp.asarray(given)
    if array.dtype != given.dtype and given.size > 0 and not _fits(given, array.dtype):
        raise InvalidArgumentError(f"{argument}: a key has more than 32 bits; call "
                                   "jax.config.update('jax_enable_x64', True) first")
    return array


def _as_numpy(keys: Any, argument: str) -> np.ndarray:
    if isinstance(keys, (list, tuple)) and not keys:
        return np.empty(0, np.int32)
    try:
        return np.asarray(keys)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{argument}: {error}") from error


def _fits(keys: Any, dtype: Any) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= keys.min() and keys.max() <= limits.max


def _answer(name: str, tables: str, keys: list, outputs: list) -> tuple[int, str] | None:
    """Makes a lookup for a compiled program; called by the handler. Memory is (address, elements,
    dtype). Returns the code and the message of an error."""
    try:
        session = _sessions.get(name)
        if session is None:
            raise FailedPreconditionError(f"session: the session '{name}' of this compiled "
                                          "function is gone; keep it for as long as the function")
        numbers = [session._number(table)[0] for table in tables.split("\n")]
        rows, statuses = outputs[:len(keys)], outputs[len(keys):]
        session._session.lookup(numbers, keys, (rows, statuses or None), None)
    except BaseException as error:  # noqa: BLE001, none may reach XLA
        return error_as_tuple(error)
    return None
