"""Tables in and out: every format, every kind of key and row, element by element."""

import math
import unittest

import numpy as np

import support


class ImportTest(support.CommandTestCase):

    def expect_a_hundred_thousand_keys(self, write) -> None:
        """Present and absent keys of a table that `write` puts into a file, element by element."""
        keys, rows = self.random_keys(60_000), self.random_rows(60_000, 16)
        report = self.succeed("import", "--store", self.store, "--table", "m/t", "--from",
                              write(keys, rows))
        self.assertEqual((report["rows"], report["dim"], report["dtype"], report["table"]),
                         (60_000, 16, "float32", "m/t"))
        self.assertEqual(report["bytes"], 60_000 * (8 + 64))
        self.assertGreater(report["seconds"], 0)
        absent = np.setdiff1d(self.random.integers(-2**63, 2**63, 40_100), keys)[:40_000]
        asked = self.random.permutation(np.concatenate([keys, absent]))
        self.assertEqual(len(asked), 100_000)
        answer, status = self.lookup("m/t", asked)
        truth = dict(zip(keys.tolist(), range(len(keys))))
        place = np.array([truth.get(key, -1) for key in asked.tolist()])
        self.assertEqual(status, ["hit_l3" if p >= 0 else "absent" for p in place])
        expected = np.where(place[:, None] >= 0, rows[place], np.float32(0))
        np.testing.assert_array_equal(answer, expected)

    def test_hugectr_with_a_hundred_thousand_keys(self) -> None:
        self.expect_a_hundred_thousand_keys(
            lambda keys, rows: support.write_hugectr(self.directory / "t", keys, rows))

    def test_npy_with_a_hundred_thousand_keys(self) -> None:
        self.expect_a_hundred_thousand_keys(
            lambda keys, rows: support.write_npy(self.directory / "t", keys, rows))

    def test_safetensors_with_a_hundred_thousand_keys(self) -> None:
        self.expect_a_hundred_thousand_keys(
            lambda keys, rows: support.write_safetensors(self.directory / "t.safetensors",
                                                         {"keys": keys, "rows": rows}))

    def test_npy_with_every_type_of_key(self) -> None:
        for dtype, lowest in (("int64", -2**63), ("uint64", 0), ("int32", -2**31), ("uint32", 0)):
            with self.subTest(dtype):
                highest = np.iinfo(dtype).max
                keys = self.random.permutation(np.unique(np.concatenate(
                    [self.random.integers(lowest, highest, 500, dtype=dtype),
                     np.array([lowest, highest], dtype=dtype)])))
                rows = self.random_rows(len(keys), 5)
                source = support.write_npy(self.directory / dtype, keys, rows)
                self.succeed("import", "--store", self.store, "--table", f"m/{dtype}", "--from",
                             source, "--format", "npy")
                bits = keys.view(np.int64) if dtype == "uint64" else keys.astype(np.int64)
                self.expect_rows(f"m/{dtype}", bits, rows)

    def test_float16_rows_and_conversion(self) -> None:
        keys, rows = self.random_keys(300), self.random_rows(300, 7).astype(np.float16)
        source = support.write_npy(self.directory / "half", keys, rows)
        report = self.succeed("import", "--store", self.store, "--table", "m/half",
                              "--from", source)
        self.assertEqual(report["dtype"], "float16")
        self.expect_rows("m/half", keys, rows.astype(np.float32))
        wide = self.random_rows(300, 7)
        source = support.write_npy(self.directory / "wide", keys, wide)
        report = self.succeed("import", "--store", self.store, "--table", "m/narrowed", "--from",
                              source, "--dtype", "float16")
        self.assertEqual(report["dtype"], "float16")
        self.expect_rows("m/narrowed", keys, wide.astype(np.float16).astype(np.float32))

    def test_safetensors(self) -> None:
        keys, rows = self.random_keys(400), self.random_rows(400, 3)
        source = support.write_safetensors(self.directory / "a.safetensors",
                                           {"rows": rows, "keys": keys})
        self.succeed("import", "--store", self.store, "--table", "m/a", "--from", source)
        self.expect_rows("m/a", keys, rows)
        source = support.write_safetensors(self.directory / "b.safetensors",
                                           {"other": keys, "weight": rows})
        self.succeed("import", "--store", self.store, "--table", "m/b", "--from", source,
                     "--tensor", "weight")
        self.expect_rows("m/b", np.arange(400), rows)
        bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
        source = support.write_safetensors(self.directory / "c.safetensors",
                                           {"keys": keys, "rows": bits})
        report = self.succeed("import", "--store", self.store, "--table", "m/c", "--from", source)
        self.assertEqual(report["dtype"], "bfloat16")
        self.expect_rows("m/c", keys, (bits.astype(np.uint32) << 16).view(np.float32))

    def test_a_whole_model(self) -> None:
        truth = {}
        for name, dim in (("a", 4), ("b", 9)):
            truth[name] = (self.random_keys(200), self.random_rows(200, dim))
            support.write_hugectr(self.directory / "model" / name, *truth[name])
        report = self.succeed("import", "--store", self.store, "--model", "m", "--from",
                              self.directory / "model")
        self.assertEqual([table["table"] for table in report["tables"]], ["m/a", "m/b"])
        self.assertEqual(report["rows"], 400)
        for name, (keys, rows) in truth.items():
            self.expect_rows(f"m/{name}", keys, rows)

    def test_a_second_import_replaces_the_first(self) -> None:
        for version in range(2):
            keys, rows = self.random_keys(100), self.random_rows(100, 4)
            source = support.write_hugectr(self.directory / str(version), keys, rows)
            self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
            self.expect_rows("m/t", keys, rows)

    def test_an_empty_table(self) -> None:
        source = support.write_hugectr(self.directory / "t", np.zeros(0), np.zeros((0, 1)))
        self.fail_with(1, "INVALID_ARGUMENT", ["dim"], "import", "--store", self.store, "--table",
                       "m/t", "--from", source)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source, "--dim",
                     4, "--default", "2.5")
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys", "1")
        self.assertEqual((answer["rows"], answer["status"]), ([[2.5] * 4], ["absent"]))

    def test_values_that_are_no_numbers(self) -> None:
        keys = np.array([1, 2], dtype=np.int64)
        rows = np.array([[math.nan, math.inf], [-math.inf, 1]], dtype=np.float32)
        source = support.write_npy(self.directory / "t", keys, rows)
        report = self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        self.assertEqual(report["non_finite"], 3)
        self.assertTrue(report["warnings"])
        self.expect_rows("m/t", keys, rows)
        done = self.run_hps("lookup", "--store", self.store, "--table", "m/t", "--keys", "1,2",
                            "--json")
        self.assertIn('"rows":[["NaN","Infinity"],["-Infinity",1]]', done.stdout)

    def test_default_rows(self) -> None:
        keys, rows = self.random_keys(10), self.random_rows(10, 3)
        source = support.write_npy(self.directory / "t", keys, rows)
        default = np.array([1.5, -2, 3e-8], dtype=np.float32)
        np.save(self.directory / "default.npy", default)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source,
                     "--default-file", self.directory / "default.npy")
        absent = int(keys.max() // 2 + 12345)
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys", absent)
        np.testing.assert_array_equal(np.array(answer["rows"], dtype=np.float32), [default])
        table = self.succeed("inspect", "--store", self.store)["tables"][0]
        np.testing.assert_array_equal(np.array(table["default"], dtype=np.float32), default)


class LookupTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.keys, self.rows = self.random_keys(50), self.random_rows(50, 4)
        source = support.write_npy(self.directory / "t", self.keys, self.rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)

    def test_rows_in_json_round_trip(self) -> None:
        text = ",".join(map(str, self.keys))
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys", text)
        self.assertEqual(answer["keys"], self.keys.tolist())
        self.assertEqual((answer["table"], answer["dim"]), ("m/t", 4))
        self.assertEqual(answer["status"], ["hit_l3"] * 50)
        np.testing.assert_array_equal(np.array(answer["rows"], dtype=np.float32), self.rows)

    def test_keys_are_64_bit_patterns(self) -> None:
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys",
                              "18446744073709551615,-1,9223372036854775808")
        self.assertEqual(answer["keys"], [-1, -1, -2**63])
        self.assertEqual(answer["rows"][0], answer["rows"][1])
        self.assertEqual(answer["status"], ["hit_l3"] * 3)

    def test_duplicates_and_nothing(self) -> None:
        key = int(self.keys[7])
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys",
                              f"{key},{key}")
        self.assertEqual(answer["rows"][0], answer["rows"][1])
        rows, status = self.lookup("m/t", np.zeros(0, dtype=np.int64))
        self.assertEqual((rows.shape, status), ((0, 4), []))

    def test_text_for_people(self) -> None:
        key = int(self.keys[0])
        done = self.run_hps("lookup", "--store", self.store, "--table", "m/t", "--keys", key)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith(f"{key} hit_l3 "), done.stdout)

    def test_a_gpu_that_is_not_there(self) -> None:
        # Of a build without GPUs, and of one with GPUs on a machine that has fewer, or no driver.
        code, parts = "UNIMPLEMENTED", ["device 1023"]
        if support.has_gpus():
            code, parts = "UNAVAILABLE", ["device"]
        self.fail_with(1, code, parts, "lookup", "--store", self.store,
                       "--table", "m/t", "--keys", 1, "--device", 1023)


