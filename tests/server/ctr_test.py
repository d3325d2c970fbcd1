"""CTR models from PyTorch to predictions: exported, split, imported, served over HTTP and gRPC,
equal to PyTorch. And everything that can be wrong on the way."""

import csv
import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

import support
from support import HPS, ROOT, RunningServer
from waiting import WAIT_S, await_true

PYTHON = ROOT / ".venv-python" / "bin" / "python"
ERROR_MAX = 1e-5
DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


def export(model: str, directory: pathlib.Path, seed: int = 1) -> dict[str, np.ndarray]:
    """Writes directory/model.onnx; returns samples with PyTorch's outputs."""
    subprocess.run([str(PYTHON), str(ROOT / "examples" / "models" / "export.py"), model,
                    str(directory), "--seed", str(seed)], check=True, timeout=WAIT_S)
    with np.load(directory / "samples.npz") as samples:
        return dict(samples)


def feature_of(table: str) -> str:
    return table.split("_")[0]  # user_factors -> user


def by_name(tables: list[str], samples: dict, picked: slice = slice(None),
            sent: tuple[str, ...] = ("dense",)) -> dict:
    """A request's inputs: keys by table, and what the network takes from the client."""
    return {name: samples[name][picked] for name in sent} | {
        table: samples[feature_of(table)][picked] for table in tables}


def infer(client, module, model: str, inputs: dict, outputs: list | None = None,
          headers: dict | None = None) -> dict:
    made = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, list(array.shape), DATATYPES[str(array.dtype)])
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    wanted = [module.InferRequestedOutput(name) for name in outputs] if outputs else None
    answer = client.infer(model, made, outputs=wanted, headers=headers)
    response = answer.get_response()
    if isinstance(response, dict):
        names = [output["name"] for output in response["outputs"]]
    else:
        names = [output.name for output in response.outputs]
    return {name: answer.as_numpy(name) for name in names}


class CtrTestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if not support.is_built_with("OPENVINO"):
            raise unittest.SkipTest("this build runs no dense networks")
        if not PYTHON.exists():
            raise unittest.SkipTest("there is no PyTorch in .venv-python")

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_ctr_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def run_hps(self, *arguments, fails: int = 0) -> dict:
        done = subprocess.run([str(HPS), *map(str, arguments), "--json"], capture_output=True,
                              text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, fails, done.stderr + done.stdout)
        return json.loads(done.stdout)

    @property
    def store(self) -> pathlib.Path:
        return self.directory / "store"

    def split(self, name: str, source: pathlib.Path) -> list[str]:
        report = self.run_hps("split-onnx", source, "--out", self.directory / name)
        self.sent = tuple(report["client_inputs"])
        return [table["table"] for table in report["tables"]]

    def import_model(self, name: str, source: pathlib.Path | None = None, fails: int = 0) -> dict:
        return self.run_hps("import", "--store", self.store, "--model", name, "--from",
                            source or self.directory / name, fails=fails)

    def make(self, model: str, name: str = "", seed: int = 1) -> tuple[list[str], dict]:
        """Exports, splits and imports a model; returns its tables and samples."""
        name = name or model
        samples = export(model, self.directory / f"{name}_onnx", seed)
        tables = self.split(name, self.directory / f"{name}_onnx" / "model.onnx")
        self.import_model(name)
        return tables, samples

    def serve(self, **options) -> RunningServer:
        server = RunningServer(self.directory, models=options.pop("models", ""), **options)
        self.addCleanup(server.kill)
        server.await_ready()
        self.http = http_client.InferenceServerClient(server.http)
        self.addCleanup(self.http.close)
        self.clients = [(self.http, http_client)]
        if server.grpc:
            grpc = grpc_client.InferenceServerClient(server.grpc)
            self.addCleanup(grpc.close)
            self.clients.append((grpc, grpc_client))
        return server

    def assert_scores(self, got: np.ndarray, expected: np.ndarray) -> None:
        self.assertEqual(got.dtype, np.float32)
        self.assertEqual(got.shape, expected.shape)
        self.assertLessEqual(np.abs(got - expected).max(initial=0), ERROR_MAX)

    def refuse(self, model: str, inputs: dict, *parts: str, **more) -> None:
        for client, module in self.clients:
            with self.assertRaises(Exception) as caught:
                infer(client, module, model, inputs, **more)
            for part in parts:
                self.assertIn(part, str(caught.exception), module.__name__)


