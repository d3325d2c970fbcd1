"""`hps bench` starts hps-bench, beside it or on the PATH, and says where there is none."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import support

BENCH = support.HPS.parent / "hps-bench"


class BenchCommandTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        (self.directory / "bin").mkdir()
        self.alone = self.directory / "bin" / "hps"
        shutil.copy(support.HPS, self.alone)

    def run_bench(self, *arguments, path: pathlib.Path | str = "") -> subprocess.CompletedProcess:
        """Of the copy of hps that has no hps-bench beside it."""
        return subprocess.run([self.alone, *arguments], capture_output=True, text=True, check=False,
                              timeout=support.TIMEOUT_S, env=os.environ | {"PATH": str(path)})

    def place(self, name: str, text: str) -> pathlib.Path:
        """A program that prints its own path and arguments."""
        path = self.directory / name / "hps-bench"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_arguments_output_and_exit_status_are_those_of_hps_bench(self) -> None:
        for arguments in (["--help"], ["nosuch"], ["l2", "--nosuch"], ["--json", "nosuch"], []):
            by_hps = self.run_hps("bench", *arguments)
            itself = subprocess.run([BENCH, *arguments], capture_output=True, text=True,
                                    timeout=support.TIMEOUT_S, check=False)
            self.assertEqual((by_hps.returncode, by_hps.stdout, by_hps.stderr),
                             (itself.returncode, itself.stdout, itself.stderr))
            self.assertEqual(itself.returncode, 0 if arguments == ["--help"] else 2)
        before = self.run_hps("--json", "bench", "nosuch")
        self.assertEqual(json.loads(before.stdout)["error"]["code"], "INVALID_ARGUMENT")

    def test_it_is_beside_hps_or_on_the_path(self) -> None:
        text = '#!/bin/sh\necho "$0" "$@"\nexit 7\n'
        on_path = self.place("elsewhere", text)
        done = self.run_bench("bench", "l2", "--out=", "a b", path=on_path.parent)
        self.assertEqual((done.returncode, done.stdout), (7, f"{on_path} l2 --out= a b\n"))
        beside = self.place("bin", text)
        done = self.run_bench("--json", "bench", path=on_path.parent)
        self.assertEqual((done.returncode, done.stdout), (7, f"{beside} --json\n"))
        beside.chmod(0o644)
        done = self.run_bench("bench", path=on_path.parent)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"hps: PERMISSION_DENIED: '{beside}' can't be started", done.stderr)

    def test_where_there_is_none_it_says_how_to_build_it(self) -> None:
        line = (f"hps: NOT_FOUND: bench: there is no hps-bench beside {self.alone} or on the "
                "PATH; `make build` in the source tree of hps builds it as "
                "build/cpu/bin/hps-bench\n")
        for path in (self.directory, "", f"{self.directory}:{self.alone}"):  # the last: a file
            done = self.run_bench("bench", "l2", path=path)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", line))
        done = self.run_bench("bench", "l2", "--json", path=self.directory)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "NOT_FOUND")


if __name__ == "__main__":
    unittest.main()
