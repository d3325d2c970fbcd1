"""Where `EmbeddingCollection.publish` sends changed rows."""

import http.client
import json
import time
import urllib.parse

import numpy as np

from hps._arguments import seconds, text
from hps._http import Connections, context_of, error_of, headers_of, parts_of

_BYTES_MAX = 8 << 20  # of one change; a store and a server take 16 MiB


def _pieces(count: int, item_bytes: int):
    step = max(1, _BYTES_MAX // item_bytes)
    return [slice(at, at + step) for at in range(0, count, step)]


class ProducerTarget:
    """Publishes to the update stream (docs/updates.md).

    producers: {table: hps.Producer}, by the names of the collection's tables.
    """

    def __init__(self, producers):
        self._producers = producers

    def upsert(self, table, keys, rows):
        self._producers[table].upsert(keys, rows)

    def delete(self, table, keys):
        self._producers[table].delete(keys)

    def flush(self):
        for producer in self._producers.values():
            producer.flush()


class StoreTarget:
    """Changes rows of an open `hps.Store` of this process.

    model: the model's name in the store.
    """

    def __init__(self, store, model):
        self._store, self._model = store, model

    def upsert(self, table, keys, rows):
        for piece in _pieces(len(keys), 8 + rows[:1].nbytes):
            self._store.apply(f"{self._model}/{table}", keys[piece], rows[piece])

    def delete(self, table, keys):
        for piece in _pieces(len(keys), 8):
            self._store.delete(f"{self._model}/{table}", keys[piece])

    def flush(self):
        """Changes are durable already."""


class ServerTarget:
    """Changes rows of a server that takes direct changes (docs/row_changes.md).

    url: "http://HOST:PORT" or "https://HOST:PORT". model: the model's name there.
    token: the administrator's token if the server has one, else its token.
    timeout: longest time of one request in seconds. A large change is several requests.
    ca_file: as of `hps.Client`.
    Any thread may use it. A call raises the exception for the code that the server answers,
    UnavailableError (no server there, or the connection broke) or DeadlineExceededError.
    """

    def __init__(self, url, model, token=None, timeout=30.0, ca_file=None):
        self._timeout = seconds(timeout, "timeout")
        self._headers = headers_of(token)
        host, port, path, is_tls = parts_of(url)
        self._connections = Connections(host, port, context_of(is_tls, ca_file))
        self._path = f"{path}/v2/hps/tables/{urllib.parse.quote(text(model, 'model'), safe='')}"

    def upsert(self, table, keys, rows):
        for piece in _pieces(len(keys), 8 + rows[:1].nbytes):
            self._post(table, [("keys", "INT64", keys[piece]), ("rows", "FP32", rows[piece])], {})

    def delete(self, table, keys):
        for piece in _pieces(len(keys), 8):
            self._post(table, [("keys", "INT64", keys[piece])], {"delete": True})

    def flush(self):
        """Changes are durable already."""

    def close(self):
        """Closes the connections that no call uses. A later call makes a new one."""
        self._connections.close()

    # Connections may send a change twice, which leaves the same rows.
    def _post(self, table, tensors, parameters):
        inputs = [{"name": name, "datatype": datatype, "shape": list(array.shape),
                   "parameters": {"binary_data_size": array.nbytes}}
                  for name, datatype, array in tensors]
        head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        body = head + b"".join(np.ascontiguousarray(array).tobytes() for _, _, array in tensors)
        head_size = {"Inference-Header-Content-Length": str(len(head))}
        answer = self._connections.request("POST", f"{self._path}/{table}/rows", body,
                                           head_size | self._headers,
                                           time.monotonic() + self._timeout)
        if answer.status != http.client.OK:
            error = error_of(answer, self._connections.url)
            raise type(error)(f"change of table {table!r}: {error}")
