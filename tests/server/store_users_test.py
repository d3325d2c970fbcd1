"""A server with a user of its own, and an administrator who imports as root: what a load says."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import support
from support import HPS, MODEL, ROWS, TABLES, stamped

SERVER, OTHER = 64101, 64102  # users without a name
TOKEN = "a-token-of-the-test"
CONTROL = "repository_control = true"


def as_user(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


def can_be_several_users() -> bool:
    if os.geteuid() != 0:
        return False
    started = subprocess.run([*as_user(SERVER), str(HPS), "--version"], check=False,
                             capture_output=True)
    return started.returncode == 0


@unittest.skipUnless(can_be_several_users(), "only root can be several users")
class StoreUsersTest(unittest.TestCase):
    def setUp(self) -> None:
        # Not below a folder that is this user's alone.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_users_", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        os.chown(self.directory, SERVER, SERVER)
        self.directory.chmod(0o755)
        self.store = self.directory / "store"
        self.import_version(1, as_user(SERVER), "022")
        program = self.directory / "hps_as_user"
        program.write_text(f"#!/bin/sh\nexec {' '.join(as_user(SERVER))} {HPS} \"$@\"\n")
        program.chmod(0o755)
        self.server = support.RunningServer(self.directory, program=program, security=CONTROL,
                                            environment={"HPS_TOKEN": TOKEN})
        self.addCleanup(self.server.kill)
        self.server.await_ready()

    def import_version(self, version: int, user: list[str], umask: str, fails: int = 0,
                       model: str = MODEL) -> str:
        source = self.directory / f"tables{version}"
        for table in TABLES:
            (source / table).mkdir(parents=True)
            np.save(source / table / "keys.npy", np.arange(ROWS, dtype=np.int64))
            np.save(source / table / "rows.npy",
                    stamped(table, np.arange(ROWS, dtype=np.int64), version))
        command = [*user, str(HPS), "import", "--store", str(self.store), "--model", model,
                   "--from", str(source), "--json"]
        done = subprocess.run(["sh", "-c", f'umask {umask}; exec "$@"', "sh", *command],
                              capture_output=True, text=True, timeout=support.WAIT_S, check=False)
        self.assertEqual(done.returncode, fails, done.stderr)
        shutil.rmtree(source)
        return done.stdout

    def load(self, model: str = MODEL) -> tuple[int, str]:
        status, body = self.server.get(f"/v2/repository/models/{model}/load",
                                       {"Authorization": f"Bearer {TOKEN}"}, data=b"",
                                       method="POST")
        return status, json.loads(body)["error"] if status != 200 else ""

    def served_version(self) -> int:
        body = {"inputs": [{"name": "user", "datatype": "INT64", "shape": [1], "data": [7]}]}
        status, answer = self.server.get(f"/v2/models/{MODEL}/infer",
                                         {"Authorization": f"Bearer {TOKEN}"},
                                         data=json.dumps(body).encode(), method="POST")
        self.assertEqual(status, 200, answer)
        row = np.array(json.loads(answer)["outputs"][0]["data"], np.float32)
        (version,) = [version for version in range(1, 9) if np.array_equal(
            row, stamped("user", np.array([7]), version).ravel())]
        return version

    def staged(self) -> list[pathlib.Path]:
        return list((self.store / "staging").iterdir())

    def logged(self) -> str:
        return (self.directory / "hps.log").read_text(encoding="utf-8")

    def test_what_root_stages_is_loaded_and_leaves_nothing(self) -> None:
        for version, umask in ((2, "022"), (3, "077"), (4, "0777")):
            with self.subTest(umask=umask):
                self.assertTrue(json.loads(self.import_version(version, [], umask))["staged"])
                self.assertEqual(self.load(), (200, ""))
                self.assertEqual(self.served_version(), version)
                self.assertEqual(self.staged(), [])
        owners = {path.stat().st_uid for path in self.store.rglob("*")}
        self.assertEqual(owners, {SERVER}, "the rows that are served are the server's")

    def test_the_first_staged_import_makes_a_folder_that_the_server_can_list(self) -> None:
        shutil.rmtree(self.store / "staging")
        self.import_version(2, [], "077")
        self.assertEqual(self.load(), (200, ""))
        self.assertEqual(self.served_version(), 2)

    def test_what_the_server_could_not_take_is_not_staged(self) -> None:
        # All may read the store, and write its lock and its staging folder, but not remove files.
        (self.store / "staging").chmod(0o1777)
        (self.store / "hps.lock").chmod(0o666)
        said = json.loads(self.import_version(2, as_user(OTHER), "077", fails=1))
        self.assertEqual(said["error"]["code"], "PERMISSION_DENIED")
        self.assertIn(f"user {SERVER}", said["error"]["message"])
        self.assertIn(f"user {OTHER}", said["error"]["message"])
        self.assertEqual(self.staged(), [])
        self.assertEqual(self.load(), (200, ""))  # there is nothing to be loaded

    def check_refused(self, model: str, owner: str, what: str) -> None:
        (staged,) = self.staged()
        for _ in range(2):  # until it is mended
            status, told = self.load(model)
            self.assertEqual(status, 409, told)
            self.assertIn(f"model '{model}'", told)
            self.assertIn(f"'staging/{staged.name}'", told)
            self.assertIn(f"belongs to user {owner}, and user {SERVER} may not {what} it", told)
            self.assertNotIn(str(self.directory), told)
        self.assertIn(str(staged), self.logged())
        self.assertEqual(self.served_version(), 1)

    def test_a_staged_import_of_another_user_makes_the_load_fail(self) -> None:
        # As an hps that left the files to the user who imports has staged them.
        for umask, what in (("077", "read"), ("022", "remove")):
            with self.subTest(umask=umask):
                self.import_version(2, as_user(SERVER), "022")
                (staged,) = self.staged()
                for path in (staged, *staged.iterdir()):
                    os.chown(path, OTHER, OTHER)
                    path.chmod((0o777 if path.is_dir() else 0o666) & ~int(umask, 8))
                self.check_refused(MODEL, str(OTHER), what)
                for path in (staged, *staged.iterdir()):
                    os.chown(path, SERVER, SERVER)
                self.assertEqual(self.load(), (200, ""))
                self.assertEqual(self.served_version(), 2)
                self.assertEqual(self.staged(), [])
                self.import_version(1, as_user(SERVER), "022")
                self.assertEqual(self.load(), (200, ""))

    def test_a_staging_folder_that_can_not_be_listed_makes_the_load_fail(self) -> None:
        self.import_version(2, as_user(SERVER), "022")
        os.chown(self.store / "staging", 0, 0)
        (self.store / "staging").chmod(0o700)
        status, told = self.load()
        self.assertEqual(status, 409, told)
        self.assertIn("the store's folder 'staging' belongs to user 'root'", told)
        self.assertEqual(self.served_version(), 1)
        # The next import as root mends it, and the load takes both.
        self.import_version(3, [], "077")
        self.assertEqual(self.load(), (200, ""))
        self.assertEqual(self.served_version(), 3)
        self.assertEqual(self.staged(), [])

    def test_one_model_whose_import_can_not_be_removed_stops_no_other(self) -> None:
        self.import_version(2, [], "022", model="other")
        (staged,) = self.staged()
        os.chown(staged, OTHER, OTHER)
        self.import_version(3, [], "022")
        self.assertEqual(self.load(), (200, ""))
        self.assertEqual(self.served_version(), 3)
        status, told = self.load("other")
        self.assertEqual(status, 409, told)
        self.assertIn("model 'other': the staged import", told)
        self.assertIn("may not remove it", told)

    def test_a_start_serves_what_is_there_and_the_load_still_fails(self) -> None:
        self.import_version(2, [], "022")
        (staged,) = self.staged()
        os.chown(staged, OTHER, OTHER)
        staged.chmod(0o700)
        self.assertEqual(self.server.stop(), 0)
        self.server = support.RunningServer(
            self.directory, program=self.directory / "hps_as_user", security=CONTROL,
            environment={"HPS_TOKEN": TOKEN})
        self.addCleanup(self.server.kill)
        self.server.await_ready()
        self.check_refused(MODEL, str(OTHER), "read")


if __name__ == "__main__":
    unittest.main()
