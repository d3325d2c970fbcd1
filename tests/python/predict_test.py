"""Predictions of a model with a dense network, by hps.Client and in this process."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np
import support
import torch
from waiting import WAIT_S

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
ANY_PORT = "127.0.0.1:0"
ERROR_MAX = 1e-5


def has_openvino() -> bool:
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(r"^HPS_OPENVINO:BOOL=ON$", options, re.MULTILINE) is not None


@unittest.skipUnless(has_openvino(), "this build runs no dense networks")
class PredictTest(support.StoreTestCase):
    def run_command(self, *command: object) -> None:
        subprocess.run([str(part) for part in command], check=True, timeout=WAIT_S,
                       capture_output=True)

    def make_model(self) -> tuple[dict, np.ndarray]:
        """Imports a model into self.path; inputs, and the scores of PyTorch for them."""
        onnx, model = self.directory / "onnx", self.directory / "model"
        self.run_command(sys.executable, ROOT / "examples" / "models" / "export.py", "dcn", onnx)
        self.run_command(HPS, "split-onnx", onnx / "model.onnx", "--out", model)
        self.run_command(HPS, "import", "--store", self.path, "--model", "dcn", "--from", model)
        with np.load(onnx / "samples.npz") as file:
            samples = dict(file)
        inputs = {"dense": samples["dense"]} | {
            f"{name}_embedding": samples[name] for name in ("user", "item", "history")}
        return inputs, samples["score"]

    def test_predictions_are_those_of_pytorch(self) -> None:
        inputs, expected = self.make_model()
        with support.open_patiently(self.path) as store:
            embedded = store.model("dcn").predict(inputs)["score"]
            self.check_embedded(store, inputs, expected)
            refusals = self.refusals(store.model("dcn"), inputs)
            self.assertNotIn("none", refusals)
        with hps.serve(self.path, http=ANY_PORT, grpc="", metrics="") as server:
            client = hps.Client(server.url)
            scores = client.predict("dcn", inputs)["score"]
            np.testing.assert_allclose(scores, expected, atol=ERROR_MAX)
            np.testing.assert_allclose(scores, embedded, atol=1e-6)
            some = client.session("dcn").predict(inputs, outputs=["score", "user_embedding"])
            self.assertEqual(some["user_embedding"].shape, (len(scores), 8))
            tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
            self.assertIsInstance(client.predict("dcn", tensors)["score"], torch.Tensor)
            with self.assertRaisesRegex(hps.InvalidArgumentError, "'dense' is missing"):
                client.predict("dcn", {name: inputs[name] for name in inputs if name != "dense"})
            self.assertEqual(self.refusals(client.session("dcn"), inputs), refusals)
            client.close()

    def check_embedded(self, store: hps.Store, inputs: dict, expected: np.ndarray) -> None:
        model = store.model("dcn")
        answer = model.predict(inputs)
        self.assertEqual(list(answer), ["score"])
        self.assertEqual(answer["score"].dtype, np.float32)
        np.testing.assert_allclose(answer["score"], expected, atol=ERROR_MAX)
        some = model.predict(inputs, outputs=["score", "user_embedding", "user_embedding.status"])
        rows = store.session("dcn").lookup("user_embedding", inputs["user_embedding"])
        np.testing.assert_array_equal(some["user_embedding"], rows)
        self.assertEqual(some["user_embedding.status"].dtype, np.uint8)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        score = model.predict(tensors)["score"]
        self.assertIsInstance(score, torch.Tensor)
        np.testing.assert_allclose(score.numpy(), expected, atol=ERROR_MAX)
        self.check_bags(model, inputs)
        self.check_threads(model, inputs, expected)

    def check_bags(self, model: hps.Model, inputs: dict) -> None:
        """Ragged bags of the same keys give the same scores."""
        history = inputs["history_embedding"]
        self.assertEqual(history.ndim, 2)
        count, width = history.shape
        ragged = inputs | {
            "history_embedding": history.reshape(-1),
            "history_embedding.offsets": np.arange(count + 1, dtype=np.int64) * width}
        np.testing.assert_allclose(model.predict(ragged)["score"], model.predict(inputs)["score"],
                                   atol=1e-6)

    def check_threads(self, model: hps.Model, inputs: dict, expected: np.ndarray) -> None:
        wrong = []

        def ask(begin: int) -> None:
            part = {name: array[begin:begin + 5] for name, array in inputs.items()}
            for _ in range(20):
                score = model.predict(part)["score"]
                if not np.allclose(score, expected[begin:begin + 5], atol=ERROR_MAX):
                    wrong.append(begin)

        threads = [threading.Thread(target=ask, args=(begin,)) for begin in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @staticmethod
    def refusals(model: hps.Model | hps._client.ClientSession, inputs: dict) -> list[str]:
        """The kinds of the errors that wrong requests get."""
        nan = inputs["dense"].copy()
        nan[0] = np.nan
        wrong = [{name: inputs[name] for name in inputs if name != "dense"},
                 inputs | {"dense": nan}, inputs | {"dense": inputs["dense"][:-1]},
                 inputs | {"dense": inputs["dense"].astype(np.float64)},
                 inputs | {"denes": inputs["dense"]},
                 inputs | {"dense": inputs["dense"].astype("M8[s]")}]
        found = []
        for request in wrong:
            try:
                model.predict(request)
                found.append("none")
            except hps.Error as error:
                found.append(type(error).__name__)
        return found

    def test_what_is_wrong_is_said(self) -> None:
        inputs, _ = self.make_model()
        keys = np.arange(10)
        hps.import_table(self.path, "rows/t", keys, np.ones((10, 4), np.float32))
        with hps.open(self.path) as store:
            with self.assertRaisesRegex(hps.NotFoundError, "dcn"):
                store.model("dnc")
            model = store.model("dcn")
            with self.assertRaisesRegex(hps.InvalidArgumentError, "'dense' is missing"):
                model.predict({name: inputs[name] for name in inputs if name != "dense"})
            with self.assertRaisesRegex(hps.NotFoundError, "scores"):
                model.predict(inputs, outputs=["scores"])
            self.assertEqual(store.model("rows").predict({"t": keys})["t"].shape, (10, 4))
            model.close()
            with self.assertRaisesRegex(hps.FailedPreconditionError, "model is closed"):
                model.predict(inputs)
            last = store.model("dcn")
        with self.assertRaisesRegex(hps.FailedPreconditionError, "model is closed"):
            last.predict(inputs)

    def test_networks_are_tried_in_a_process_of_their_own(self) -> None:
        """A network that fails there is refused, and what the store has stays."""
        self.make_model()
        package = self.directory / "site" / "hps"
        shutil.copytree(pathlib.Path(hps.__file__).parent, package,
                        ignore=shutil.ignore_patterns("__pycache__"))
        program = package / "_check_network"
        program.write_text("#!/bin/sh\necho it does not run\nexit 1\n")
        model = str(self.directory / "model")
        script = ("import hps\n"
                  f"with hps.open({str(self.path)!r}, mode='rw') as store:\n"
                  "    try:\n"
                  f"        store.import_table('dcn', from_path={model!r})\n"
                  "    except hps.InvalidArgumentError as error:\n        print(error)\n"
                  "    print(len(store.tables()), 'tables')\n")
        done = subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT_S, text=True,
                              capture_output=True, env=os.environ | {
                                  "PYTHONPATH": str(package.parent)})
        self.assertIn("a process of its own: it does not run", done.stdout)
        with hps.open(self.path) as store:
            self.assertIn(f"{len(store.tables())} tables", done.stdout)

    def test_a_package_without_openvino(self) -> None:
        """It can be imported, and says what it lacks."""
        self.make_model()
        package = self.directory / "site" / "hps"
        shutil.copytree(pathlib.Path(hps.__file__).parent, package,
                        ignore=shutil.ignore_patterns("_openvino.so", "__pycache__"))
        script = ("import hps\n"
                  f"with hps.open({str(self.path)!r}) as store:\n"
                  "    try:\n        store.model('dcn')\n"
                  "    except hps.UnimplementedError as error:\n        print(error)\n")
        done = subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT_S, text=True,
                              capture_output=True, env=os.environ | {
                                  "PYTHONPATH": str(package.parent)})
        self.assertIn("pip install 'hps[openvino]'", done.stdout)


if __name__ == "__main__":
    unittest.main()
