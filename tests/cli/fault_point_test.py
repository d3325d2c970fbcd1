"""Fault points are in test programs alone: the command that users get can't be armed."""

import os
import pathlib
import unittest
from unittest import mock

import support

ARM = "l3.import.before_switch=abort,l3.import.before_finish=abort"


class FaultPointTest(support.CommandTestCase):

    def test_the_environment_arms_nothing_in_the_command(self) -> None:
        keys, rows = self.random_keys(10), self.random_rows(10, 4)
        source = support.write_npy(self.directory / "t", keys, rows)
        with mock.patch.dict(os.environ, {"HPS_FAULT_ARM": ARM}):
            self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        self.expect_rows("m/t", keys, rows)

    def test_only_test_programs_have_the_code(self) -> None:
        command = pathlib.Path(support.HPS)
        self.assertNotIn(b"HPS_FAULT_ARM", command.read_bytes())
        armed = command.parent.parent / "tests" / "kill_child"
        if not armed.exists():
            self.skipTest("kill_child is not built here")
        self.assertIn(b"HPS_FAULT_ARM", armed.read_bytes())


if __name__ == "__main__":
    unittest.main()
