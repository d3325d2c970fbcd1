"""The test runner must not take a crash, a time-out or an empty program for a success."""

import json
import pathlib
import sys
import unittest

from planted import PlantedTest

import run_tests

# A stand-in for a gtest program: writes `report` where --gtest_output says, then ends.
STAND_IN = """
import json, os, sys, time
report = sys.argv[1].removeprefix("--gtest_output=json:")
{}
"""


def case(**fields):
    return {"name": "A", "status": "RUN", "result": "COMPLETED"} | fields


class RunTestsTest(PlantedTest):
    def run_stand_in(self, body: str, timeout_s: float = 30) -> run_tests.Result:
        root = self.plant({"program.py": STAND_IN.format(body)})
        command = [sys.executable, str(root / "program.py")]
        return run_tests.run_program(run_tests.Program("stand-in", command, timeout_s, {}, True))

    def write_report(self, *cases) -> str:
        report = {"testsuites": [{"testsuite": list(cases)}]}
        return f"open(report, 'w').write({json.dumps(json.dumps(report))})\n"

    def counts(self, result):
        return result.passed, result.failed, result.skipped

    def test_counts_cases(self):
        report = self.write_report(case(), case(), case(result="SKIPPED"), case(status="NOTRUN"))
        self.assertEqual(self.counts(self.run_stand_in(report)), (2, 0, 2))

    def test_a_failed_case_fails(self):
        report = self.write_report(case(), case(failures=[{"failure": "x"}]))
        self.assertEqual(self.counts(self.run_stand_in(report + "sys.exit(1)")), (1, 1, 0))

    def test_a_crash_fails_and_keeps_what_had_passed(self):
        result = self.run_stand_in(
            "print('[       OK ] A.B (0 ms)', flush=True)\nos.kill(os.getpid(), 11)")
        self.assertEqual(self.counts(result), (1, 1, 0))
        self.assertEqual(result.reason, "ended by signal 11")

    def test_a_report_at_exit_fails_though_every_case_passed(self):
        result = self.run_stand_in(self.write_report(case()) + "sys.exit(66)")
        self.assertEqual(self.counts(result), (1, 1, 0))

    def test_a_time_out_fails(self):
        result = self.run_stand_in("time.sleep(60)", timeout_s=0.5)
        self.assertEqual(self.counts(result), (0, 1, 0))
        self.assertIn("timed out", result.reason)

    def test_a_program_without_tests_fails(self):
        self.assertEqual(self.counts(self.run_stand_in(self.write_report())), (0, 1, 0))
        self.assertEqual(self.counts(self.run_stand_in("pass")), (0, 1, 0))

    def test_a_missing_program_fails(self):
        program = run_tests.Program("missing", ["/no/such/program"], 5, {}, True)
        self.assertEqual(run_tests.run_program(program).failed, 1)

    def test_slow_programs_start_first(self):
        programs = [run_tests.Program(name, [], 1, {}, False)
                    for name in ("cpu a_test", "tsan b_test", "tests/c_test.py", "cpu d_test")]
        in_order = run_tests.in_order(programs, ["c_test.py", "b_test"], {})
        self.assertEqual([program.name for program in in_order],
                         ["tests/c_test.py", "tsan b_test", "cpu a_test", "cpu d_test"])
        known = {program.name: i for i, program in enumerate(programs)}
        self.assertEqual(run_tests.in_order(programs, ["b_test"], known), programs[::-1])

    def test_of_a_long_output_the_first_failure_is_shown(self):
        lines = [f"line {i}" for i in range(100)]
        self.assertEqual(run_tests.telling_lines(lines, 3), lines[-3:])
        lines[50] = "WARNING: ThreadSanitizer: data race (pid=1)"
        self.assertEqual(run_tests.telling_lines(lines, 3), lines[50:53])
        self.assertEqual(run_tests.telling_lines(lines, 200), lines)

    def test_counts_python_tests(self):
        root = self.plant({"a_test.py": "import unittest\n"
                           "class A(unittest.TestCase):\n"
                           "  def test_a(self): pass\n"
                           "  def test_b(self): self.fail()\n"
                           "  @unittest.skip('why')\n"
                           "  def test_c(self): pass\n"})
        suite = pathlib.Path(run_tests.__file__).parent / "python_suite.py"
        program = run_tests.Program(
            "python", [sys.executable, str(suite), str(root / "a_test.py")], 30, {}, False)
        self.assertEqual(self.counts(run_tests.run_program(program)), (1, 1, 1))

    def test_a_program_nobody_decided_about_is_found(self):
        suites = {"asan-ubsan": ["a_test"], "tsan": [], "not_sanitized": {"b_test": "why"}}
        self.assertEqual(run_tests.undecided(suites, ["a_test", "b_test"]), [])
        self.assertEqual(run_tests.undecided(suites, ["a_test", "b_test", "c_test"]),
                         ["c_test is under no sanitizer and not in not_sanitized"])
        self.assertEqual(len(run_tests.undecided(suites, [])), 2)


if __name__ == "__main__":
    unittest.main()
