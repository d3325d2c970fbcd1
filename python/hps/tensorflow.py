"""Keras layers over a store: `LookupLayer` and `SparseLookupLayer`, with the names and arguments of
HugeCTR's plugin for TensorFlow, and `lookup` for several tables at once. On the CPU.

    layer = hps.tensorflow.LookupLayer("dlrm", "user", 16, ps_config_file="/var/lib/hps/store")
    rows = layer(tf.constant([1, 2, 3]))

They work inside `tf.function` and in a SavedModel. A SavedModel holds no rows: it names the store.
A process that loads it imports hps.tensorflow first; the first lookup opens the store, if it is not
open in the process.

`ps_config_file` is the path of a store, or of a configuration file in TOML (docs/configuration.md),
or an open `hps.Store`. A store that a path names is opened for writing ("rw") if no other process
has it open for that, else read-only ("r"); it is closed at the end of the process.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

from hps import _hps
from hps._errors import (FailedPreconditionError, InvalidArgumentError, NotFoundError,
                         UnavailableError, error_as_tuple)
from hps._session import Session
from hps._store import OpenStores, Store

try:
    import tensorflow as tf
except ImportError:
    raise ImportError("hps.tensorflow needs TensorFlow 2.16 or later: pip install "
                      "'hps[tensorflow]'") from None

__all__ = ["Init", "LookupLayer", "SparseLookupLayer", "lookup"]

_COMBINERS = ("mean", "sqrtn", "sum")
_KEY_DTYPES = (tf.int32, tf.int64)
_NARROW_DTYPES = (tf.int8, tf.int16, tf.uint8, tf.uint16, tf.uint32)


class _Stores:
    """The stores of layers, by what the layers call them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given = OpenStores()
        self._opened: dict[str, Store] = {}

    def give(self, store: Store) -> str:
        """Makes an open store known; returns its name."""
        with self._lock:
            self._given.add(store)
        return store.path

    def find(self, source: str) -> Store:
        """Opens the store if this process has not."""
        with self._lock:
            store = self._given.find(source) or self._opened.get(source)
            if store is None:
                store = self._opened[source] = self._open(source)
            return store

    def close(self) -> None:
        """Closes what `find` has opened."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].close()

    @staticmethod
    def _open(source: str) -> Store:
        import hps
        is_file = pathlib.Path(source).is_file()
        try:
            return hps.open(config=source) if is_file else hps.open(source)
        except UnavailableError:  # another process has it
            return hps.open(config=source, mode="r") if is_file else hps.open(source, mode="r")


_stores = _Stores()
atexit.register(_stores.close)
_default_source = ""  # of Init


def _find_session(source: str, model: str, device: int) -> Any:  # noqa: ARG001, the host's
    """The name of the session of a model, or an error. Called by the operator."""
    try:
        return _session_of(source, model)._name
    except BaseException as error:  # noqa: BLE001, none may reach the operator
        return error_as_tuple(error)


def _session_of(source: str, model: str) -> Session:
    return _stores.find(source)._shared_session(model, None)


_LIBRARY = str(pathlib.Path(_hps.__file__).with_name("_tensorflow_operator.so"))
_operators = tf.load_op_library(_LIBRARY)
_hps.connect_tensorflow(_LIBRARY, _find_session)


def Init(*, ps_config_file: Any, global_batch_size: int = 1) -> str:  # noqa: ARG001, N802
    """Opens the store of the layers that have no `ps_config_file` of their own. Returns "OK".

    global_batch_size: taken for programs that were written for HugeCTR, and ignored: memory is not
        reserved for a batch.
    Raises the errors of `hps.open`.
    """
    global _default_source
    source = _source_of(ps_config_file)
    _stores.find(source)
    _default_source = source
    return "OK"


def _source_of(ps_config_file: Any) -> str:
    if isinstance(ps_config_file, Store):
        return _stores.give(ps_config_file)
    if not isinstance(ps_config_file, (str, os.PathLike)):
        raise TypeError("ps_config_file: expected a path or an hps.Store, found "
                        f"{type(ps_config_file).__name__}")
    path = os.fspath(ps_config_file)
    if not path:
        return ""
    path = os.path.abspath(path)
    if path.endswith(".json"):
        raise InvalidArgumentError(f"ps_config_file: '{path}' is a file of HugeCTR; expected a "
                                   "store or a TOML file (docs/from_hugectr.md)")
    return path


def lookup(store: Any, model: str, keys: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """The rows of keys of several tables, {table: float32 [*keys.shape, dim]}, from one lookup,
    which sees one version of the model.

    store: as `ps_config_file` of the layers. keys: int32 or int64, by table.
    Raises: InvalidArgumentError, TypeError (an argument), NotFoundError (no such table), and the
    errors of `hps.open`. What only the lookup finds TensorFlow raises, as its tf.errors.OpError.
    """
    if not isinstance(keys, Mapping):
        raise TypeError(f"keys: expected a dictionary of keys by table, found "
                        f"{type(keys).__name__}")
    if not keys:
        return {}
    source = _source_of(store)
    session = _session_of(source, model)
    plan = session._plan(tuple(keys))
    tensors = [_keys(value, f"keys of table '{table}'") for table, value in keys.items()]
    if len({tensor.dtype for tensor in tensors}) > 1:
        tensors = [tf.cast(tensor, tf.int64) for tensor in tensors]
    rows = _rows(tensors, source, plan.text, plan.dims)
    return dict(zip(keys, rows))


def _keys(keys: Any, argument: str) -> tf.Tensor:
    if isinstance(keys, (list, tuple, int)):
        keys = tf.convert_to_tensor(keys, tf.int64)
    tensor = tf.convert_to_tensor(keys)
    if tensor.dtype in _NARROW_DTYPES:
        return tf.cast(tensor, tf.int64)
    if tensor.dtype not in _KEY_DTYPES:
        raise InvalidArgumentError(f"{argument}: expected int32 or int64, found "
                                   f"{tensor.dtype.name}")
    return tensor


def _rows(keys: list[tf.Tensor], source: str, tables: str, dims: list[int]) -> list[tf.Tensor]:
    rows = _operators.hps_lookup(keys=keys, source=source, tables=tables)
    # The operator can't say their shapes while a graph is built.
    return [tf.ensure_shape(some, [*tensor.shape, dim] if tensor.shape.rank is not None else None)
            for some, tensor, dim in zip(rows, keys, dims)]


def _clip(rows: tf.Tensor, max_norm: float | None) -> tf.Tensor:
    return rows if max_norm is None else tf.clip_by_norm(rows, max_norm, axes=[-1])


class _Layer(tf.keras.layers.Layer):
    """What the layers share: the table, found at the first call."""

    def __init__(self, model_name: str, table_id: int | str, emb_vec_size: int,
                 emb_vec_dtype: Any = tf.float32, ps_config_file: Any = "",
                 global_batch_size: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        if tf.as_dtype(emb_vec_dtype) != tf.float32:
            raise InvalidArgumentError("emb_vec_dtype: expected tf.float32, found "
                                       f"{tf.as_dtype(emb_vec_dtype).name}")
        self.model_name = model_name
        self.table_id = table_id
        self.emb_vec_size = emb_vec_size
        self.emb_vec_dtype = tf.float32
        self.ps_config_file = _source_of(ps_config_file)
        self.global_batch_size = global_batch_size
        # An open store stays open for as long as its layer.
        self._hps_store = ps_config_file if isinstance(ps_config_file, Store) else None

    def get_config(self) -> dict:
        """For Keras' own files of models."""
        return {**super().get_config(), "model_name": self.model_name, "table_id": self.table_id,
                "emb_vec_size": self.emb_vec_size, "ps_config_file": self.ps_config_file,
                "global_batch_size": self.global_batch_size}

    def _lookup(self, keys: tf.Tensor, max_norm: float | None) -> tf.Tensor:
        source = self.ps_config_file or _default_source
        if not source:
            raise FailedPreconditionError("ps_config_file: expected the path of a store; or call "
                                          "hps.tensorflow.Init first")
        text = f"{self.model_name}/{self._table(source)}:{self.emb_vec_size}"
        rows, = _rows([_keys(keys, "keys")], source, text, [self.emb_vec_size])
        return _clip(rows, max_norm)

    def _table(self, source: str) -> str:
        """The name of the table; a number counts them in the order of the model."""
        tables = _session_of(source, self.model_name).tables
        name = self.table_id
        if isinstance(name, int):
            if not 0 <= name < len(tables):
                raise NotFoundError(f"table_id: model '{self.model_name}' has the tables 0 to "
                                    f"{len(tables) - 1}, not {name}")
            name = list(tables)[name]
        elif name not in tables:
            raise NotFoundError(f"table_id: model '{self.model_name}' has no table '{name}'")
        if tables[name] != self.emb_vec_size:
            raise InvalidArgumentError(f"emb_vec_size: table '{self.model_name}/{name}' has the "
                                       f"dim {tables[name]}, not {self.emb_vec_size}")
        return name


