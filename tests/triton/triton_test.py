"""The backend of Triton in a real tritonserver: lookups and predictions by every convention, errors
of single requests, loading again, unloading, and everything that a load refuses."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import triton_server
from triton_server import Triton

import ctr_test  # of tests/server, which triton_server has made known
import support
from support import HPS, MODEL, TABLES, stamped
from waiting import WAIT_S, await_true

SERVED = f'[[model]]\nname = "{MODEL}"\ntables = {json.dumps(list(TABLES))}\n'
TYPES = {"int64": "INT64", "int32": "INT32", "float32": "FP32"}


def infer(client, module, model: str, inputs: dict, outputs: tuple = (), **more) -> dict:
    tensors = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, list(array.shape), TYPES[str(array.dtype)])
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    wanted = [module.InferRequestedOutput(name) for name in outputs] or None
    answer = client.infer(model, tensors, outputs=wanted, **more)
    response = answer.get_response()
    if isinstance(response, dict):
        names = [output["name"] for output in response["outputs"]]
    else:
        names = [output.name for output in response.outputs]
    return {name: answer.as_numpy(name) for name in names}


def joint(keys: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A request of HugeCTR's convention."""
    counts = np.array([[len(keys.get(table, ())) for table in TABLES]], np.int32)
    flat = np.concatenate([keys[table] for table in TABLES if table in keys])
    return {"KEYS": flat[None], "NUMKEYS": counts}


def joint_rows(keys: dict[str, np.ndarray], version: int = 1) -> np.ndarray:
    return np.concatenate([stamped(table, keys[table], version).reshape(-1)
                           for table in TABLES if table in keys])


class TritonTestCase(support.ServerTestCase):
    def setUp(self) -> None:
        if triton_server.program() is None:
            self.skipTest("there is no Triton in .venv-bench: tools/bootstrap.sh bench")
        if not (triton_server.BACKEND / "libtriton_hps.so").exists():
            self.skipTest("this build has no backend of Triton")
        super().setUp()

    def configure(self, more: str = "", models: str = SERVED):
        path = self.directory / "hps.toml"
        path.write_text(f'[store]\npath = "store"\ncache_bytes = "64MiB"\n'
                        f'[l2]\nbytes_max = "64MiB"\n{support.PATIENCE}{more}\n{models}')
        return path

    def start(self, *arguments: str, load: tuple = ()) -> Triton:
        self.triton = Triton(self.directory, *arguments, load=load)
        self.addCleanup(self.triton.kill)
        http = http_client.InferenceServerClient(self.triton.http, concurrency=16)
        self.addCleanup(http.close)
        grpc = grpc_client.InferenceServerClient(self.triton.grpc)
        self.addCleanup(grpc.close)
        self.clients = ((http, http_client), (grpc, grpc_client))
        return self.triton

    def load(self, name: str = MODEL, more: str = "", config=None) -> None:
        self.triton.add_model(name, config or self.configure(), more)
        status, text = self.triton.load(name)
        self.assertEqual(status, 200, text + self.triton.log.read_text())

    def statistics(self, samples: int, model: str = MODEL) -> dict:
        """What Triton counted for `model`, when that is all of the `samples` that reached the
        backend. A request is counted after its answer was sent, the samples of a batch last."""
        def counted() -> dict | None:
            got = json.loads(self.triton.get(f"/v2/models/{model}/stats")[1])["model_stats"][0]
            executed = sum(batch["batch_size"] * batch["compute_infer"]["count"]
                           for batch in got.get("batch_stats", ()))
            return got if executed >= samples else None

        return await_true(counted, f"{samples} counted samples")

    def assert_refused(self, load: tuple[int, str], *parts: str) -> None:
        self.assertEqual(load[0], 400, load[1])
        for part in parts:
            self.assertIn(part, load[1])