class ExportTest(support.CommandTestCase):

    def test_export_import_export_gives_identical_bytes(self) -> None:
        keys, rows = self.random_keys(3000), self.random_rows(3000, 6)
        rows[5, 2], rows[6, 3] = math.nan, math.inf
        source = support.write_hugectr(self.directory / "t", keys, rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        for form in ("hugectr", "npy"):
            first, second = self.directory / f"{form}1", self.directory / f"{form}2"
            report = self.succeed("export", "--store", self.store, "--table", "m/t", "--to", first,
                                  "--format", form)
            self.assertEqual(report["rows"], 3000)
            self.succeed("import", "--store", self.store, "--table", f"m/{form}", "--from", first)
            self.succeed("export", "--store", self.store, "--table", f"m/{form}", "--to", second,
                         "--format", form)
            self.assertEqual(support.snapshot(first), support.snapshot(second))
        order = np.argsort(keys)
        np.testing.assert_array_equal(np.load(self.directory / "npy1" / "keys.npy"), keys[order])
        np.testing.assert_array_equal(np.load(self.directory / "npy1" / "rows.npy"), rows[order])

    def test_nothing_is_overwritten(self) -> None:
        source = support.write_npy(self.directory / "t", self.random_keys(10),
                                   self.random_rows(10, 2))
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        before = support.snapshot(source)
        self.fail_with(1, "ALREADY_EXISTS", [source], "export", "--store", self.store, "--table",
                       "m/t", "--to", source, "--format", "npy")
        self.assertEqual(support.snapshot(source), before)


class GenerateTest(support.CommandTestCase):

    def test_generated_tables_import_and_answer(self) -> None:
        out = self.directory / "tables"
        for form in ("hugectr", "npy"):
            out = self.directory / form
            self.succeed("generate", "--out", out, "--tables", 3, "--rows", 2000, "--dim", 4,
                         "--format", form, "--seed", 9)
        report = self.succeed("import", "--store", self.store, "--model", "g", "--from", out)
        self.assertEqual(report["rows"], 2000)
        requests = np.load(out / "requests.npy")
        self.assertEqual(requests.shape, (1000, 3))
        for table in range(3):
            keys = np.fromfile(self.directory / "hugectr" / f"t{table}" / "key", dtype=np.int64)
            rows = np.fromfile(self.directory / "hugectr" / f"t{table}" / "emb_vector",
                               dtype=np.float32).reshape(len(keys), 4)
            self.expect_rows(f"g/t{table}", keys, rows)
            present = np.isin(requests[:, table], keys)
            self.assertGreater(present.mean(), 0.9)

    def test_the_same_seed_gives_the_same_bytes(self) -> None:
        made = []
        for name in ("a", "b"):
            self.succeed("generate", "--out", self.directory / name, "--tables", 2, "--rows", 500,
                         "--dim", 3, "--seed", 4)
            made.append(support.snapshot(self.directory / name))
        self.assertEqual(made[0], made[1])


if __name__ == "__main__":
    unittest.main()