@tf.keras.utils.register_keras_serializable(package="hps")
class LookupLayer(_Layer):
    """Rows of keys, as tf.nn.embedding_lookup.

    model_name, table_id: the table: its name, or its number in the model.
    emb_vec_size: its dim.
    emb_vec_dtype: tf.float32.
    ps_config_file: the store, see above; "": that of `Init`.
    global_batch_size: ignored, see `Init`.
    """

    def call(self, inputs: Any, max_norm: float | None = None) -> tf.Tensor:
        """float32 [*inputs.shape, emb_vec_size]. inputs: int32 or int64. max_norm: rows whose norm
        is greater are scaled to it."""
        return self._lookup(inputs, max_norm)


@tf.keras.utils.register_keras_serializable(package="hps")
class SparseLookupLayer(_Layer):
    """Rows of keys, combined for each row of a SparseTensor, as tf.nn.embedding_lookup_sparse.

    The arguments are those of `LookupLayer`.
    """

    def call(self, sp_ids: tf.SparseTensor, sp_weights: tf.SparseTensor | None = None,
             name: str | None = None, combiner: str | None = None,
             max_norm: float | None = None) -> tf.Tensor:
        """float32 [sp_ids.shape[0], emb_vec_size]; zeros for a row without keys.

        sp_ids: a SparseTensor [n, m] of int32 or int64. sp_weights: None (1 for each key), or
            weights of the same indices.
        combiner: "sum" of weighted rows; "mean" (None): divided by the sum of the weights; "sqrtn":
            by the root of the sum of their squares.
        max_norm: rows whose norm is greater are scaled to it before they are combined.
        """
        combiner = combiner or "mean"
        if combiner not in _COMBINERS:
            raise InvalidArgumentError(f"combiner: expected 'mean', 'sqrtn' or 'sum', found "
                                       f"{combiner!r}")
        for argument, value in (("sp_ids", sp_ids), ("sp_weights", sp_weights)):
            if not isinstance(value, tf.SparseTensor) and not (value is None and
                                                               argument == "sp_weights"):
                raise TypeError(f"{argument}: expected a tf.SparseTensor, found "
                                f"{type(value).__name__}")
        with tf.name_scope(name or "sparse_lookup"):
            return self._combine(sp_ids, sp_weights, combiner, max_norm)

    def _combine(self, ids: tf.SparseTensor, sp_weights: tf.SparseTensor | None, combiner: str,
                 max_norm: float | None) -> tf.Tensor:
        rows = self._lookup(ids.values, max_norm)
        bags, count = ids.indices[:, 0], ids.dense_shape[0]
        if sp_weights is None:
            weights = tf.ones_like(rows[:, :1])
        else:
            weights = tf.cast(sp_weights.values, tf.float32)[:, tf.newaxis]
        combined = tf.math.unsorted_segment_sum(rows * weights, bags, count)
        if combiner == "mean":
            divisor = tf.math.unsorted_segment_sum(weights, bags, count)
        elif combiner == "sqrtn":
            divisor = tf.sqrt(tf.math.unsorted_segment_sum(weights * weights, bags, count))
        else:
            divisor = tf.ones([], tf.float32)
        combined = tf.math.divide_no_nan(combined, divisor)
        return tf.ensure_shape(combined, [ids.shape[0], self.emb_vec_size])
