"""Every bad input gives one clear line and its exit status, and changes nothing."""

import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import support


NOBODY = 65534


class BadInputTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.keys, self.rows = np.arange(20, dtype=np.int64), self.random_rows(20, 4)
        self.good = support.write_hugectr(self.directory / "good", self.keys, self.rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", self.good)
        self.made = 0

    def refuse(self, source, parts, *options, code="INVALID_ARGUMENT", table="m/t",
               status=1) -> None:
        """The import must fail, and the table must be as it was."""
        self.fail_with(status, code, parts, "import", "--store", self.store, "--table", table,
                       "--from", source, *options)
        self.assertEqual(os.listdir(self.store / "staging") if (self.store / "staging").exists()
                         else [], [])
        answer = self.succeed("lookup", "--store", self.store, "--table", "m/t", "--keys",
                              ",".join(map(str, self.keys)))
        np.testing.assert_array_equal(np.array(answer["rows"], dtype=np.float32), self.rows)
        names = [t["name"] for t in self.succeed("inspect", "--store", self.store)["tables"]]
        self.assertEqual(names, ["m/t"])

    def hugectr(self, key_bytes: bytes, row_bytes: bytes):
        self.made += 1
        path = self.directory / f"hugectr{self.made}"
        path.mkdir()
        (path / "key").write_bytes(key_bytes)
        (path / "emb_vector").write_bytes(row_bytes)
        return path

    def npy(self, keys, rows):
        self.made += 1
        return support.write_npy(self.directory / f"npy{self.made}", keys, rows)

    def safetensors(self, content: bytes):
        self.made += 1
        path = self.directory / f"file{self.made}.safetensors"
        path.write_bytes(content)
        return path

    def test_hugectr_sizes(self) -> None:
        keys, rows = self.keys.tobytes(), self.rows.tobytes()
        truncated = self.hugectr(keys, rows[:-1])
        self.refuse(truncated, [truncated / "emb_vector", len(rows) - 1])
        self.refuse(self.hugectr(keys, rows + b"\0"), ["emb_vector", len(rows) + 1])
        self.refuse(self.hugectr(keys, rows[:-16]), ["emb_vector", len(rows) - 16])
        self.refuse(self.hugectr(keys[:-1], rows), ["key", len(keys) - 1, "8"])
        self.refuse(self.hugectr(keys[:-8], rows), ["emb_vector", "19", 304, 320], "--dim", 4)
        self.refuse(self.hugectr(b"", rows), ["emb_vector"], "--dim", 4)

    def test_duplicate_keys_name_the_key_and_both_positions(self) -> None:
        keys = self.random.permutation(np.arange(1000, dtype=np.int64))
        keys[903] = keys[17]
        for path in (self.hugectr(keys.tobytes(), bytes(1000 * 16)),
                     self.npy(keys, np.zeros((1000, 4), dtype=np.float32))):
            self.refuse(path, [f"{keys[17]}", "17", "903"])
        keys.sort()
        self.refuse(self.hugectr(keys.tobytes(), bytes(1000 * 16)), [])

    def test_files_that_are_not_there(self) -> None:
        self.refuse(self.directory / "none", ["none"], code="NOT_FOUND")
        empty = self.directory / "empty"
        empty.mkdir()
        self.fail_with(1, "INVALID_ARGUMENT", [empty], "import", "--store", self.store, "--table",
                       "m/t", "--from", empty)
        self.refuse(empty, ["keys.npy"], "--format", "npy", code="NOT_FOUND")
        half = self.hugectr(self.keys.tobytes(), b"")
        (half / "emb_vector").unlink()
        (half / "emb_vector").mkdir()
        self.refuse(half, ["emb_vector"], "--format", "hugectr")
        self.refuse(empty, ["empty"], "--format", "safetensors")
        self.refuse(self.good / "key", ["key", "Not a directory"], "--format", "npy")

    def test_npy(self) -> None:
        keys, rows = self.keys, self.rows
        self.refuse(self.npy(keys, np.asfortranarray(rows)), ["rows.npy", "Fortran"])
        self.refuse(self.npy(keys, rows.astype(np.float64)), ["rows.npy", "<f8"])
        self.refuse(self.npy(keys, rows.astype(">f4")), ["rows.npy", ">f4"])
        self.refuse(self.npy(keys.astype(np.float32), rows), ["keys.npy", "<f4"])
        self.refuse(self.npy(keys.reshape(2, 10), rows), ["keys.npy", "[2, 10]"])
        self.refuse(self.npy(keys, rows.reshape(-1)), ["rows.npy", "[80]"])
        self.refuse(self.npy(keys, rows[:-1]), ["rows.npy", "20", "[19, 4]"])
        self.refuse(self.npy(keys, rows[:, :0]), ["rows.npy", "dim"])

    def test_hostile_npy_headers(self) -> None:
        good = (self.npy(self.keys, self.rows) / "rows.npy").read_bytes()
        header = good[:good.index(b"\n") + 1]
        data = good[len(header):]
        hostile = {
            "cut": good[:20],
            "no magic": b"\0" * len(good),
            "version 9": good[:6] + b"\x09\0" + good[8:],
            "length beyond the file": good[:8] + b"\xff\xff" + good[10:],
            "2^32 long": b"\x93NUMPY\x02\0\xff\xff\xff\xff" + good[12:],
            "no dictionary": good[:10] + b" " * (len(header) - 11) + b"\n" + data,
            "huge shape": header.replace(b"(20, 4), }", b"(99999999999999999, 4), }") + data,
            "object": header.replace(b"'<f4'", b"'|O8'") + data,
            "cut data": good[:-1],
            "more data": good + b"\0",
        }
        for name, content in hostile.items():
            with self.subTest(name):
                path = self.npy(self.keys, self.rows)
                (path / "rows.npy").write_bytes(content)
                self.refuse(path, ["rows.npy"])

    def test_safetensors(self) -> None:
        good = support.safetensors_bytes({"keys": self.keys, "rows": self.rows})
        size = int.from_bytes(good[:8], "little")
        header, data = json.loads(good[8:8 + size]), good[8 + size:]

        def with_header(change) -> bytes:
            changed = json.loads(json.dumps(header))
            change(changed)
            text = json.dumps(changed).encode()
            return len(text).to_bytes(8, "little") + text + data

        def overlap(h):
            h["rows"]["data_offsets"] = [100, 420]

        def beyond(h):
            h["rows"]["data_offsets"] = [160, 2**40]

        def negative(h):
            h["rows"]["data_offsets"] = [-1, 480]

        def wrong_shape(h):
            h["rows"]["shape"] = [20, 5]

        def overflowing(h):
            h["rows"]["shape"] = [2**62, 2**62]

        def dtype(h):
            h["rows"]["dtype"] = "F64"

        def no_rows(h):
            del h["rows"]

        hostile = {
            "empty": b"",
            "short": good[:7],
            "header beyond the file": (2**20).to_bytes(8, "little") + good[8:],
            "header of 2^63": (2**63).to_bytes(8, "little") + good[8:],
            "header of 2^64 - 1": b"\xff" * 8 + good[8:],
            "no JSON": size.to_bytes(8, "little") + b"x" * size + data,
            "cut": good[:-1],
            "deep": (100_000).to_bytes(8, "little") + b"[" * 100_000 + data,
        }
        hostile |= {change.__name__: with_header(change) for change in
                    (overlap, beyond, negative, wrong_shape, overflowing, dtype, no_rows)}
        for name, content in hostile.items():
            with self.subTest(name):
                path = self.safetensors(content)
                self.refuse(path, [path])
        self.refuse(self.safetensors(good), ["nothing"], "--tensor", "nothing",
                    code="NOT_FOUND")

    def test_names(self) -> None:
        for table, part in (("../x", "table name"), ("m/" + "a" * 121, "121"), ("m/", "empty"),
                            ("/t", "empty"), ("m", "MODEL/TABLE"), ("m/a b", "' '"),
                            ("m/a/b", "'/'"), ("m/\u00e4", "allowed"), ("", "MODEL/TABLE")):
            with self.subTest(table):
                self.refuse(self.good, [part], table=table, status=2)
        for model in ("x y", "m/t", "", "a" * 121):
            with self.subTest(model):
                self.fail_with(2, "INVALID_ARGUMENT", [model[:40]], "import", "--store", self.store,
                               "--model", model, "--from", self.directory)

    def test_dim_and_dtype(self) -> None:
        self.refuse(self.good, ["dim"], "--dim", 0, status=2)
        self.refuse(self.good, ["dim"], "--dim", 5)
        self.refuse(self.good, ["dim"], "--dim", 10_000)
        self.refuse(self.good, ["--dim"], "--dim", 100_000, status=2)
        other = self.npy(self.keys, self.random_rows(20, 8))
        self.refuse(other, ["m/t", "dim", "4", "8"], code="FAILED_PRECONDITION")
        half = self.npy(self.keys, self.rows.astype(np.float16))
        self.refuse(half, ["m/t", "float32", "float16"], code="FAILED_PRECONDITION")
        wide = self.npy(self.keys[:1], np.zeros((1, 5000), dtype=np.float32))
        self.refuse(wide, [wide, "5000", "16384"], table="m/other")

    def test_default_rows(self) -> None:
        np.save(self.directory / "three.npy", np.zeros(3, dtype=np.float32))
        self.refuse(self.good, ["three.npy", "[4]"], "--default-file", self.directory / "three.npy")
        self.refuse(self.good, ["none.npy"], "--default-file", self.directory / "none.npy",
                    code="NOT_FOUND")

    def test_a_default_that_the_type_can_not_hold(self) -> None:
        for dtype, value, largest in (("float16", "1e6", "65504"), ("float32", "-1e39", "3.4028"),
                                      ("bfloat16", "3.4e38", "3.3895")):
            self.refuse(self.good, [dtype, largest], "--default", value, "--dtype", dtype,
                        table="m/other")

    def test_one_bad_table_of_a_model_changes_no_table(self) -> None:
        model = self.directory / "model"
        support.write_hugectr(model / "t", self.keys, self.rows + 1)
        support.write_hugectr(model / "u", self.keys, self.rows)
        bad = support.write_hugectr(model / "v", self.keys, self.rows)
        (bad / "emb_vector").write_bytes(self.rows.tobytes()[:-3])
        self.fail_with(1, "INVALID_ARGUMENT", [bad / "emb_vector"], "import", "--store", self.store,
                       "--model", "m", "--from", model)
        duplicates = self.keys.copy()
        duplicates[3] = duplicates[2]
        (bad / "key").write_bytes(duplicates.tobytes())
        (bad / "emb_vector").write_bytes(self.rows.tobytes())
        self.fail_with(1, "INVALID_ARGUMENT", [bad], "import", "--store", self.store, "--model",
                       "m", "--from", model)
        names = [t["name"] for t in self.succeed("inspect", "--store", self.store)["tables"]]
        self.assertEqual(names, ["m/t"])
        self.expect_rows("m/t", self.keys, self.rows)

    def test_unknown_tables_name_the_nearest(self) -> None:
        for command in (["lookup", "--keys", "1"], ["export", "--to", self.directory / "o",
                                                    "--format", "npy"], ["drop"]):
            self.fail_with(1, "NOT_FOUND", ["m/tt", "'m/t'"], *command, "--store", self.store,
                           "--table", "m/tt")
        self.fail_with(1, "NOT_FOUND", ["'n'", "'m'"], "lookup", "--keys", "1", "--store",
                       self.store, "--table", "n/t")

    def test_keys_files(self) -> None:
        lookup = ["lookup", "--store", self.store, "--table", "m/t", "--keys-file"]
        self.fail_with(1, "NOT_FOUND", ["none.npy"], *lookup, self.directory / "none.npy")
        np.save(self.directory / "floats.npy", np.zeros(3))
        self.fail_with(1, "INVALID_ARGUMENT", ["floats.npy", "<f8"], *lookup,
                       self.directory / "floats.npy")
        self.fail_with(1, "INVALID_ARGUMENT", [], *lookup, self.good / "key")

    def test_stores_that_are_none(self) -> None:
        none = self.directory / "none"
        for command in (["inspect"], ["verify"], ["lookup", "--table", "m/t", "--keys", "1"],
                        ["drop", "--table", "m/t"],
                        ["export", "--table", "m/t", "--to", self.directory / "o",
                         "--format", "npy"]):
            self.fail_with(1, "NOT_FOUND", [none], *command, "--store", none)
        self.assertFalse(none.exists())
        full = self.directory / "full"
        full.mkdir()
        (full / "letter.txt").write_text("something else")
        self.fail_with(1, "FAILED_PRECONDITION", [full], "import", "--store", full, "--table",
                       "m/t", "--from", self.good)
        self.assertEqual(os.listdir(full), ["letter.txt"])

    def test_files_that_may_not_grow(self) -> None:
        """ulimit -f: a failed write with a sentence, not the signal that ends a process."""
        rows = self.random_rows(20_000, 16)
        big = support.write_hugectr(self.directory / "big", np.arange(20_000, dtype=np.int64), rows)
        self.succeed("import", "--store", self.directory / "other", "--table", "m/t", "--from", big)
        new, out = self.directory / "new", self.directory / "out"
        self.limits = {resource.RLIMIT_FSIZE: 100_000}
        self.refuse(big, ["File too large"], table="m/big", code="RESOURCE_EXHAUSTED")
        self.fail_with(1, "RESOURCE_EXHAUSTED", ["File too large"], "import", "--store", new,
                       "--table", "m/t", "--from", big)
        self.fail_with(1, "RESOURCE_EXHAUSTED", [out], "export", "--store",
                       self.directory / "other", "--table", "m/t", "--to", out, "--format", "npy")
        self.assertEqual(os.listdir(out) if out.exists() else [], [])
        self.fail_with(1, "RESOURCE_EXHAUSTED", [out], "generate", "--out", out, "--tables", 1,
                       "--rows", 20_000, "--dim", 16)
        self.assertFalse(out.exists())
        self.limits = {}
        self.succeed("import", "--store", new, "--table", "m/t", "--from", big)
        self.assertEqual(self.succeed("verify", "--store", self.store)["damage_count"], 0)

    def test_threads_that_can_not_be_started(self) -> None:
        """ulimit -u: a sentence, whichever thread it is that can't be started; never an abort."""
        if os.geteuid() != 0:
            self.skipTest("only root can become a user who has no other threads")
        # Not below the test's own directory: those above it may be closed to others.
        shared = tempfile.TemporaryDirectory(prefix="hps_nobody_", dir="/tmp")
        self.addCleanup(shared.cleanup)
        directory = pathlib.Path(shared.name)
        shutil.copytree(self.good, directory / "good")
        for path in (directory, directory / "good"):
            path.chmod(0o777)
        store = directory / "nobodys"

        def run(threads_max, *arguments) -> subprocess.CompletedProcess:
            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_NPROC, (threads_max, threads_max))

            return subprocess.run([str(support.HPS), *map(str, arguments)], capture_output=True,
                                  text=True, timeout=support.TIMEOUT_S, check=False,
                                  user=NOBODY, group=NOBODY, extra_groups=[], preexec_fn=limit)

        import_it = ["import", "--store", store, "--table", "m/t", "--from", directory / "good"]
        look_up = ["lookup", "--store", store, "--table", "m/t", "--keys", "1"]
        try:
            made = run(1000, *import_it)
        except PermissionError:
            self.skipTest(f"user {NOBODY} may not execute {support.HPS}")
        self.assertEqual(made.returncode, 0, made.stderr)
        # Opens the store for writing first. It has no such table, so nothing changes.
        drop = ["drop", "--store", store, "--table", "m/none"]
        refused = 0
        for threads_max in range(1, 26, 2):
            for command in (look_up, import_it, drop):
                with self.subTest(command=command[0], threads_max=threads_max):
                    done = run(threads_max, *command)
                    self.assertIn(done.returncode, (0, 1), done.stderr)
                    if done.returncode == 1 and not done.stderr.startswith("hps: NOT_FOUND"):
                        refused += 1
                        self.assertRegex(done.stderr, "^hps: RESOURCE_EXHAUSTED: .*thread")
        self.assertGreater(refused, 5)
        # Several at once: none can keep for itself the threads that it has tried.
        for threads_max in range(4, 64, 4):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for done in pool.map(lambda _, most=threads_max: run(most, *look_up), range(4)):
                    with self.subTest(at_once=4, threads_max=threads_max):
                        self.assertIn(done.returncode, (0, 1), done.stderr)
                        if done.returncode == 1:
                            self.assertRegex(done.stderr, "^hps: RESOURCE_EXHAUSTED: .*thread")
        self.assertEqual(run(1000, *look_up).returncode, 0)

    def test_stream_from_is_a_word_or_a_time(self) -> None:
        for text in ("now", "1700000000", "2023-11-14"):
            done = self.run_hps("import", "--store", str(self.directory / "s"), "--table", "m/t",
                                    "--from", str(self.good), "--stream-from", text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("earliest", done.stderr)


class UsageTest(support.CommandTestCase):

    def test_help_at_every_level(self) -> None:
        for command in ([], ["import"], ["lookup"], ["inspect"], ["verify"], ["export"], ["drop"],
                        ["generate"], ["bench"]):
            done = self.run_hps(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Example:\n  hps " + " ".join(command), done.stdout)
            self.assertIn("Usage: " + " ".join(["hps", *command]) + " ", done.stdout)
            self.assertTrue(done.stdout.endswith("\n"))

    def test_wrong_usage_is_exit_status_two(self) -> None:
        for arguments in ([], ["imprt"], ["import"], ["lookup", "--store", "s"],
                          ["lookup", "--store", "s", "--table", "m/t", "--keys", "x"],
                          ["import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "x"],
                          ["verify", "--store", "s", "--fast"], ["bench", "nosuch"],
                          ["import", "--store", "s", "--table", "x", "--from", "p"],
                          ["import", "--store", "s", "--model", "a/b", "--from", "p"],
                          ["generate", "--out", "o", "--tables", 1, "--rows", -5, "--dim", 4],
                          ["generate", "--out", "o", "--tables", 1, "--rows", 5, "--dim", "0x4"],
                          ["generate", "--out", "o", "--tables", 9, "--rows", 5, "--dim", 4],
                          ["generate", "--out", "o", "--tables", 1, "--rows", 5, "--dim", 5000],
                          ["lookup", "--store", "s", "--table=", "--keys", 1],
                          ["serve", "--store", "s", "--http=", "--grpc="]):
            self.fail_with(2, "INVALID_ARGUMENT", [], *arguments)
        self.assertFalse(pathlib.Path("o").exists())

    def test_the_demo_takes_one_directory(self) -> None:
        for arguments in (["--help"], ["a", "b"]):
            done = subprocess.run([support.HPS.parent / "hps_demo", *arguments],
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (2, "", "Usage: hps_demo [DIRECTORY]\n"))
            self.assertFalse(any(pathlib.Path(argument).exists() for argument in arguments))

    def test_text_of_a_look_up_reads_back(self) -> None:
        keys, rows = self.random_keys(20), self.random_rows(20, 3)
        rows[0] = [np.nan, np.inf, -np.inf]
        source = support.write_npy(self.directory / "t", keys, rows)
        self.succeed_in_text("import", "--store", self.store, "--table", "m/t", "--from", source)
        lines = self.succeed_in_text("lookup", "--store", self.store, "--table", "m/t", "--keys",
                                     ",".join(map(str, keys))).splitlines()
        self.assertEqual(lines[0], f"{keys[0]} hit_l3 NaN Infinity -Infinity")
        read = np.array([line.split()[2:] for line in lines], dtype=np.float32)
        np.testing.assert_array_equal(read, rows)

    def test_files_that_can_not_be_read_are_named_with_the_reason(self) -> None:
        none, gone = self.directory / "none", "No such file or directory"
        ask = ["top", "--server", "https://127.0.0.1:1", "--count", 1]
        self.fail_with(1, "NOT_FOUND", [none, gone], *ask, "--token-file", none)
        self.fail_with(1, "INVALID_ARGUMENT", [self.directory, "Is a directory"], *ask,
                       "--token-file", self.directory)
        self.fail_with(1, "UNAVAILABLE", ["/proc/self/mem", "Input/output error"], *ask,
                       "--token-file", "/proc/self/mem")
        self.fail_with(1, "INVALID_ARGUMENT", ["/dev/null", "one line"], *ask, "--token-file",
                       "/dev/null")
        self.fail_with(1, "RESOURCE_EXHAUSTED", ["/dev/zero"], *ask, "--token-file", "/dev/zero")
        none.touch()
        self.fail_with(1, "FAILED_PRECONDITION", ["bench l3", none / "l3", "Not a directory"],
                       "bench", "l3", "--quick", "--directory", none)

    def test_a_report_that_can_not_be_written(self) -> None:
        bench = ["bench", "session", "--quick", "--directory", self.directory / "scratch", "--out"]
        self.fail_with(1, "NOT_FOUND", ["none/x.json"], *bench, self.directory / "none" / "x.json")
        self.fail_with(1, "INVALID_ARGUMENT", ["directory"], *bench, self.directory)
        if os.geteuid() == 0:
            self.fail_with(1, "RESOURCE_EXHAUSTED", ["/dev/full"], *bench, "/dev/full")
        self.assertFalse((self.directory / "scratch").exists())

    def test_configuration(self) -> None:
        file = self.directory / "hps.toml"
        keys, rows = self.random_keys(10), self.random_rows(10, 2)
        source = support.write_npy(self.directory / "t", keys, rows)
        file.write_text('[store]\npath = "store"\n[l2]\nbytes_max = "1MiB"\n')
        self.succeed("import", "--config", file, "--table", "m/t", "--from", source)
        self.expect_rows("m/t", keys, rows)
        bad = {'[stor]\npath = "x"\n': [":1:", "did you mean 'store'"],
               '[store]\npath = 3\n': [":2:8:", "a path"],
               '[l2]\npreload = 7\n': [":2:", "0.0 to 1.0"],
               '[store\n': [":1:"]}
        for text, parts in bad.items():
            file.write_text(text)
            self.fail_with(2, "INVALID_ARGUMENT", [file, *parts], "inspect", "--config", file)
        self.fail_with(2, "NOT_FOUND", ["none.toml"], "inspect", "--config",
                       self.directory / "none.toml")
        file.write_text("[" + "a." * 500_000 + "a]\n")
        self.fail_with(2, "INVALID_ARGUMENT", [file, ":1:17:", "parts"], "inspect", "--config",
                       file)

    def test_stdout_that_can_not_be_written(self) -> None:
        source = support.write_npy(self.directory / "t", self.random_keys(10),
                                   self.random_rows(10, 2))
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        for extra in ([], ["--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([str(support.HPS), "inspect", "--store", str(self.store),
                                       *extra], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=support.TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, "hps: UNAVAILABLE: stdout can't be written\n")


if __name__ == "__main__":
    unittest.main()
