"""Puts any bytes into a topic, as somebody may who does not use `hps publish`: librdkafka and
xxhash by ctypes. And the message format of docs/updates.md with any field wrong.

    producer = RawProducer(brokers.bootstrap)
    producer.send("topic", partition, payload)
    producer.flush()
"""

import ctypes
import struct

import numpy as np

COPY = 2  # RD_KAFKA_MSG_F_COPY
MESSAGE_BYTES_MAX = 32 << 20
FLUSH_MS = 30_000

_kafka = ctypes.CDLL("librdkafka.so.1")
for _name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new"):
    getattr(_kafka, _name).restype = ctypes.c_void_p
_kafka.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                     ctypes.c_char_p, ctypes.c_size_t]
_kafka.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
_kafka.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_kafka.rd_kafka_produce.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_char_p,
                                    ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
                                    ctypes.c_void_p]
_kafka.rd_kafka_producev.argtypes = [ctypes.c_void_p]  # and those of the C function's "..."
for _name in ("rd_kafka_topic_destroy", "rd_kafka_destroy"):
    getattr(_kafka, _name).argtypes = [ctypes.c_void_p]
    getattr(_kafka, _name).restype = None
_kafka.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH64.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
_xxhash.XXH64.restype = ctypes.c_uint64


class RawProducer:
    def __init__(self, bootstrap: str) -> None:
        text = ctypes.create_string_buffer(512)
        settings = _kafka.rd_kafka_conf_new()
        for name, value in (("bootstrap.servers", bootstrap),
                            ("message.max.bytes", str(MESSAGE_BYTES_MAX))):
            if _kafka.rd_kafka_conf_set(settings, name.encode(), value.encode(), text, 512):
                raise RuntimeError(text.value.decode())
        self._client = _kafka.rd_kafka_new(0, settings, text, 512)  # 0 = a producer
        if not self._client:
            raise RuntimeError(text.value.decode())
        self._topics: dict[str, int] = {}

    def send(self, topic: str, partition: int, payload: bytes) -> None:
        if topic not in self._topics:
            self._topics[topic] = _kafka.rd_kafka_topic_new(self._client, topic.encode(), None)
        if _kafka.rd_kafka_produce(self._topics[topic], partition, COPY, payload, len(payload),
                                   None, 0, None):
            raise RuntimeError(f"{topic}: the message was not taken")

    def send_with_count(self, topic: str, partition: int, payload: bytes, partitions: int) -> None:
        """With the header of a producer that distributes keys over so many partitions."""
        size, number = ctypes.c_size_t, ctypes.c_int
        topic_tag, partition_tag, value_tag, flags_tag, header_tag, end_tag = map(
            number, (1, 3, 4, 7, 9, 0))  # RD_KAFKA_VTYPE_*
        if _kafka.rd_kafka_producev(
                self._client, topic_tag, topic.encode(), partition_tag, ctypes.c_int32(partition),
                value_tag, payload, size(len(payload)), flags_tag, number(COPY), header_tag,
                b"hps-partitions", struct.pack("<I", partitions), size(4), end_tag):
            raise RuntimeError(f"{topic}: the message was not taken")

    def flush(self) -> None:
        """Whether the messages have come is told by the topic's end."""
        if _kafka.rd_kafka_flush(self._client, FLUSH_MS):
            raise RuntimeError("messages were not sent in time")

    def close(self) -> None:
        for topic in self._topics.values():
            _kafka.rd_kafka_topic_destroy(topic)
        _kafka.rd_kafka_destroy(self._client)


def partition_of(key: int, partitions: int) -> int:
    return _xxhash.XXH64(struct.pack("<q", key), 8, 0) % partitions


def seal(body: bytes) -> bytes:
    """Adds the right checksum."""
    return body + struct.pack("<Q", _xxhash.XXH3_64bits(body, len(body)))


def message(table: str, keys: np.ndarray, rows: np.ndarray, **wrong) -> bytes:
    """An upsert of float32 rows in format 1. `wrong` replaces fields: format, kind, dtype, dim,
    count, name_bytes. The checksum is right."""
    fields = {"format": 1, "kind": 0, "dtype": 1, "dim": rows.shape[1], "count": len(keys),
              "name_bytes": len(table)} | wrong
    head = struct.pack("<4sHBBIIqH6x", b"HPSU", fields["format"], fields["kind"], fields["dtype"],
                       fields["dim"], fields["count"], 0, fields["name_bytes"])
    name = table.encode().ljust((len(table) + 7) // 8 * 8, b"\0")
    return seal(head + name + keys.astype("<i8").tobytes() + rows.astype("<f4").tobytes())


def hugectr(row_bytes: int, body: bytes) -> bytes:
    return b"HCTR" + struct.pack("<I", row_bytes) + body