class PredictionTest(CtrTestCase):
    """Models of PyTorch."""

    def test_predictions_are_those_of_pytorch(self) -> None:
        made = {}
        for model in ("dlrm", "deepfm", "wdl", "dcn", "mmoe", "din", "dien"):
            made[model] = (*self.make(model), self.sent)
        # Their networks look at the items of the history, to leave out what only fills it.
        self.assertEqual(made["din"][2], ("dense", "history"))
        self.serve()
        for model, (tables, samples, sent) in made.items():
            outputs = ["click", "purchase"] if model == "mmoe" else ["score"]
            for client, module in self.clients:
                for picked in (slice(0, 1), slice(3, 40), slice(None)):
                    with self.subTest(model=model, client=module.__name__, picked=picked):
                        answer = infer(client, module, model,
                                       by_name(tables, samples, picked, sent))
                        self.assertEqual(list(answer), outputs)
                        for output in outputs:
                            self.assert_scores(answer[output], samples[output][picked])

    def test_ragged_bags_and_rows_beside_scores(self) -> None:
        tables, samples = self.make("dlrm")
        self.serve()
        inputs = by_name(tables, samples)
        keys = inputs["history_embedding"]
        ragged = inputs | {"history_embedding": keys.reshape(-1),
                           "history_embedding.offsets": np.arange(len(keys) + 1) * keys.shape[1]}
        for client, module in self.clients:
            answer = infer(client, module, "dlrm", ragged, ["score", "user_embedding"])
            self.assert_scores(answer["score"], samples["score"])
            self.assertEqual(answer["user_embedding"].shape, (200, 8))
            # Bags of different lengths, one empty: the sum of the rows decides.
            some = by_name(tables, samples, slice(0, 3))
            some["history_embedding"] = np.array([5, 6, 7, 8, 9])
            some["history_embedding.offsets"] = np.array([0, 1, 1, 5], np.int64)
            apart = []
            for i, bag in enumerate(([5], [], [6, 7, 8, 9])):
                one = by_name(tables, samples, slice(i, i + 1))
                one["history_embedding"] = np.array([bag], np.int64).reshape(1, len(bag))
                apart.append(infer(client, module, "dlrm", one)["score"])
            self.assert_scores(infer(client, module, "dlrm", some)["score"], np.concatenate(apart))
        # Rows alone, as before: by table, and by KEYS and NUMKEYS.
        for client, module in self.clients:
            asked = np.array([3, 1], np.int64)
            rows = infer(client, module, "dlrm", {"user_embedding": asked}, ["user_embedding"])
            counts = np.array([[2 if table == "user_embedding" else 0 for table in tables]],
                              np.int32)
            joint = infer(client, module, "dlrm", {"KEYS": asked[None], "NUMKEYS": counts})
            np.testing.assert_array_equal(joint["OUTPUT0"],
                                          rows["user_embedding"].reshape(-1))

    def test_many_at_once_are_batched_and_cut_apart(self) -> None:
        tables, samples = self.make("deepfm")
        server = self.serve(settings="lookups = 1\nthreads = 8\n")
        wrong: list = []

        def ask(seed: int) -> None:
            random = np.random.default_rng(seed)
            with http_client.InferenceServerClient(server.http) as client:
                for _ in range(30):
                    begin = int(random.integers(0, 190))
                    picked = slice(begin, begin + int(random.integers(1, 10)))
                    got = infer(client, http_client, "deepfm",
                                by_name(tables, samples, picked))["score"]
                    if np.abs(got - samples["score"][picked]).max() > ERROR_MAX:
                        wrong.append((begin, got))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_every_output_may_be_asked_for_at_once(self) -> None:
        tables, samples = self.make("dcn")
        self.serve()
        # The tables in declared order, as the metadata lists them.
        outputs = [tensor["name"] for tensor in self.http.get_model_metadata("dcn")["outputs"]]
        declared = [name for name in outputs if name in tables]
        self.assertEqual(set(outputs), {"score", "OUTPUT0", *tables,
                                        *(f"{table}.status" for table in tables)})
        batch = 6
        inputs = by_name(tables, samples, slice(0, batch))
        for client, module in self.clients:
            answer = infer(client, module, "dcn", inputs, outputs)
            self.assertEqual(list(answer), outputs)
            self.assert_scores(answer["score"], samples["score"][:batch])
            np.testing.assert_array_equal(
                answer["OUTPUT0"], np.concatenate([answer[table].ravel() for table in declared]))
            alone = infer(client, module, "dcn", {declared[0]: inputs[declared[0]]}, [declared[0]])
            np.testing.assert_array_equal(answer[declared[0]], alone[declared[0]])
        # As HugeCTR's backend is asked, OUTPUT0 has the scores.
        flat = [inputs[table].reshape(batch, -1) for table in declared]
        inputs = {"DES": inputs["dense"].reshape(1, -1),
                  "CATCOLUMN": np.concatenate([keys.ravel() for keys in flat])[None],
                  "ROWINDEX": np.concatenate([np.arange(batch + 1) * keys.shape[1]
                                              for keys in flat])[None].astype(np.int32)}
        for client, module in self.clients:
            answer = infer(client, module, "dcn", inputs, outputs)
            self.assert_scores(answer["score"], samples["score"][:batch])
            np.testing.assert_array_equal(answer["OUTPUT0"], answer["score"].ravel())
        keys = {"KEYS": inputs["CATCOLUMN"],
                "NUMKEYS": np.array([[keys.size for keys in flat]], np.int32)}
        self.refuse("dcn", keys, "'score' is the network's", outputs=outputs)

    def test_metadata_names_inputs_and_outputs(self) -> None:
        tables, _ = self.make("dcn")
        self.serve()
        metadata = self.http.get_model_metadata("dcn")
        inputs = {tensor["name"]: tensor for tensor in metadata["inputs"]}
        self.assertEqual(inputs["dense"]["datatype"], "FP32")
        self.assertEqual([int(dim) for dim in inputs["dense"]["shape"]], [-1, 4])
        for table in tables:
            self.assertIn(table, inputs)
            self.assertIn(f"{table}.offsets", inputs)
        for name in ("DES", "CATCOLUMN", "ROWINDEX", "KEYS", "NUMKEYS"):
            self.assertIn(name, inputs)
        outputs = {tensor["name"] for tensor in metadata["outputs"]}
        self.assertTrue({"score", "OUTPUT0", *tables} <= outputs, outputs)

    def test_the_real_model(self) -> None:
        data = os.environ.get("HPS_REAL_DATA")
        source = pathlib.Path(data or "/none") / "onnx" / "dlrm.onnx"
        if not source.exists():
            self.skipTest("HPS_REAL_DATA does not name a directory with onnx/dlrm.onnx")
        tables = self.split("real", source)
        self.assertEqual(tables, ["embeddings_0", "embeddings_1"])
        self.import_model("real")
        self.serve()
        with open(source.with_name("dlrm_expected.csv"), encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        column = {name: np.array([float(row[name]) for row in rows], np.float32)
                  for name in rows[0]}
        inputs = {"continuous_features": np.stack([column["mean_rating"], column["count"]], 1),
                  "embeddings_0": column["user"].astype(np.int64),
                  "embeddings_1": column["item"].astype(np.int64)}
        for client, module in self.clients:
            answer = infer(client, module, "real", inputs)
            self.assert_scores(answer["score"].reshape(-1), column["score"])


class DesTest(CtrTestCase):
    def test_des_catcolumn_rowindex(self) -> None:
        tables, samples = self.make("dcn")
        self.serve()
        batch = 9
        columns, index = [], []
        for table in tables:
            keys = samples[feature_of(table)][:batch].reshape(batch, -1)
            columns.append(keys.reshape(-1))
            index.append((np.arange(batch + 1) * keys.shape[1]).astype(np.int32))
        inputs = {"DES": samples["dense"][:batch].reshape(1, -1),
                  "CATCOLUMN": np.concatenate(columns)[None],
                  "ROWINDEX": np.concatenate(index)[None]}
        for client, module in self.clients:
            answer = infer(client, module, "dcn", inputs)
            self.assertEqual(list(answer), ["OUTPUT0"])
            self.assert_scores(answer["OUTPUT0"], samples["score"][:batch])
        self.refuse("dcn", inputs | {"DES": inputs["DES"][:, :-1]}, "DES", "multiple of the 4")
        self.refuse("dcn", inputs | {"ROWINDEX": inputs["ROWINDEX"][:, :-1]}, "ROWINDEX",
                    "batch x slots + tables")
        back = inputs["ROWINDEX"].copy()
        back[0, 1] = 7
        self.refuse("dcn", inputs | {"ROWINDEX": back}, "ROWINDEX", "goes back")
        self.refuse("dcn", inputs | {"CATCOLUMN": inputs["CATCOLUMN"][:, :-1]}, "ROWINDEX",
                    "keys left")
        self.refuse("dcn", {"DES": inputs["DES"], "ROWINDEX": inputs["ROWINDEX"]}, "CATCOLUMN",
                    "missing")


    def test_slots_whose_rows_are_not_pooled(self) -> None:
        tables, samples = self.make("wdl")
        self.serve()
        batch = 7
        columns = [samples[feature_of(table)][:batch].reshape(-1) for table in tables]
        index = [np.arange(keys.size + 1, dtype=np.int32) for keys in columns]
        inputs = {"DES": samples["dense"][:batch].reshape(1, -1),
                  "CATCOLUMN": np.concatenate(columns)[None],
                  "ROWINDEX": np.concatenate(index)[None]}
        for client, module in self.clients:
            answer = infer(client, module, "wdl", inputs, ["OUTPUT0"])
            self.assert_scores(answer["OUTPUT0"], samples["score"][:batch])


class BadInputTest(CtrTestCase):
    def test_requests_that_are_wrong(self) -> None:
        tables, samples = self.make("wdl")
        self.serve()
        good = by_name(tables, samples, slice(0, 4))
        nan = good["dense"].copy()
        nan[2, 1] = np.nan
        self.refuse("wdl", good | {"dense": nan}, "'dense'", "NaN")
        self.refuse("wdl", good | {"dense": good["dense"][:, :3]}, "'dense'", "[batch, 4]")
        self.refuse("wdl", good | {"dense": good["dense"][:3]}, "batch is 3", "is 4")
        self.refuse("wdl", good | {"dense": good["dense"].astype(np.int64)}, "FP32, not INT64")
        self.refuse("wdl", {name: good[name] for name in good if name != "dense"}, "'dense'",
                    "missing")
        self.refuse("wdl", {name: good[name] for name in good if name != "user_deep"},
                    "'user_deep'", "missing")
        self.refuse("wdl", good | {"user_dep": good["user_deep"]}, "did you mean 'user_deep'")
        self.refuse("wdl", good | {"user_deep": good["user_deep"][:3]}, "batch")
        self.refuse("wdl", good, "no output 'scor'", "score", outputs=["scor"])
        history = good["history_deep"]
        self.refuse("wdl", good | {"history_deep": history[:, :4]}, "history_deep")
        flat = good | {"history_deep": history.reshape(-1)}
        for offsets, part in (([0, 5, 4, 15, 20], "goes back"), ([1, 5, 10, 15, 20], "expected 0"),
                              ([0, 5, 10, 15, 19], "20 keys"), ([0, 4, 10, 15, 20], "same number")):
            self.refuse("wdl", flat | {"history_deep.offsets": np.array(offsets, np.int64)}, part)
        # And the server goes on.
        for client, module in self.clients:
            answer = infer(client, module, "wdl", good)
            self.assert_scores(answer["score"], samples["score"][:4])
            nothing = {name: array[:0] for name, array in good.items()}
            self.assertEqual(infer(client, module, "wdl", nothing)["score"].shape, (0,))

    def test_models_that_are_wrong(self) -> None:
        self.make("dcn")
        model = self.directory / "dcn"
        description = (model / "model.toml").read_text()

        def refuse(text: str, *parts: str) -> None:
            (model / "model.toml").write_text(text)
            error = self.import_model("dcn", fails=1)["error"]["message"]
            for part in parts:
                self.assertIn(part, error)

        refuse(description.replace("user_embedding_rows", "user_rows"), "'user_rows'",
               "no such input")
        refuse(description.replace('table = "user_embedding"', 'table = "user"'), "model.toml:",
               "does not have 'user'")
        refuse(description.replace("dense.onnx", "none.onnx"), "none.onnx")
        refuse(description + "\nfile = 1\n", "model.toml:")
        refuse("tables = [", "model.toml:1")
        network = (model / "dense.onnx").read_bytes()
        (model / "dense.onnx").write_bytes(network[:len(network) // 2])
        refuse(description, "dense.onnx")
        (model / "dense.onnx").write_bytes(network)
        (model / "model.toml").write_text(description)
        before = self.run_hps("inspect", "--store", self.store)["networks"]
        self.import_model("dcn")
        after = self.run_hps("inspect", "--store", self.store)["networks"]
        self.assertEqual(before, after)

    def test_a_network_that_fails_apart_is_refused(self) -> None:
        tables, samples = self.make("dcn")
        token = {"HPS_TOKEN": "secret"}
        server = self.serve(security="repository_control = true", environment=token)
        # The reader takes this network: only the engine multiplies [batch, 4] by [3, 1].
        code = """
import sys, onnx
from onnx import helper, TensorProto
weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 1], [1.0, 2.0, 3.0])
graph = helper.make_graph(
    [helper.make_node("MatMul", ["dense", "w"], ["score"])], "bad",
    [helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["batch", 4])],
    [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])], [weight])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
          sys.argv[1])
"""
        model = self.directory / "dcn"
        (model / "dense.onnx").unlink()
        subprocess.run([str(PYTHON), "-c", code, str(model / "dense.onnx")], check=True,
                       timeout=WAIT_S)
        text = (model / "model.toml").read_text()
        (model / "model.toml").write_text(text[:text.index("[[network.input]]")])
        # Before anything is staged.
        error = self.import_model("dcn", fails=1)["error"]
        self.assertIn("process of its own", error["message"])
        self.assertEqual(self.run_hps("inspect", "--store", self.store)["staged"], [])
        self.http.load_model("dcn", headers={"Authorization": "Bearer secret"})
        # The version that was served is served on.
        for client, module in self.clients:
            answer = infer(client, module, "dcn", by_name(tables, samples),
                           headers={"authorization": "Bearer secret"})
            self.assert_scores(answer["score"], samples["score"])
        self.assertEqual(server.stop(), 0)

    def test_split_says_what_it_could_not_do(self) -> None:
        path = self.directory / "none.onnx"
        path.write_bytes(b"this is no model")
        error = self.run_hps("split-onnx", path, "--out", self.directory / "out", fails=1)["error"]
        self.assertIn("none.onnx", error["message"])
        self.make("dcn")
        again = self.run_hps("split-onnx", self.directory / "dcn_onnx" / "model.onnx", "--out",
                             self.directory / "dcn", fails=1)["error"]
        self.assertIn("holds a model already", again["message"])


class LifeTest(CtrTestCase):
    """The network in the store."""

    def test_export_gives_back_what_was_imported(self) -> None:
        self.make("deepfm")
        inspected = self.run_hps("inspect", "--store", self.store)["networks"]
        self.assertEqual([network["model"] for network in inspected], ["deepfm"])
        self.assertEqual(len(inspected[0]["digest"]), 32)
        self.run_hps("verify", "--store", self.store)
        out = self.directory / "out"
        self.run_hps("export", "--store", self.store, "--model", "deepfm", "--to", out, "--format",
                     "hugectr")
        source = self.directory / "deepfm"
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source)
            if path.is_file() and path.name != "model.toml":
                self.assertTrue(filecmp.cmp(path, out / name, shallow=False), name)
        self.import_model("again", out)
        networks = {network["model"]: network["digest"]
                    for network in self.run_hps("inspect", "--store", self.store)["networks"]}
        self.assertEqual(networks["again"], networks["deepfm"])
        # The network goes with its model, and not a table without it.
        refused = self.run_hps("drop", "--store", self.store, "--table", "again/user_factors",
                               fails=1)["error"]
        self.assertEqual(refused["code"], "FAILED_PRECONDITION")
        self.assertIn("the dense network of model 'again'", refused["message"])
        self.assertEqual(self.run_hps("drop", "--store", self.store, "--model", "again"),
                         {"model": "again", "dropped": True})
        inspected = self.run_hps("inspect", "--store", self.store)["networks"]
        self.assertEqual([network["model"] for network in inspected], ["deepfm"])
        self.run_hps("verify", "--store", self.store)

    def test_a_load_switches_tables_and_network_together(self) -> None:
        tables, old = self.make("dcn")
        token = {"HPS_TOKEN": "secret"}
        server = self.serve(security="repository_control = true", environment=token)
        headers = {"Authorization": "Bearer secret"}
        new = export("dcn", self.directory / "new_onnx", seed=2)
        self.split("new", self.directory / "new_onnx" / "model.onnx")

        def ask(samples: dict) -> np.ndarray:
            return infer(self.http, http_client, "dcn", by_name(tables, samples),
                         headers=headers)["score"]

        self.assert_scores(ask(old), old["score"])
        report = self.import_model("dcn", self.directory / "new")
        self.assertTrue(report["staged"])
        self.assert_scores(ask(old), old["score"])
        self.http.load_model("dcn", headers=headers)
        self.assert_scores(ask(new), new["score"])
        self.assertEqual(server.stop(), 0)
        self.run_hps("verify", "--store", self.store)

    def test_a_network_of_the_configuration_stands_in(self) -> None:
        tables, samples = self.make("dcn")
        other = export("dcn", self.directory / "other_onnx", seed=3)
        self.split("other", self.directory / "other_onnx" / "model.onnx")
        self.import_model("other")
        dense = self.directory / "other" / "dense.onnx"
        self.serve(models=f'[[model]]\nname = "dcn"\ndense = "{dense}"\n'
                          f'[[model]]\nname = "other"\n')
        inputs = by_name(tables, samples)
        scores = infer(self.http, http_client, "dcn", inputs)["score"]
        self.assertGreater(np.abs(scores - samples["score"]).max(), ERROR_MAX)
        got = infer(self.http, http_client, "other", by_name(tables, other))["score"]
        self.assert_scores(got, other["score"])

    def test_a_network_of_the_configuration_that_is_wrong_is_named(self) -> None:
        self.make("dcn")
        tables, samples = self.make("wdl")
        gone = self.directory / "gone.onnx"
        server = RunningServer(self.directory, models=f'[[model]]\nname = "dcn"\n'
                                                      f'dense = "{gone}"\n'
                                                      '[[model]]\nname = "wdl"\n')
        self.addCleanup(server.kill)
        why = 'dense = "gone.onnx": there is no such file'
        with http_client.InferenceServerClient(server.http) as client:
            await_true(lambda: self.state_of(client, "wdl")["state"] == "READY", "other model")
            await_true(lambda: why in self.state_of(client, "dcn").get("reason", ""),
                       "reason in the index")
            self.assertNotIn(str(self.directory), json.dumps(client.get_model_repository_index()))
            answer = infer(client, http_client, "wdl", by_name(tables, samples))
            self.assert_scores(answer["score"], samples["score"])
        server.stop()
        self.assertIn(why, (self.directory / "hps.log").read_text())

    def state_of(self, client, model: str) -> dict:
        return next(entry for entry in client.get_model_repository_index()
                    if entry["name"] == model)

    def test_damage_to_a_network_is_that_of_one_model(self) -> None:
        self.make("dcn")
        tables, samples = self.make("wdl")
        self.flip_a_bit_of(self.directory / "dcn" / "dense.onnx")
        damaged = self.run_hps("verify", "--store", self.store, fails=1)
        self.assertIn("the dense network of model 'dcn'", damaged["error"]["message"])
        problems = {network["model"]: network.get("problem", "")
                    for network in self.run_hps("inspect", "--store", self.store)["networks"]}
        self.assertIn("the dense network of model 'dcn'", problems["dcn"])
        self.assertEqual(problems["wdl"], "")
        server = RunningServer(self.directory, models="")
        self.addCleanup(server.kill)
        with http_client.InferenceServerClient(server.http) as client:
            await_true(lambda: self.state_of(client, "wdl")["state"] == "READY", "other model")
            answer = infer(client, http_client, "wdl", by_name(tables, samples))
            self.assert_scores(answer["score"], samples["score"])
        server.stop()
        self.import_model("dcn")
        self.run_hps("verify", "--store", self.store)

    def flip_a_bit_of(self, network: pathlib.Path) -> None:
        """In the middle of the table file that has the network's bytes."""
        part = network.read_bytes()[-400:-300]  # of its weights
        for path in self.store.glob("*.sst"):
            content = bytearray(path.read_bytes())
            at = content.find(part)
            if at < 0:
                continue
            content[at + 50] ^= 1
            path.write_bytes(content)
            return
        self.fail("the network's bytes are in no table file")


if __name__ == "__main__":
    unittest.main()
