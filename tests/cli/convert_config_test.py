"""`hps convert-config`: HugeCTR's ps.json, converted, is a configuration that hps takes."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import unittest

import numpy as np
import support
from serve_test import ServeProcess
from waiting import await_true

REAL_FILES = pathlib.Path(os.environ.get("HPS_REAL_DATA", support.ROOT.parent / "shared" / "data")
                          ) / "hugectr" / "ps"
PS_JSON = {
    "supportlonglong": True,
    "volatile_db": {"type": "parallel_hash_map", "overflow_policy": "evict_oldest",
                    "overflow_resolution_target": 0.99, "password": "hunter2"},
    "models": [{"model": "dlrm", "sparse_files": ["user", "item"],
                "embedding_table_names": ["user", "item"],
                "embedding_vecsize_per_table": [8, 4],
                "default_value_for_each_table": [0.5, -1.0],
                "deployed_device_list": [0, 1], "hit_rate_threshold": 0.9, "gpucacheper": 0.25,
                "max_batch_size": 64}]}


class ConvertConfigCase(support.CommandTestCase):

    def write(self, content: dict) -> pathlib.Path:
        path = self.directory / "ps.json"
        path.write_text(json.dumps(content))
        return path

    def run_line(self, line: str, status: int = 0) -> subprocess.CompletedProcess:
        """Runs a line of a shell in the test's directory."""
        path = f"{support.HPS.parent}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", line], cwd=self.directory, text=True, check=False,
                              env=os.environ | {"PATH": path}, timeout=support.TIMEOUT_S,
                              capture_output=True)
        self.assertEqual(done.returncode, status, f"{line}: {done.stderr}")
        return done


class ConvertConfigTest(ConvertConfigCase):

    def test_the_result_is_a_configuration(self) -> None:
        out = self.directory / "hps.toml"
        answer = self.succeed("convert-config", self.write(PS_JSON), "--out", out)
        self.assertEqual(answer["out"], str(out))
        self.assertEqual(len(answer["imports"]), 1)
        self.assertIn("models[0].gpucacheper", answer["converted"])
        self.assertTrue(any("max_batch_size" in warning for warning in answer["warnings"]))
        self.assertIn("volatile_db.password", answer["not_needed"])
        self.assertNotIn("hunter2", out.read_text() + json.dumps(answer))
        printed = self.succeed("serve", "--config", out, "--print-config")["configuration"]
        self.assertIn("hit_rate_threshold = 0.9", printed)
        self.assertIn("l1_share = 0.25", printed)

    def test_its_import_commands_import(self) -> None:
        for table, dim in (("user", 8), ("item", 4)):
            support.write_hugectr(self.directory / table, self.random_keys(50),
                                  self.random_rows(50, dim))
        answer = self.succeed("convert-config", self.write(PS_JSON))
        self.assertEqual([line.removeprefix("#     ") for line in answer["config"].splitlines()
                          if line.startswith("#     hps import")], answer["imports"])
        self.run_line(answer["imports"][0])
        tables = self.succeed("inspect", "--store", self.store)["tables"]
        self.assertEqual({(table["name"], table["dim"], table["default"]) for table in tables},
                         {("dlrm/user", 8, 0.5), ("dlrm/item", 4, -1.0)})
        wrong = answer["imports"][0].replace("--dim 8,4", "--dim 8,5")
        self.assertIn("expected 50 rows of dim 5", self.run_line(wrong, status=1).stderr)

    def test_text_has_the_groups_on_stderr(self) -> None:
        done = self.run_hps("convert-config", self.write(PS_JSON))
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("# Converted from HugeCTR's ps.json."))
        lines = done.stderr.splitlines()
        self.assertIn("supportlonglong", lines[0])
        self.assertEqual([line.split(":")[0] for line in lines[:2]], ["converted", "not needed"])
        self.assertTrue(all(line.startswith("warning: ") for line in lines[2:]))
        self.assertIn("warning: models[0].max_batch_size: ", done.stderr)
        out = self.directory / "hps.toml"
        done = self.run_hps("convert-config", self.write(PS_JSON), "--out", out)
        self.assertEqual([line.split()[:4] for line in done.stdout.splitlines()],
                         [["hps", "import", "--config", f"'{out}'"]])

    def test_a_ps_json_is_no_configuration(self) -> None:
        self.fail_with(2, "INVALID_ARGUMENT", ["hps convert-config"], "serve", "--config",
                       self.write(PS_JSON))

    def test_what_can_not_be_converted(self) -> None:
        none = self.directory / "none.json"
        self.fail_with(1, "NOT_FOUND", [none], "convert-config", none)
        broken = self.directory / "broken.json"
        broken.write_text('{"models": [')
        self.fail_with(1, "INVALID_ARGUMENT", [broken, "not JSON"], "convert-config", broken)
        self.fail_with(1, "INVALID_ARGUMENT", ["models"], "convert-config", self.write({}))
        self.fail_with(1, "NOT_FOUND", ["none/hps.toml"], "convert-config", self.write(PS_JSON),
                       "--out", self.directory / "none" / "hps.toml")
        self.fail_with(2, "INVALID_ARGUMENT", ["convert-config"], "convert-config")


