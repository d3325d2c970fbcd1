"""Predictions of one model, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hps import _hps
from hps._arrays import kind_of
from hps._errors import InvalidArgumentError

_DATATYPES = {"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32",
              "uint64": "UINT64", "int8": "INT8", "int16": "INT16", "int32": "INT32",
              "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64"}
_DTYPES = {"FP32": np.float32, "UINT8": np.uint8}  # of outputs


class Model:
    """Predictions of one model of a store. Made by `Store.model`; any thread may call it.

    It follows the model: each call answers from the version that is loaded then. A switch
    (`Store.load`, an import) compiles the new network before it returns, and calls are answered
    from the former version meanwhile. At most [server] lookups calls (default: one per core) run
    at a time; further calls wait.
    """

    def __init__(self, store: Any, name: str):
        self._model = _hps.model(store._store, name)
        self._store = store
        self.model = name

    def __reduce__(self) -> tuple:  # as that of a `Store`
        return _make_model, (self._store, self.model)

    def predict(self, inputs: Mapping[str, Any], *, outputs: list[str] | None = None,
                timeout: float | None = None) -> dict[str, Any]:
        """Outputs of the model by name, as NumPy arrays (torch tensors for torch tensors).

        The arguments and results are those of `Client.predict`:
        inputs: by name, the keys of each table that the network reads, [batch] or [batch, k]
            (ragged: NAME [n] and NAME.offsets [batch + 1]), and the network's other inputs, in its
            types.
        outputs: names of the outputs to return; None: all outputs of the network.
        timeout: longest wait in seconds, for rows and for other calls. The network's own time is
            not included. None: the setting [lookup] timeout.
        Raises: InvalidArgumentError, NotFoundError (an input or output, which the message names),
        OutOfRangeError (too many keys, or too large an answer), DeadlineExceededError,
        UnavailableError (the model is not loaded), FailedPreconditionError (closed).
        """
        kind = kind_of(next(iter(inputs.values()), None))
        tensors = [_tensor(name, value) for name, value in inputs.items()]
        answer = self._model.predict(tensors, list(outputs or ()), timeout)
        found = {name: memory.view(_DTYPES[datatype]).reshape(shape)
                 for name, datatype, shape, memory in answer}
        if kind.name != "torch":
            return found
        import torch
        return {name: torch.from_numpy(array) for name, array in found.items()}

    def close(self) -> None:
        """Gives the network's memory back. Later calls raise FailedPreconditionError."""
        self._model.close()


def _make_model(store: Any, name: str) -> Model:
    """The model of a pickle."""
    return store.model(name)


def _tensor(name: str, value: Any) -> tuple[str, str, list[int], np.ndarray]:
    array = np.asarray(value)
    shape = list(array.shape)
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None or not array.dtype.isnative:
        raise InvalidArgumentError(f"input '{name}': {array.dtype} is not a type of the protocol")
    return name, datatype, shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)
