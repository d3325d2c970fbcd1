"""The producer of the update stream."""

from __future__ import annotations

import time
from typing import Any

from hps import _hps
from hps._admin import _key_memory, _row_memory
from hps._arguments import seconds
from hps._errors import DeadlineExceededError, InvalidArgumentError

# A wait is made in pieces, so that Ctrl-C can end it.
_PIECE_S = 0.2


class Producer:
    """Publishes changed rows of one table to its Kafka topic, from which every node that serves the
    table reads them. A context manager, which flushes at the end. Any thread may use it.

    brokers: "host:port,host:port".
    table: "model/table". Its topic, hps_et.MODEL.TABLE, must exist.
    dim, dtype: those of the table; dtype is "float32", "float16" or "bfloat16".
    kafka: more settings of librdkafka, by name.
    docs/updates.md says what is guaranteed. Calls raise NotFoundError (no such topic),
    UnavailableError (no broker answers), PermissionDeniedError, or FailedPreconditionError (the
    topic got another number of partitions: make a new producer).
    """

    def __init__(self, brokers: str, table: str, dim: int, *, dtype: str = "float32",
                 kafka: dict[str, str] | None = None):
        if dtype not in ("float32", "float16", "bfloat16"):
            raise InvalidArgumentError("dtype: expected 'float32', 'float16' or 'bfloat16', found "
                                       f"{dtype!r}")
        self._producer = _hps.producer(brokers, table, dim, dtype, kafka or {})
        self.table = table

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def upsert(self, keys: Any, rows: Any, *, timeout: float = 30.0) -> None:
        """Publishes rows [n, dim] of the keys [n], in the table's type, or in float32, which
        becomes its nearest values (those beyond it are an InvalidArgumentError).

        timeout: longest wait in seconds, if too many rows are not delivered yet; then
            DeadlineExceededError. Ctrl-C does not end this wait.
        """
        if rows is None:
            raise InvalidArgumentError("rows: expected an array; `delete` publishes deletes")
        self._producer.publish(_key_memory(keys), _row_memory(rows),
                               seconds(timeout, "timeout"))

    def delete(self, keys: Any, *, timeout: float = 30.0) -> None:
        """Publishes that the keys [n] are deleted; otherwise as `upsert`."""
        self._producer.publish(_key_memory(keys), None, seconds(timeout, "timeout"))

    def flush(self, timeout: float = 30.0) -> None:
        """Returns when every row is on all in-sync replicas. Raises DeadlineExceededError, or the
        first error of a message since the last flush."""
        end = time.monotonic() + seconds(timeout, "timeout")
        while True:
            left = end - time.monotonic()
            try:
                return self._producer.flush(max(min(left, _PIECE_S), 0.0))
            except DeadlineExceededError:
                if left <= _PIECE_S:
                    raise

    def statistics(self) -> dict:
        """Numbers of rows and messages: accepted, delivered, failed."""
        return self._producer.statistics()

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic."""
        return self._producer.partitions()

    def close(self) -> None:
        """Ends the producer. Messages that were not flushed are lost."""
        self._producer.close()
