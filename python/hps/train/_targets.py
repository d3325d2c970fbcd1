"""Where `EmbeddingCollection.publish` sends changed rows."""

import http.client
import json
import ssl
import urllib.parse

import numpy as np

_BYTES_MAX = 8 << 20  # of one change; a store and a server take 16 MiB


def _pieces(count: int, item_bytes: int):
    step = max(1, _BYTES_MAX // item_bytes)
    return [slice(at, at + step) for at in range(0, count, step)]


class ProducerTarget:
    """The update stream: one `hps.Producer` for each table."""

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
    """An open `hps.Store` of this process."""

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
    """A server that takes direct changes (docs/row_changes.md), with the administrator's token."""

    def __init__(self, url, model, token=None, timeout=30.0, ca_file=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                parts.netloc, timeout=timeout, context=ssl.create_default_context(cafile=ca_file))
        else:
            self._connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
        self._path = f"{parts.path.rstrip('/')}/v2/hps/tables/{model}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def upsert(self, table, keys, rows):
        for piece in _pieces(len(keys), 8 + rows[:1].nbytes):
            self._post(table, [("keys", "INT64", keys[piece]), ("rows", "FP32", rows[piece])], {})

    def delete(self, table, keys):
        for piece in _pieces(len(keys), 8):
            self._post(table, [("keys", "INT64", keys[piece])], {"delete": True})

    def flush(self):
        """Changes are durable already."""

    def close(self):
        self._connection.close()

    def _post(self, table, tensors, parameters):
        inputs = [{"name": name, "datatype": datatype, "shape": list(array.shape),
                   "parameters": {"binary_data_size": array.nbytes}}
                  for name, datatype, array in tensors]
        head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        body = head + b"".join(np.ascontiguousarray(array).tobytes() for _, _, array in tensors)
        head_size = {"Inference-Header-Content-Length": str(len(head))}
        status, answer = self._answer(f"{self._path}/{table}/rows", body, head_size | self._headers)
        if status != 200:
            raise RuntimeError(f"change of table {table!r}: HTTP {status}: "
                               f"{answer.decode(errors='replace')}")

    def _answer(self, path, body, headers):
        """(status, body). A connection that the server has closed since its last use is made anew:
        a change that came twice leaves the same rows."""
        was_used = self._connection.sock is not None
        try:
            return self._answer_once(path, body, headers)
        except ConnectionError:
            if not was_used:
                raise
        return self._answer_once(path, body, headers)

    def _answer_once(self, path, body, headers):
        try:
            self._connection.request("POST", path, body, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self._connection.close()  # or its next request fails, because this one has no answer
            raise