class GuideTest(ConvertConfigCase):
    """The steps of docs/from_hugectr.md, in order, for real configurations with made tables."""

    def dims(self, model: dict) -> list[int]:
        """Of the model's tables; some old files have none."""
        return [int(dim) for dim in model.get("embedding_vecsize_per_table",
                                              [4] * len(model["sparse_files"]))]

    def local_copy(self, file: pathlib.Path) -> list[dict]:
        """Writes ps.json with the paths below the test's directory, and the tables that it names.
        Returns the models."""
        content = json.loads(file.read_text())
        for model in content["models"]:
            model["sparse_files"] = [str(self.directory / "files" / path.lstrip("/"))
                                     for path in model["sparse_files"]]
            for path, dim in zip(model["sparse_files"], self.dims(model)):
                support.write_hugectr(pathlib.Path(path), np.arange(5), self.random_rows(5, dim))
        self.write(content)
        return content["models"]

    def follow(self) -> None:
        """Runs the page's commands up to that of the server."""
        page = (support.ROOT / "docs" / "from_hugectr.md").read_text()
        steps = page.split("## Step by step")[1].split("\n## ")[0]
        commands = re.findall(r"^       ((?:hps|sed) .*)$", steps, re.MULTILINE)
        self.assertEqual([command.split()[:2] for command in commands],
                         [["hps", "convert-config"], ["hps", "import"], ["hps", "inspect"],
                          ["sed", "-i"], ["hps", "serve"]])
        convert, _, inspect, no_gpus, _ = commands
        for line in self.run_line(convert).stdout.splitlines():
            self.run_line(line)
        self.run_line(inspect)
        self.run_line(no_gpus)  # the files list GPUs of other machines

    def expect_answers(self, server: ServeProcess, model: dict) -> None:
        """KEYS and NUMKEYS, in the order of the file, give its rows, and its default rows."""
        keys = [[index, 4 - index, 77] for index, _ in enumerate(model["sparse_files"])]
        expected = []
        defaults = [*model.get("default_value_for_each_table", []), *[0.0] * len(keys)]
        for index, (path, dim) in enumerate(zip(model["sparse_files"], self.dims(model))):
            rows = np.fromfile(pathlib.Path(path) / "emb_vector", dtype="<f4").reshape(5, dim)
            expected += [*rows[index], *rows[4 - index], *[float(defaults[index])] * dim]
        flat = [key for of_table in keys for key in of_table]
        body = json.dumps({"inputs": [
            {"name": "KEYS", "datatype": "INT64", "shape": [1, len(flat)], "data": flat},
            {"name": "NUMKEYS", "datatype": "INT32", "shape": [1, len(keys)],
             "data": [3] * len(keys)}]})

        def ask(method: str, path: str) -> dict:
            with contextlib.closing(server.connect()) as connection:
                connection.request(method, f"/v2/models/{model['model']}{path}", body)
                return json.loads(connection.getresponse().read())

        def rows() -> np.ndarray:
            return np.array(ask("POST", "/infer")["outputs"][0]["data"], dtype=np.float32)

        self.assertEqual(ask("GET", "")["versions"], ["1"])  # all tables came by one import

        # A lookup need not wait for rows that are not in memory yet (hit_rate_threshold).
        await_true(lambda: np.array_equal(rows(), np.array(expected, dtype=np.float32)),
                   lambda: f"{expected}, found {rows()}")

    def follow_for(self, file: pathlib.Path) -> None:
        models = self.local_copy(file)
        self.follow()
        server = ServeProcess("--config", self.directory / "hps.toml")
        try:
            server.await_ready()
            for model in models:
                self.expect_answers(server, model)
        finally:
            self.assertEqual(server.end()[0], 0)

    def test_two_models(self) -> None:
        two = {"volatile_db": {"type": "parallel_hash_map"}, "models": [
            {"model": name, "sparse_files": [f"/{name}/b.model", f"/{name}/a.model"],
             "embedding_vecsize_per_table": dims, "default_value_for_each_table": defaults,
             "deployed_device_list": [0]}
            for name, dims, defaults in (("one", [2, 3], [0.12345678, 0]),
                                         ("two", [4, 4], [1, 1]))]}
        file = self.directory / "two.json"
        file.write_text(json.dumps(two))
        self.follow_for(file)

    @unittest.skipUnless(REAL_FILES.is_dir(), f"there is no {REAL_FILES}")
    def test_real_files(self) -> None:
        files = sorted(REAL_FILES.glob("*.json"))
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(file.name):
                try:
                    json.loads(file.read_text())
                except ValueError:  # one of them
                    self.fail_with(1, "INVALID_ARGUMENT", [file, "not JSON", "line "],
                                   "convert-config", file)
                    continue
                self.setUp()
                self.follow_for(file)


if __name__ == "__main__":
    unittest.main()
