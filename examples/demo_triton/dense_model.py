"""The dense part of the ensemble, as a model of Triton's Python backend: rows in, one score each.

demo_triton.py puts the path of the packages in the place of PACKAGES.
"""

import sys

sys.path.insert(0, "PACKAGES")

import numpy as np  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402  (of the backend)


def score(rows: np.ndarray) -> np.ndarray:
    """Two small layers with fixed weights."""
    width = rows.shape[1]
    first = np.cos(np.arange(width * 16, dtype=np.float32)).reshape(width, 16)
    second = np.sin(np.arange(16, dtype=np.float32))
    return 1 / (1 + np.exp(-(np.maximum(rows @ first, 0) @ second)))


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            rows = triton.get_input_tensor_by_name(request, "rows").as_numpy()
            output = triton.Tensor("score", score(rows).astype(np.float32))
            responses.append(triton.InferenceResponse(output_tensors=[output]))
        return responses
