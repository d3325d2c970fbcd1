"""Processes that fork or end while they use hps."""

import subprocess
import sys
import textwrap
import unittest

import numpy as np
import support
from waiting import WAIT_S

import hps


class ProcessTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        hps.import_table(self.path, "m/u", np.arange(10), np.ones((10, 4), np.float32))

    def run_script(self, script: str) -> str:
        """Runs a script, in which `path` is the store's, and returns what it printed."""
        head = ("import os, sys, threading, time\nimport numpy as np\nimport hps\n"
                f"path = {str(self.path)!r}\n")
        done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(script)], text=True,
                              capture_output=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_threads_that_look_up_while_the_process_ends(self) -> None:
        for _ in range(3):
            self.run_script("""
                store = hps.open(path)
                session = store.session("m")
                def look_up():
                    while True:
                        session.lookup("u", np.arange(10))
                        store.statistics()
                for _ in range(8):
                    threading.Thread(target=look_up, daemon=True).start()
                time.sleep(0.1)
            """)

    def test_a_forked_process_reads_and_ends(self) -> None:
        answers = self.run_script("""
            hps.inspect(path)
            child = os.fork()
            if child == 0:
                with hps.open(path, mode="r") as store:
                    print(store.session("m").lookup("u", [3])[0, 0], flush=True)
                for call in (lambda: hps.open(path), lambda: hps.drop(path, "m/u"),
                             lambda: hps.import_table(path, "m/v", np.ones((1, 4), np.float32))):
                    try:
                        call()
                    except hps.FailedPreconditionError as error:
                        print("spawn" in str(error), flush=True)
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """).split()
        self.assertEqual(answers, ["1.0", "True", "True", "True", "7"])

    def test_a_time_out_that_is_no_number(self) -> None:
        with hps.open(self.path) as store:
            for timeout in (float("nan"), -1.0):
                with self.assertRaisesRegex(hps.InvalidArgumentError, "timeout"):
                    store.apply("m/u", [1], np.ones((1, 4), np.float32), timeout=timeout)
                with self.assertRaisesRegex(hps.InvalidArgumentError, "timeout"):
                    store.delete("m/u", [1], timeout=timeout)

    def test_paths_of_no_text(self) -> None:
        path = self.directory / "\udcff"
        hps.import_table(path, "m/u", np.arange(3), np.ones((3, 4), np.float32))
        with hps.open(path, mode="r") as store:
            self.assertEqual(store.session("m").lookup("u", [1])[0, 0], 1)
        with self.assertRaises(hps.NotFoundError):
            hps.open(bytes(self.directory) + b"/\xfe", mode="r")

    def test_messages_name_what_was_found(self) -> None:
        with hps.open(self.path) as store:
            session, keys = store.session("m"), np.arange(3)
            for found, call in (
                    (">i8", lambda: session.lookup("u", keys.astype(">i8"))),
                    ("float64", lambda: session.lookup("u", keys.astype(np.float64))),
                    ("bool", lambda: session.lookup("u", keys > 1)),
                    ("int64", lambda: store.apply("m/u", keys, np.ones((3, 4), np.int64))),
                    ("str", lambda: session.lookup("u", keys, hit_rate_threshold="x")),
                    ("dim: .*-1|dim: .*int", lambda: hps.import_table(self.path, "m/v", keys,
                                                                      dim=-1)),
                    ("threads: .*found str", lambda: hps.import_table(
                        self.path, "m", from_path=self.directory, threads="x")),
                    ("http: .*found int", lambda: hps.serve(self.path, http=8000))):
                with self.assertRaisesRegex((TypeError, hps.InvalidArgumentError), found):
                    call()


if __name__ == "__main__":
    unittest.main()
