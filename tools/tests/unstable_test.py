"""Only what was late may be tried again; what was wrong, ended or raced never is."""

import json
import pathlib
import sys
import unittest
from unittest import mock

from planted import PlantedTest

import run_tests
import unstable
from test_programs import Program

# A stand-in for a GoogleTest program. Case A.Late misses a wait the first time, A.Wrong finds a
# wrong value the first time; `body` says what else happens. $COUNT counts the runs.
STAND_IN = """
import json, os, sys
flags = dict(flag.lstrip("-").split("=", 1) for flag in sys.argv[1:])
report = flags["gtest_output"].removeprefix("json:")
count_file = os.environ["COUNT"]
runs = int(open(count_file).read()) if os.path.exists(count_file) else 0
open(count_file, "w").write(str(runs + 1))
open(count_file + ".seeds", "a").write(os.environ.get("HPS_TEST_SEED", "-") + " ")
print("HPS_TEST_SEED=4711")
LATE = ("a_test.cc:5\\nValue of: AwaitLatch(x)\\n"
        "  Actual: false (missed wait: nothing came within 60 s)\\nExpected: true")
WRONG = "a_test.cc:9\\nExpected equality of these values:\\n  row\\n    Which is: 1\\n  2"
def end(failures, status=None):
    only = flags.get("gtest_filter")
    cases = [{"name": name.split(".")[1], "status": "RUN", "result": "COMPLETED",
              **({"failures": [{"failure": text} for text in texts]} if texts else {})}
             for name, texts in failures.items() if only in (None, name)]
    json.dump({"testsuites": [{"name": "A", "testsuite": cases}]}, open(report, "w"))
    failed = any("failures" in case for case in cases)
    sys.exit(status if status is not None else 1 if failed else 0)
"""


class UnstableTest(PlantedTest):
    def run_stand_in(self, body: str, name: str = "cpu a_test", known: dict | None = None,
                     never_again: list | None = None):
        """The result and the unstable cases of a run of the stand-in."""
        root = self.plant({"program.py": STAND_IN + body})
        self.count = root / "count"
        program = Program(name, [sys.executable, str(root / "program.py")], 30,
                          {"COUNT": str(self.count)}, True)
        result = run_tests.run_program(program)
        suites = {"unstable": known or {}, "never_again": never_again or []}
        with mock.patch("builtins.print"):
            cases = run_tests.try_again([result], [program], suites)
        return result, cases

    def runs(self) -> int:
        return int(self.count.read_text())

    def test_a_late_case_that_passes_three_times_alone_counts_as_passed(self):
        result, cases = self.run_stand_in(
            "end({'A.Late': [LATE] if runs == 0 else [], 'A.Other': []})")
        self.assertEqual((result.passed, result.failed), (2, 0))
        self.assertEqual([(case.program, case.case) for case in cases], [("cpu a_test", "A.Late")])
        self.assertEqual(self.runs(), 4)
        self.assertEqual(pathlib.Path(f"{self.count}.seeds").read_text(), "- 4711 4711 4711 ")

    def test_a_late_case_that_is_late_again_fails(self):
        result, cases = self.run_stand_in("end({'A.Late': [LATE] if runs in (0, 3) else []})")
        self.assertEqual((result.failed, cases, self.runs()), (1, [], 4))

    def test_a_wrong_case_is_not_tried_again(self):
        result, cases = self.run_stand_in("end({'A.Wrong': [WRONG] if runs == 0 else []})")
        self.assertEqual((result.failed, cases, self.runs()), (1, [], 1))

    def test_a_case_that_is_late_and_wrong_is_not_tried_again(self):
        result, cases = self.run_stand_in("end({'A.Late': [LATE, WRONG] if runs == 0 else []})")
        self.assertEqual((result.failed, cases, self.runs()), (1, [], 1))

    def test_beside_a_wrong_case_the_program_stays_failed(self):
        result, cases = self.run_stand_in(
            "end({'A.Late': [LATE] if runs == 0 else [], 'A.Wrong': [WRONG]})")
        self.assertEqual((result.passed, result.failed, len(cases)), (1, 1, 1))

    def test_a_crash_is_not_tried_again(self):
        for body in ("os.kill(os.getpid(), 11)", "os.abort()",
                     "end({'A.Late': [LATE]}, status=66)"):
            result, cases = self.run_stand_in(
                f"if runs: end({{'A.Late': []}})\nelse: {body}")
            self.assertEqual((result.failed, cases, self.runs()), (1, [], 1), body)

    def test_a_time_out_is_not_tried_again(self):
        program = Program("cpu a_test", ["sleep", "60"], 0.3, {}, True)
        with mock.patch.object(run_tests, "execute", lambda *_: (None, "")):
            result = run_tests.run_program(program)
        suites = {"unstable": {}, "never_again": []}
        self.assertEqual(run_tests.try_again([result], [program], suites), [])
        self.assertEqual(result.failed, 1)

    def test_a_race_is_not_tried_again(self):
        for name in ("tsan a_test", "asan-ubsan a_test"):
            result, cases = self.run_stand_in("end({'A.Late': [LATE] if runs == 0 else []})", name)
            self.assertEqual((result.failed, cases, self.runs()), (1, [], 1), name)

    def test_a_kill_test_is_not_tried_again(self):
        result, cases = self.run_stand_in("end({'A.Late': [LATE] if runs == 0 else []})",
                                          never_again=["a_test"])
        self.assertEqual((result.failed, cases, self.runs()), (1, [], 1))

    def test_a_known_cause_is_named(self):
        _, cases = self.run_stand_in("end({'A.Late': [LATE] if runs == 0 else []})",
                                     known={"a_test A.Late": "a slow disk"})
        self.assertEqual(cases[0].title(), "cpu a_test A.Late (known: a slow disk)")

    def test_more_than_two_listed_or_one_other_fail_the_run(self):
        def cases(listed: int, others: int):
            return ([unstable.UnstableCase("p", "c", "why", "")] * listed
                    + [unstable.UnstableCase("p", "c", "", "")] * others)

        self.assertEqual(unstable.excess(cases(2, 1)), "")
        self.assertIn("3 listed and 0 other", unstable.excess(cases(3, 0)))
        self.assertIn("0 listed and 2 other", unstable.excess(cases(0, 2)))

    def test_the_list_is_checked(self):
        self.assertEqual(unstable.wrong_list({"a_test A.B": "why"}, ["a_test"]), [])
        self.assertEqual(len(unstable.wrong_list({"a_test": "why"}, ["a_test"])), 1)
        self.assertEqual(len(unstable.wrong_list({"b_test A.B": "why"}, ["a_test"])), 1)
        self.assertEqual(len(unstable.wrong_list({"a_test A.B": " "}, ["a_test"])), 1)
        many = {f"a_test A.B{i}": "why" for i in range(11)}
        self.assertEqual(len(unstable.wrong_list(many, ["a_test"])), 1)

    def test_the_cases_are_written(self):
        root = self.plant({})
        unstable.write([unstable.UnstableCase("p", "c", "why", "said")], root / "unstable.json")
        self.assertEqual(json.loads((root / "unstable.json").read_text()),
                         [{"program": "p", "case": "c", "cause": "why", "output": "said"}])


