"""`hps convert-config`: HugeCTR's ps.json, converted, is a configuration that hps takes."""

import json
import os
import pathlib
import unittest

import support

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


class ConvertConfigTest(support.CommandTestCase):

    def write(self, content: dict) -> pathlib.Path:
        path = self.directory / "ps.json"
        path.write_text(json.dumps(content))
        return path

    def expect_accepted(self, config: pathlib.Path) -> dict:
        printed = self.succeed("serve", "--config", config, "--print-config")
        return printed

    def test_the_result_is_a_configuration(self) -> None:
        out = self.directory / "hps.toml"
        answer = self.succeed("convert-config", self.write(PS_JSON), "--out", out)
        self.assertEqual(answer["out"], str(out))
        self.assertTrue(any("max_batch_size" in warning for warning in answer["warnings"]))
        self.assertNotIn("hunter2", out.read_text() + json.dumps(answer))
        printed = self.expect_accepted(out)["configuration"]
        self.assertIn("hit_rate_threshold = 0.9", printed)
        self.assertIn("l1_share = 0.25", printed)

    def test_its_import_commands_import(self) -> None:
        for table, dim in (("user", 8), ("item", 4)):
            support.write_hugectr(self.directory / table, self.random_keys(50),
                                  self.random_rows(50, dim))
        toml = self.succeed("convert-config", self.write(PS_JSON))["config"]
        commands = [line.removeprefix("#     hps ") for line in toml.splitlines()
                    if line.startswith("#     hps import")]
        self.assertEqual(len(commands), 2)
        for command in commands:
            words = [word.strip("'") for word in command.split()]
            words[words.index("--store") + 1] = str(self.store)
            words[words.index("--from") + 1] = str(
                self.directory / words[words.index("--from") + 1])
            self.succeed(*words)
        tables = self.succeed("inspect", "--store", self.store)["tables"]
        self.assertEqual({(table["name"], table["dim"], table["default"]) for table in tables},
                         {("dlrm/user", 8, 0.5), ("dlrm/item", 4, -1.0)})

    def test_text_has_the_warnings_on_stderr(self) -> None:
        done = self.run_hps("convert-config", self.write(PS_JSON))
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("# Converted from HugeCTR's ps.json."))
        self.assertTrue(all(line.startswith("warning: ") for line in done.stderr.splitlines()))
        self.assertIn("max_batch_size", done.stderr)

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

    @unittest.skipUnless(REAL_FILES.is_dir(), f"there is no {REAL_FILES}")
    def test_real_files(self) -> None:
        files = sorted(REAL_FILES.glob("*.json"))
        self.assertGreater(len(files), 10)
        refused = []
        for file in files:
            with self.subTest(file.name):
                out = self.directory / (file.stem + ".toml")
                done = self.run_hps("convert-config", file, "--out", out)
                if done.returncode != 0:
                    refused.append(file.name)
                    self.assertIn("not JSON", done.stderr)  # one of them is not
                    continue
                self.expect_accepted(out)
        self.assertLess(len(refused), 4, refused)


if __name__ == "__main__":
    unittest.main()
