"""A dense network as a model of Triton's Python backend: ONNX Runtime computes it from the rows.

Parameters of its config.pbtxt: `network`, the path of the ONNX file, and `threads` of each
instance. The program that installs it puts the path of the packages in the place of PACKAGES.
"""

import json
import sys

sys.path.insert(0, "PACKAGES")

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402  (of the backend)


class TritonPythonModel:
    def initialize(self, arguments):
        parameters = json.loads(arguments["model_config"])["parameters"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["threads"]["string_value"])
        self.session = onnxruntime.InferenceSession(
            parameters["network"]["string_value"], options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.session.get_inputs()]

    def execute(self, requests):
        """Requests that Triton hands over together go through the network in one run."""
        feeds = {}
        for name in self.inputs:
            parts = [triton.get_input_tensor_by_name(request, name).as_numpy()
                     for request in requests]
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
            feeds[name] = whole.reshape(len(whole), -1)  # rows come as [batch, 1, dim]
        scores = self.session.run(["score"], feeds)[0].reshape(-1, 1)
        ends = np.cumsum([len(part) for part in parts])
        return [triton.InferenceResponse(output_tensors=[triton.Tensor("score", part)])
                for part in np.split(scores, ends[:-1])]
