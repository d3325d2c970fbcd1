"""A hierarchical parameter server for recommendation inference.

    store = hps.open("/tmp/store")
    session = store.session("dlrm")
    rows = session.lookup("t0", np.array([1, 2], np.int64))

docs/python.md has a tutorial, docs/python_reference.md every public name.
"""

import importlib.metadata

from hps._admin import drop, generate, import_table, inspect, verify
from hps._client import Client
from hps._errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError,
                         DeadlineExceededError, Error, FailedPreconditionError, InternalError,
                         InvalidArgumentError, NotFoundError, OutOfRangeError,
                         PermissionDeniedError, ResourceExhaustedError, UnauthenticatedError,
                         UnavailableError, UnimplementedError, UnknownError)
from hps._model import Model
from hps._producer import Producer
from hps._server import Server, serve
from hps._session import Session, Status
from hps._store import Store, open  # noqa: A004, the name of the API

__version__ = importlib.metadata.version("hps")

__all__ = [
    "AbortedError", "AlreadyExistsError", "CancelledError", "Client", "DataLossError",
    "DeadlineExceededError", "Error", "FailedPreconditionError", "InternalError",
    "InvalidArgumentError", "Model", "NotFoundError", "OutOfRangeError", "PermissionDeniedError",
    "Producer", "ResourceExhaustedError", "Server", "Session", "Status", "Store",
    "UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError", "drop",
    "generate", "import_table", "inspect", "open", "serve", "verify"]