# The same for a file of unittest: waiting.py's MissedWait, and python_suite.py's report.
SUITE = """
import os, pathlib, unittest
from waiting import await_true
count = pathlib.Path(os.environ["COUNT"])
runs = int(count.read_text()) if count.exists() else 0
count.write_text(str(runs + 1))
class A(unittest.TestCase):
    def test_late(self):
        await_true(lambda: runs > 0, "run before", wait_s=0.01)
    def test_late_in_a_part(self):
        with self.subTest("x"):
            await_true(lambda: runs > 0, "run before", wait_s=0.01)
    def test_wrong(self):
        self.assertTrue(runs > 0, "missed wait: it only says so")
    def test_wrong_then_late(self):
        try:
            self.assertTrue(runs > 0)
        finally:
            await_true(lambda: runs > 0, "clean-up", wait_s=0.01)
    def test_wrong_while_it_waits(self):
        await_true(lambda: self.assertTrue(runs > 0) is None)
"""


class PythonSuiteTest(PlantedTest):
    def test_late_cases_are_told_from_wrong_ones(self):
        root = self.plant({"a_test.py": SUITE})
        suite = pathlib.Path(run_tests.__file__).parent / "python_suite.py"
        program = Program("tests/a_test.py", [sys.executable, str(suite), str(root / "a_test.py")],
                          30, {"COUNT": str(root / "count")}, False)
        result = run_tests.run_program(program)
        self.assertEqual((result.passed, result.failed), (0, 5))
        with mock.patch("builtins.print"):
            cases = run_tests.try_again([result], [program],
                                        {"unstable": {}, "never_again": []})
        self.assertEqual([case.case for case in cases], ["A.test_late", "A.test_late_in_a_part"])
        self.assertEqual((result.passed, result.failed), (2, 3))
        self.assertEqual((root / "count").read_text(), "7")


if __name__ == "__main__":
    unittest.main()
