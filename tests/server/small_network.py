"""Dense networks of one product, written without the package of ONNX: a test that has Python and
NumPy alone can serve them."""

import numpy as np

from support import TABLES, stamped

WIDTH = TABLES["user"]
WEIGHTS = np.linspace(-2e-4, 3e-4, WIDTH, dtype="<f4")
FLOAT, INT64 = 1, 7


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name: str, width: int) -> bytes:
    shape = field(1, field(2, "batch")) + field(1, field(1, width))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape)))


def constant(name: str, kind: int, array: np.ndarray) -> bytes:
    dims = b"".join(field(1, dim) for dim in array.shape)
    return dims + field(2, kind) + field(8, name) + field(9, array.tobytes())


def node(operator: str, inputs: list[str], output: str) -> bytes:
    return (b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, output)
            + field(4, operator))


def network(last: bytes) -> bytes:
    """ONNX: score [batch, 1] = `last` of the node "product", the rows of `user` times WEIGHTS."""
    graph = (field(1, node("MatMul", ["user", "weights"], "product")) + field(1, last)
             + field(2, "test") + field(5, constant("weights", FLOAT, WEIGHTS.reshape(-1, 1)))
             + field(5, constant("axis", INT64, np.array(1, "<i8")))
             + field(11, value_info("user", WIDTH)) + field(12, value_info("score", 1)))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


SIGMOID = network(node("Sigmoid", ["product"], "score"))
# Of one number, it is that number; the GPU does not run it.
CUMSUM = network(node("CumSum", ["product", "axis"], "score"))


def products(keys: np.ndarray) -> np.ndarray:
    """The node "product" of these keys' rows, as stamped."""
    return stamped("user", keys).astype(np.float64) @ WEIGHTS.astype(np.float64)