class LookupTest(TritonTestCase):
    def test_rows_by_table_and_by_keys(self) -> None:
        self.start()
        self.load()
        keys = {"user": self.keys(7), "item": self.keys(3)}
        for client, module in self.clients:
            with self.subTest(client=module.__name__):
                answer = infer(client, module, MODEL, keys)
                self.assertEqual(sorted(answer), ["item", "user"])
                for table, rows in answer.items():
                    self.assert_stamped(table, keys[table], rows)
                # One table alone, with its status; an absent key gets the default row.
                some = np.array([keys["user"][0], ROWS_ABSENT], np.int64)
                answer = infer(client, module, MODEL, {"user": some}, ("user", "user.status"))
                self.assert_stamped("user", some[:1], answer["user"][:1])
                np.testing.assert_array_equal(answer["user"][1], np.full(8, -1, np.float32))
                self.assertEqual(answer["user.status"][1], 0)
                self.assertIn(answer["user.status"][0], (2, 3))
                # As HugeCTR's backend is asked.
                answer = infer(client, module, MODEL, joint(keys))
                self.assertEqual(list(answer), ["OUTPUT0"])
                np.testing.assert_array_equal(answer["OUTPUT0"], joint_rows(keys))
                answer = infer(client, module, MODEL, joint(keys), ("OUTPUT0.status", "OUTPUT0"))
                np.testing.assert_array_equal(answer["OUTPUT0"], joint_rows(keys))
                self.assertEqual(answer["OUTPUT0.status"].shape, (10,))
                answer = infer(client, module, MODEL, joint({"item": keys["item"]}))
                np.testing.assert_array_equal(answer["OUTPUT0"], joint_rows({"item": keys["item"]}))

    def test_a_configuration_of_hugectr(self) -> None:
        self.start()
        self.load(more="""max_batch_size: 1024
input [ { name: "KEYS" data_type: TYPE_INT64 dims: [ -1 ] },
        { name: "NUMKEYS" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
""")
        for client, module in self.clients:
            keys = {"user": self.keys(7), "item": self.keys(3)}
            for outputs in ((), ("OUTPUT0",)):
                answer = infer(client, module, MODEL, joint(keys), outputs)
                np.testing.assert_array_equal(answer["OUTPUT0"][0], joint_rows(keys))

    def test_all_declared_outputs_are_answered(self) -> None:
        self.start()
        keys = {"user": self.keys(7), "item": self.keys(3)}
        cases = (({"user": keys["user"]}, {"user": "[ -1, 8 ]", "user.status": "-1"}),
                 (joint(keys), {"OUTPUT0": "-1", "OUTPUT0.status": "-1"}))
        for inputs, declared in cases:
            self.load(more="".join(
                f'output {{ name: "{name}" dims: {dims} '
                f'data_type: TYPE_{"UINT8" if "status" in name else "FP32"} }}\n'
                for name, dims in declared.items()))
            for client, module in self.clients:
                for outputs in ((), tuple(declared)):
                    answer = infer(client, module, MODEL, inputs, outputs)
                    self.assertEqual(sorted(answer), sorted(declared))
            self.triton.unload(MODEL)
        # Of a client that names none and brings the keys of one table, that table is meant.
        self.load(more='output { name: "user" data_type: TYPE_FP32 dims: [ -1, 8 ] }\n'
                       'output { name: "item" data_type: TYPE_FP32 dims: [ -1, 16 ] }\n')
        for client, module in self.clients:
            answer = infer(client, module, MODEL, {"user": keys["user"]})
            self.assertEqual(list(answer), ["user"])
            self.assert_stamped("user", keys["user"], answer["user"])
            self.assertEqual(sorted(infer(client, module, MODEL, keys)), ["item", "user"])

    def test_a_table_named_output0_is_one_as_any_other(self) -> None:
        folder = self.directory / "odd" / "OUTPUT0"
        folder.mkdir(parents=True)
        np.save(folder / "keys.npy", np.arange(10))
        np.save(folder / "rows.npy", np.full((10, 4), 3.5, np.float32))
        subprocess.run([str(HPS), "import", "--store", str(self.directory / "store"), "--model",
                        "odd", "--from", str(self.directory / "odd")], check=True, timeout=WAIT_S,
                       stdout=subprocess.DEVNULL)
        self.start()
        self.load("odd", "max_batch_size: 8\n", self.configure(models=""))
        for client, module in self.clients:
            answer = infer(client, module, "odd", {"OUTPUT0": np.arange(6).reshape(2, 3)})
            self.assertEqual(answer["OUTPUT0.status"].shape, (2, 3))
            np.testing.assert_array_equal(answer["OUTPUT0"], np.full((2, 3, 4), 3.5, np.float32))

    def test_metadata_statistics_and_metrics(self) -> None:
        self.start()
        self.load()
        client, module = self.clients[0]
        inputs = {tensor["name"]: tensor for tensor in client.get_model_metadata(MODEL)["inputs"]}
        self.assertEqual(sorted(inputs), ["KEYS", "NUMKEYS", "item", "user"])
        config = client.get_model_config(MODEL)
        self.assertEqual(config["max_batch_size"], 0)
        self.assertEqual([group["kind"] for group in config["instance_group"]], ["KIND_CPU"])
        begun = time.monotonic()
        for _ in range(5):
            infer(client, module, MODEL, {"user": self.keys(4)})
        with self.assertRaises(Exception):
            infer(client, module, MODEL, {"user": self.keys(4, 2, 2)[0, 0].astype(np.float32)})
        statistics = self.statistics(5)
        self.assertEqual(statistics["inference_count"], 5)
        figures = statistics["inference_stats"]
        self.assertEqual(figures["success"]["count"], 5)
        spent_ns = (time.monotonic() - begun) * 1e9
        for name in ("queue", "compute_input", "compute_infer", "compute_output"):
            self.assertLess(figures[name]["ns"], 2 * spent_ns, name)
        metrics = self.triton.get("/metrics", self.triton.metrics)[1]
        counted = [line for line in metrics.splitlines()
                   if line.startswith("hps_lookup_keys_total") and f'model="{MODEL}"' in line]
        self.assertEqual(len(counted), 6)
        self.assertEqual(sum(float(line.split()[-1]) for line in counted), 20)

    def test_errors_of_requests(self) -> None:
        self.start()
        self.load()
        keys = self.keys(3)
        wrong = (({"KEYS": keys[None], "NUMKEYS": np.array([[9, 0]], np.int32)}, (), "NUMKEYS"),
                 ({"KEYS": keys[None], "NUMKEYS": np.array([[-1, 4]], np.int32)}, (), "NUMKEYS"),
                 ({"KEYS": keys[None]}, (), "'NUMKEYS' is missing"),
                 ({"user": keys}, ("item",), "the input 'item' is missing"),
                 ({"user": keys}, ("user.status",), "requires output 'user'"),
                 ({"usr": keys}, (), "usr"))
        for client, module in self.clients:
            for inputs, outputs, part in wrong:
                with self.subTest(client=module.__name__, part=part):
                    with self.assertRaises(Exception) as caught:
                        infer(client, module, MODEL, inputs, outputs)
                    self.assertIn(part, str(caught.exception))
            self.assert_stamped("user", keys, infer(client, module, MODEL, {"user": keys})["user"])

    def test_errors_are_of_one_request_in_a_batch(self) -> None:
        self.start()
        count = 12
        # Triton puts together only requests that bring the same inputs.
        self.load(more="max_batch_size: 64\ndynamic_batching { preferred_batch_size: 64 "
                       "max_queue_delay_microseconds: 300000 }\ninstance_group { count: 1 }\n")
        client, module = self.clients[0]
        waiting, keys = [], [{"user": self.keys(1 + i), "item": self.keys(2)} for i in range(count)]
        for i in range(count):
            inputs = joint(keys[i]) if i < count // 2 else {
                name: array[None] for name, array in keys[i].items()}
            if i == 5:
                inputs["NUMKEYS"] = np.array([[1, 1]], np.int32)
            tensors = []
            for name, array in inputs.items():
                tensors.append(module.InferInput(name, list(array.shape), TYPES[str(array.dtype)]))
                tensors[-1].set_data_from_numpy(array)
            waiting.append(client.async_infer(MODEL, tensors))
        for i, handle in enumerate(waiting):
            if i == 5:
                with self.assertRaisesRegex(Exception, "its sum is 2, but KEYS has"):
                    handle.get_result()
                continue
            answer = handle.get_result()
            if i < count // 2:
                self.assertEqual(answer.as_numpy("OUTPUT0").shape, (1, (1 + i) * 8 + 2 * 16))
                np.testing.assert_array_equal(answer.as_numpy("OUTPUT0")[0], joint_rows(keys[i]))
            else:
                self.assert_stamped("user", keys[i]["user"], answer.as_numpy("user")[0])
        statistics = self.statistics(count)
        self.assertLess(statistics["execution_count"], count, statistics)
        self.assertGreater(max(batch["batch_size"] for batch in statistics["batch_stats"]), 1)

    def test_a_time_out_is_honoured(self) -> None:
        config = self.configure('[server]\nlate_answers = "degraded"')
        self.start()
        self.load(config=config)
        for client, module in self.clients:
            keys = self.keys(50)
            late = infer(client, module, MODEL, {"user": keys}, ("user", "user.status"), timeout=1)
            # What had not come by then is a default row and says so.
            came = late["user.status"] != 5
            self.assertLess(came.sum(), 50)
            self.assert_stamped("user", keys[came], late["user"][came])
            answer = infer(client, module, MODEL, {"user": keys}, timeout=WAIT_S * 1_000_000)
            self.assert_stamped("user", keys, answer["user"])
        self.triton.unload(MODEL)
        self.load(config=self.configure('[server]\nlate_answers = "error"'))
        client, module = self.clients[0]
        with self.assertRaisesRegex(Exception, "not all come by the deadline") as late:
            infer(client, module, MODEL, {"user": self.keys(50)}, timeout=1)
        self.assertEqual(late.exception.status(), "503")


