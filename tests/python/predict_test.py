"""Predictions of a model with a dense network by hps.Client."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import numpy as np
import support
import torch

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
ANY_PORT = "127.0.0.1:0"
WAIT_S = 120
ERROR_MAX = 1e-5


def has_openvino() -> bool:
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(r"^HPS_OPENVINO:BOOL=ON$", options, re.MULTILINE) is not None


@unittest.skipUnless(has_openvino(), "this build runs no dense networks")
class PredictTest(support.StoreTestCase):
    def run_command(self, *command: object) -> None:
        subprocess.run([str(part) for part in command], check=True, timeout=WAIT_S,
                       capture_output=True)

    def test_predictions_are_those_of_pytorch(self) -> None:
        onnx, model = self.directory / "onnx", self.directory / "model"
        self.run_command(sys.executable, ROOT / "examples" / "models" / "export.py", "dcn", onnx)
        self.run_command(HPS, "split-onnx", onnx / "model.onnx", "--out", model)
        self.run_command(HPS, "import", "--store", self.path, "--model", "dcn", "--from", model)
        with np.load(onnx / "samples.npz") as file:
            samples = dict(file)
        inputs = {"dense": samples["dense"]} | {
            f"{name}_embedding": samples[name] for name in ("user", "item", "history")}
        with hps.serve(self.path, http=ANY_PORT, grpc="", metrics="") as server:
            client = hps.Client(server.url)
            scores = client.predict("dcn", inputs)["score"]
            np.testing.assert_allclose(scores, samples["score"], atol=ERROR_MAX)
            some = client.session("dcn").predict(inputs, outputs=["score", "user_embedding"])
            self.assertEqual(some["user_embedding"].shape, (len(scores), 8))
            tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
            self.assertIsInstance(client.predict("dcn", tensors)["score"], torch.Tensor)
            with self.assertRaisesRegex(hps.InvalidArgumentError, "'dense' is missing"):
                client.predict("dcn", {name: inputs[name] for name in inputs if name != "dense"})
            client.close()


if __name__ == "__main__":
    unittest.main()
