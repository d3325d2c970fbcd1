"""Lookups in JAX, eager or inside `jax.jit`, on the CPU or on a GPU.

    session = store.session("dlrm")     # on a GPU: store.session("dlrm", "cuda:0")
    rows = hps.jax.lookup(session, "user", jnp.array([1, 2]))

    @jax.jit
    def score(weights, keys):
        return hps.jax.lookup(session, "user", keys) @ weights

JAX's keys are 32-bit, unless `jax.config.update("jax_enable_x64", True)`. Rows have no gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hps import _hps
from hps._errors import InvalidArgumentError
from hps._session import Session

try:
    import jax
    import jax.ffi
    import jax.numpy as jnp
except ImportError:
    raise ImportError("hps.jax needs JAX 0.5 or later: pip install 'hps[jax]'") from None

__all__ = ["lookup"]

_TARGET = "hps_lookup"

for _platform, _handler in _hps.jax_handlers().items():
    jax.ffi.register_ffi_target(_TARGET, _handler, platform=_platform)


def lookup(session: Session, table: str | Mapping[str, Any], keys: Any = None, *,
           status: bool = False) -> Any:
    """The rows of keys, as `Session.lookup`: float32 [*keys.shape, dim].

    `lookup(session, {table: keys, ...})` returns a dictionary from one lookup, which sees one
    version of the model. Works under `jit` and `vmap`. A compiled function looks rows up in each
    call. It holds the session as a constant: keep the session open while the function is used. On
    the CPU, a call waits at most as long as the timeout of the store; Ctrl-C does not end it.

    On a GPU the session must be of the GPU where JAX computes. The keys are read there and the rows
    are written there, in the order of the computation; the call waits for the GPU.

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
    if not asked:
        return {}, {}
    plan = session._plan(tuple(asked))
    keys = [_keys(value, name) for name, value in asked.items()]
    answer = _call(keys, session._name, plan.text, tuple(plan.dims), want_status)
    return dict(zip(asked, answer)), dict(zip(asked, answer[len(keys):]))


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4), inline=True)
def _call(keys: list[jax.Array], session: str, tables: str, dims: tuple[int, ...],
          want_status: bool) -> list[jax.Array]:
    """The rows of each table, then the statuses if they are wanted."""
    outputs = [jax.ShapeDtypeStruct((*array.shape, dim), np.float32)
               for array, dim in zip(keys, dims)]
    if want_status:
        outputs += [jax.ShapeDtypeStruct(array.shape, np.uint8) for array in keys]
    # Lookups are of each key alone: vmap makes one lookup of all its keys.
    ffi_call = jax.ffi.ffi_call(_TARGET, outputs, vmap_method="broadcast_all")
    call = functools.partial(ffi_call, session=session, tables=tables)
    # On the host hps widens keys of 32 bits itself.
    return jax.lax.platform_dependent(*keys, cpu=call,
                                      default=lambda *keys: call(*map(_words, keys)))


def _words(keys: jax.Array) -> jax.Array:
    """Keys of 32 bits as [..., 2] words: the memory of int64, which JAX may not have."""
    if keys.dtype.itemsize == 8:
        return keys
    high = keys >> 31 if keys.dtype == jnp.int32 else jnp.zeros_like(keys)  # the sign's bits
    return jnp.stack([keys, high], axis=-1)


def _keys(keys: Any, table: str) -> jax.Array:
    """`keys` as an array of JAX, which would cut 64 bits down to 32 without a word."""
    argument = f"keys of table '{table}'"
    is_host = isinstance(keys, (np.ndarray, list, tuple, int)) or hasattr(keys, "__array__")
    if not isinstance(keys, jax.Array) and not is_host:
        raise TypeError(f"{argument}: expected an array of keys, found {type(keys).__name__}")
    given = keys if isinstance(keys, jax.Array) else _as_numpy(keys, argument)
    if given.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{argument}: expected integers, found {given.dtype}")
    if given.dtype.itemsize < np.dtype(np.int32).itemsize:
        given = given.astype(np.int32)
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