ROWS_ABSENT = support.ROWS + 7


class LifeTest(TritonTestCase):
    def ask_until(self, number: int, ended: threading.Event, failed: list, answered: list) -> None:
        random = np.random.default_rng(number)
        with http_client.InferenceServerClient(self.triton.http) as client:
            while not ended.is_set():
                keys = random.integers(0, support.ROWS, 20)
                try:
                    rows = infer(client, http_client, MODEL, {"user": keys})["user"]
                    versions = set((rows.astype(np.int64) // support.STAMP).flat)
                    if len(versions) != 1:
                        raise AssertionError(f"an answer of versions {versions}")
                    version = versions.pop()
                    self.assert_stamped("user", keys, rows, version)
                    answered.append(version)
                except Exception as error:  # noqa: BLE001  any is a failure of the test
                    failed.append(error)

    def touch_version(self) -> None:
        """Triton opens a model again only if its version's folder has changed."""
        folder = self.triton.models / MODEL / "1"
        later = folder.stat().st_mtime_ns + 2_000_000_000
        os.utime(folder, ns=(later, later))

    def test_loaded_again_while_it_is_asked(self) -> None:
        self.start()
        self.load()
        ended, failed, answered = threading.Event(), [], []
        threads = [threading.Thread(target=self.ask_until, args=(number, ended, failed, answered))
                   for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for version in (1, 2, 3):
                if version > 1:
                    self.assertTrue(self.import_version(version)["staged"])
                    self.touch_version()
                    self.assertEqual(self.triton.load(MODEL)[0], 200)
                await_true(lambda version=version: failed or answered[-1:] == [version],
                           f"answer of version {version}")
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failed[:3], [])
        self.assertEqual(set(answered), {1, 2, 3})

    def stage_damaged(self, version: int) -> None:
        self.assertTrue(self.import_version(version)["staged"])
        (manifest,) = self.directory.glob("store/staging/*/manifest")
        damaged = bytearray(manifest.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        manifest.write_bytes(damaged)

    def test_a_load_that_fails_says_so(self) -> None:
        """Catches: an import that was refused, and a load that says that all is well."""
        self.start()
        self.load()
        client, module = self.clients[0]
        keys = self.keys(5)

        def assert_version(version: int) -> None:
            rows = infer(client, module, MODEL, {"user": keys})["user"]
            self.assert_stamped("user", keys, rows, version)

        self.stage_damaged(2)
        self.touch_version()
        self.assert_refused(self.triton.load(MODEL), f"model '{MODEL}'", "staged import", "corrupt")
        assert_version(1)
        self.assertTrue(self.import_version(3)["staged"])
        self.touch_version()
        self.assertEqual(self.triton.load(MODEL)[0], 200)
        assert_version(3)
        # Where nothing is served yet, the older version is better than none.
        self.stage_damaged(4)
        self.triton.unload(MODEL)
        self.load()
        assert_version(3)
        self.assertIn("' has failed, and its current tables are served: ",
                      self.triton.log.read_text())

    def test_models_share_a_store_that_ends_with_the_last(self) -> None:
        other = self.directory / "other" / "t"
        other.mkdir(parents=True)
        np.save(other / "keys.npy", np.arange(10))
        np.save(other / "rows.npy", np.full((10, 4), 3.5, np.float32))
        self.run_hps("import", "--store", self.directory / "store", "--model", "other", "--from",
                     self.directory / "other")
        self.start()
        config = self.configure(models="")
        self.load(more="instance_group { count: 3 kind: KIND_CPU }\n", config=config)
        self.load("other", config=config)
        client, module = self.clients[0]
        rows = infer(client, module, "other", {"t": np.array([3, 4])})["t"]
        np.testing.assert_array_equal(rows, np.full((2, 4), 3.5, np.float32))
        self.triton.unload(MODEL)
        with self.assertRaises(Exception):
            infer(client, module, MODEL, {"user": self.keys(2)})
        infer(client, module, "other", {"t": np.array([3, 4])})
        self.assertTrue(self.import_version(2)["staged"], "Triton still has the store")
        self.triton.unload("other")
        self.assertFalse(self.import_version(3)["staged"], "nobody has the store")
        self.load(config=config)
        keys = self.keys(5)
        self.assert_stamped("user", keys, infer(client, module, MODEL, {"user": keys})["user"], 3)
        for client, _ in self.clients:
            client.close()  # Triton waits for connections to end
        self.assertEqual(self.triton.stop(), 0, self.triton.log.read_text())

    def run_hps(self, *arguments) -> None:
        subprocess.run([str(HPS), *map(str, arguments)], check=True, timeout=WAIT_S,
                       stdout=subprocess.DEVNULL)

    def test_what_a_load_refuses(self) -> None:
        triton = self.start()
        config = self.configure()
        triton.add_model("user", config)
        self.assert_refused(triton.load("user"), "model 'user'", str(config), "no model 'user'")
        triton.add_model(MODEL, self.directory / "missing.toml")
        self.assert_refused(triton.load(MODEL), f"model '{MODEL}'", "missing.toml")
        nowhere = self.directory / "nowhere.toml"
        nowhere.write_text('[store]\npath = "no_store"\n')
        triton.add_model(MODEL, nowhere)
        self.assert_refused(triton.load(MODEL), f"model '{MODEL}'", str(nowhere), "no_store")
        nowhere.write_text('[stor]\npath = "store"\n')
        self.assert_refused(triton.load(MODEL), str(nowhere), "stor")
        triton.add_model(MODEL, "")
        self.assert_refused(triton.load(MODEL), f"model '{MODEL}'", "'config'")
        (triton.models / MODEL / "config.pbtxt").write_text(f'name: "{MODEL}"\nbackend: "hps"\n')
        self.assert_refused(triton.load(MODEL), "where hps.toml is")
        triton.add_model(MODEL, config, 'input { name: "usr" data_type: TYPE_INT64 dims: -1 }\n')
        self.assert_refused(triton.load(MODEL), "'usr'", "did you mean 'user'")
        triton.add_model(MODEL, config, 'input { name: "user" data_type: TYPE_FP32 dims: -1 }\n')
        self.assert_refused(triton.load(MODEL), "'user' as TYPE_FP32 [-1]", "TYPE_INT64 [-1]")
        triton.add_model(MODEL, config, "instance_group { count: 1 kind: KIND_GPU gpus: 0 }\n")
        self.assert_refused(triton.load(MODEL))

    def test_a_store_that_another_process_writes(self) -> None:
        triton = self.start()
        token = {"Authorization": "Bearer secret"}
        server = self.serve_ready(security="repository_control = true",
                                  environment={"HPS_TOKEN": "secret"})
        config = self.directory / "hps.toml"  # the server's
        triton.add_model(MODEL, config)
        self.assert_refused(triton.load(MODEL), f"model '{MODEL}'", str(config))
        read_only = 'parameters { key: "read_only" value: { string_value: "true" } }\n'
        self.load(more=read_only, config=config)
        client, module = self.clients[0]
        keys = self.keys(5)
        self.assert_stamped("user", keys, infer(client, module, MODEL, {"user": keys})["user"])
        # What the writer commits is taken at the next load.
        self.import_version(2)
        loaded = server.get(f"/v2/repository/models/{MODEL}/load", token, method="POST", data=b"")
        self.assertEqual(loaded[0], 200, loaded[1])
        self.assert_stamped("user", keys, infer(client, module, MODEL, {"user": keys})["user"])
        self.touch_version()
        self.assertEqual(triton.load(MODEL)[0], 200)
        self.assert_stamped("user", keys, infer(client, module, MODEL, {"user": keys})["user"], 2)
        triton.unload(MODEL)
        self.assertEqual(server.stop(), 0)
        self.load(config=self.configure())

    def test_the_library_exports_its_entry_points_alone(self) -> None:
        listed = subprocess.run(
            ["readelf", "--wide", "--dyn-syms", str(triton_server.BACKEND / "libtriton_hps.so")],
            check=True, capture_output=True, text=True, timeout=WAIT_S).stdout
        symbols = [line.split() for line in listed.splitlines()]
        defined = [fields[-1].split("@")[0] for fields in symbols
                   if len(fields) > 7 and fields[-2].isdigit()]
        self.assertGreater(len(defined), 5)
        self.assertEqual([name for name in defined if not name.startswith("TRITONBACKEND_")], [])


class PredictionTest(TritonTestCase):
    """A model of PyTorch, with the network in the store."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if not support.is_built_with("OPENVINO"):
            raise unittest.SkipTest("this build runs no dense networks")
        if not ctr_test.PYTHON.exists():
            raise unittest.SkipTest("there is no PyTorch in .venv-python")
        made = tempfile.TemporaryDirectory(prefix="hps_triton_")
        cls.addClassCleanup(made.cleanup)
        cls.model = pathlib.Path(made.name)
        cls.samples = ctr_test.export("dlrm", cls.model / "onnx")
        cls.tables = [table["table"] for table in cls.run_hps(
            "split-onnx", cls.model / "onnx" / "model.onnx", "--out", cls.model / "dlrm")["tables"]]

    def setUp(self) -> None:
        super().setUp()
        self.run_hps("import", "--store", self.directory / "store", "--model", "dlrm", "--from",
                     self.model / "dlrm")
        self.start()

    @staticmethod
    def run_hps(*arguments) -> dict:
        done = subprocess.run([str(HPS), *map(str, arguments), "--json"], capture_output=True,
                              text=True, timeout=WAIT_S, check=True)
        return json.loads(done.stdout)

    def by_name(self, picked: slice) -> dict:
        return ctr_test.by_name(self.tables, self.samples, picked)

    def ragged(self, picked: slice) -> dict:
        inputs = self.by_name(picked)
        for table, keys in list(inputs.items()):
            if keys.ndim == 2 and table != "dense":
                inputs[table] = keys.reshape(-1)
                inputs[f"{table}.offsets"] = np.arange(len(keys) + 1) * keys.shape[1]
        return inputs

    def assert_scores(self, got: np.ndarray, picked: slice) -> None:
        expected = self.samples["score"][picked]
        self.assertEqual(got.shape, expected.shape)
        self.assertLessEqual(np.abs(got - expected).max(), ctr_test.ERROR_MAX)

    def test_as_hps_serve_is_asked(self) -> None:
        self.load("dlrm", config=self.configure(models=""))
        picked = slice(3, 20)
        ragged = self.ragged(picked)
        for client, module in self.clients:
            self.assert_scores(infer(client, module, "dlrm", ragged)["score"], picked)
            beside = infer(client, module, "dlrm", ragged, ("score", self.tables[0]))
            self.assert_scores(beside["score"], picked)
            self.assertEqual(beside[self.tables[0]].shape[-1], 8)
            with self.assertRaisesRegex(Exception, "'dense' is missing"):
                infer(client, module, "dlrm",
                      {name: array for name, array in ragged.items() if name != "dense"})
            bad = ragged | {"dense": np.full_like(ragged["dense"], np.nan)}
            with self.assertRaisesRegex(Exception, "NaN"):
                infer(client, module, "dlrm", bad)

    def test_rows_alone_of_a_model_with_a_network(self) -> None:
        table = self.tables[0]
        output = f'output {{ name: "{table}" data_type: TYPE_FP32 dims: [ -1, 8 ] }}\n'
        self.load("dlrm", output, self.configure(models=""))
        keys = self.by_name(slice(3, 20))[table].reshape(-1)
        for client, module in self.clients:
            for outputs in ((), (table,)):
                answer = infer(client, module, "dlrm", {table: keys}, outputs)
                self.assertEqual(answer[table].shape, (len(keys), 8))
        self.triton.unload("dlrm")
        self.load("dlrm", output + 'output { name: "score" data_type: TYPE_FP32 dims: -1 }\n',
                  self.configure(models=""))
        picked = slice(3, 20)
        for client, module in self.clients:
            answer = infer(client, module, "dlrm", self.ragged(picked), ("score", table))
            self.assertEqual(sorted(answer), sorted(["score", table]))
            self.assert_scores(answer["score"], picked)

    def test_memory_of_the_network_has_a_limit(self) -> None:
        limit = 4 << 20
        self.load("dlrm", "max_batch_size: 1000000\ninstance_group { count: 1 }\n"
                          "dynamic_batching { max_queue_delay_microseconds: 300000 }\n",
                  self.configure(f"[server]\nbytes_in_flight_max = {limit}\n", models=""))
        client, module = self.clients[0]

        def repeated(count: int) -> tuple[dict, np.ndarray]:
            samples = np.resize(np.arange(190), count)
            inputs = self.by_name(slice(0, 190))
            return ({name: array[samples].reshape(count, -1) for name, array in inputs.items()},
                    self.samples["score"][samples])

        with self.assertRaisesRegex(Exception, "bytes_in_flight_max") as refused:
            infer(client, module, "dlrm", repeated(50_000)[0])
        needed = int(re.search(r"take (\d+) bytes", str(refused.exception)).group(1))
        # Any two of these are over the limit.
        inputs, scores = repeated(limit * 50_000 // needed * 2 // 3)
        tensors = []
        for name, array in inputs.items():
            tensors.append(module.InferInput(name, list(array.shape), TYPES[str(array.dtype)]))
            tensors[-1].set_data_from_numpy(array)
        for waiting in [client.async_infer("dlrm", tensors) for _ in range(4)]:
            got = waiting.get_result().as_numpy("score")[:, 0]
            self.assertLessEqual(np.abs(got - scores).max(), ctr_test.ERROR_MAX)

    def test_batches_of_triton(self) -> None:
        self.load("dlrm", "max_batch_size: 256\ninstance_group { count: 1 }\n",
                  self.configure(models=""))
        wrong: list = []
        samples: list[int] = []

        def ask(seed: int) -> None:
            random = np.random.default_rng(seed)
            with http_client.InferenceServerClient(self.triton.http) as client:
                for _ in range(20):
                    begin = int(random.integers(0, 190))
                    picked = slice(begin, begin + int(random.integers(1, 10)))
                    inputs = {name: array.reshape(len(array), -1)
                              for name, array in self.by_name(picked).items()}
                    samples.append(len(next(iter(inputs.values()))))
                    got = infer(client, http_client, "dlrm", inputs)["score"]
                    if np.abs(got[:, 0] - self.samples["score"][picked]).max() > ctr_test.ERROR_MAX:
                        wrong.append((begin, got))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        statistics = self.statistics(sum(samples), "dlrm")
        self.assertEqual(statistics["inference_count"], sum(samples))
        self.assertEqual(statistics["inference_stats"]["success"]["count"], 160)
        self.assertLess(statistics["execution_count"], 160, "no two were batched")


if __name__ == "__main__":
    unittest.main()
