"""Where `hps serve` runs a dense network: on the GPU of level 1, or on the CPU.

What needs a GPU is skipped without one. Set HPS_COMMAND to the command of a build with CUDA
(`make gpu`), or of a pack of one (tools/gpu_pack.sh); the machine needs libcublasLt.so.13.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
import support  # noqa: E402
from small_network import CUMSUM, SIGMOID, products  # noqa: E402
from support import MODEL, TABLES, stamped  # noqa: E402

BATCHES = (1, 7, 64, 5000)  # from the host the last one takes two runs
ON_GPU = "[l1]\ndevices = [0]\nbytes_max = 268435456\n"


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None or not support.is_built_with("CUDA"):
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return "GPU 0" in listed.stdout


@unittest.skipUnless(support.is_built_with("OPENVINO"), "this build runs no dense networks")
class DenseDeviceTest(support.ServerTestCase):
    def start(self, onnx: bytes, settings: str = "", sections: str = "") -> support.RunningServer:
        (self.directory / "dense.onnx").write_bytes(onnx)
        models = (f'[[model]]\nname = "{MODEL}"\ntables = {json.dumps(list(TABLES))}\n'
                  'dense = "dense.onnx"\n')
        return self.serve_ready(f"lookups = 3\n{settings}", sections=sections, models=models)

    def infer(self, server: support.RunningServer, inputs: dict[str, np.ndarray],
              outputs: tuple[str, ...] = ("score",)) -> dict[str, np.ndarray]:
        body = {"inputs": [{"name": name, "datatype": "INT64", "shape": list(array.shape),
                            "data": array.ravel().tolist()} for name, array in inputs.items()],
                "outputs": [{"name": name} for name in outputs]}
        status, answer = server.get(f"/v2/models/{MODEL}/infer", data=json.dumps(body).encode(),
                                    method="POST")
        self.assertEqual(status, 200, answer[:300])
        return {output["name"]: np.array(output["data"]).reshape(output["shape"])
                for output in json.loads(answer)["outputs"]}

    def scores(self, server: support.RunningServer, keys: np.ndarray) -> np.ndarray:
        return self.infer(server, {"user": keys})["score"].ravel()

    def runs(self, server: support.RunningServer) -> dict[str, float]:
        """Runs of the network, by place."""
        text = server.get("/metrics")[1].decode()
        found = re.findall(r'^hps_network_runs_total\{model="ctr",place="(\w+)"\} (\S+)', text,
                           re.MULTILINE)
        return {place: float(count) for place, count in found}

    def log(self) -> str:
        return (self.directory / "hps.log").read_text(encoding="utf-8")

    def check_sigmoids(self, server: support.RunningServer, bound: float = 1e-5) -> None:
        for batch in BATCHES:
            keys = self.keys(batch)
            np.testing.assert_allclose(self.scores(server, keys),
                                       1 / (1 + np.exp(-products(keys))), atol=bound)

    def test_runs_on_the_cpu_if_the_setting_says_so(self) -> None:
        server = self.start(SIGMOID, 'dense_device = "cpu"', ON_GPU if has_gpu() else "")
        self.check_sigmoids(server)
        self.assertEqual(self.runs(server), {"gpu": 0, "cpu": len(BATCHES) + 1, "cpu_after_gpu": 0})

    @unittest.skipUnless(has_gpu(), "needs a GPU and a build with CUDA")
    def test_runs_on_the_gpu_of_level_1(self) -> None:
        server = self.start(SIGMOID, sections=ON_GPU)
        self.check_sigmoids(server)
        self.assertEqual(self.runs(server), {"gpu": len(BATCHES), "cpu": 0, "cpu_after_gpu": 0})
        self.assertNotIn("the dense network runs on the CPU", self.log())

    @unittest.skipUnless(has_gpu(), "needs a GPU and a build with CUDA")
    def test_computes_in_the_types_of_the_setting(self) -> None:
        for math, bound in (("tf32", 1e-3), ("float16", 2e-3), ("bfloat16", 1.5e-2)):
            with self.subTest(math=math):
                server = self.start(SIGMOID, f'dense_math = "{math}"', ON_GPU)
                self.check_sigmoids(server, bound)
                self.assertEqual(self.runs(server)["gpu"], len(BATCHES))
                self.assertEqual(server.stop(), 0)

    @unittest.skipUnless(has_gpu(), "needs a GPU and a build with CUDA")
    def test_bags_are_pooled_on_the_gpu(self) -> None:
        """Also where rows are asked for, which go through the host then."""
        server = self.start(SIGMOID, sections=ON_GPU)
        for batch in (1, 5, 700):
            offsets = np.cumsum([0, *(number % 4 for number in range(batch))])
            keys = self.keys(int(offsets[-1]))
            sums = np.array([products(keys)[begin:end].sum()
                             for begin, end in zip(offsets, offsets[1:], strict=False)])
            inputs = {"user": keys, "user.offsets": offsets}
            expected = 1 / (1 + np.exp(-sums))
            np.testing.assert_allclose(self.infer(server, inputs)["score"].ravel(), expected,
                                       atol=1e-5)
            both = self.infer(server, inputs, ("user", "score"))
            np.testing.assert_allclose(both["score"].ravel(), expected, atol=1e-5)
            np.testing.assert_array_equal(both["user"], stamped("user", keys))
        self.assertEqual(self.runs(server), {"gpu": 6, "cpu": 0, "cpu_after_gpu": 0})
        self.assertNotIn("take their rows through the host", self.log())

    @unittest.skipUnless(has_gpu(), "needs a GPU and a build with CUDA")
    def test_lookup_slots_share_the_gpu(self) -> None:
        server = self.start(SIGMOID, sections=ON_GPU)
        errors: list[BaseException] = []
        all_keys = [self.keys(50 * (number + 1)) for number in range(8)]

        def ask(keys: np.ndarray) -> None:
            try:
                for _ in range(20):
                    np.testing.assert_allclose(self.scores(server, keys),
                                               1 / (1 + np.exp(-products(keys))), atol=1e-5)
            except BaseException as error:  # noqa: BLE001: told by the test's own thread
                errors.append(error)

        askers = [threading.Thread(target=ask, args=(keys,)) for keys in all_keys]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        if errors:
            raise errors[0]
        runs = self.runs(server)
        self.assertGreater(runs["gpu"], 0)
        self.assertEqual((runs["cpu"], runs["cpu_after_gpu"]), (0, 0))

    @unittest.skipUnless(has_gpu(), "needs a GPU and a build with CUDA")
    def test_an_operator_that_the_gpu_lacks_is_a_warning(self) -> None:
        server = self.start(CUMSUM, sections=ON_GPU)
        for batch in BATCHES:
            keys = self.keys(batch)
            np.testing.assert_allclose(self.scores(server, keys), products(keys), atol=1e-4)
        self.assertEqual(self.runs(server), {"gpu": 0, "cpu": len(BATCHES) + 1, "cpu_after_gpu": 0})
        warnings = [line for line in self.log().splitlines()
                    if "the dense network runs on the CPU" in line]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("(CumSum)", warnings[0])


if __name__ == "__main__":
    unittest.main()
