"""The test runner must not take a crash, a time-out or an empty program for a success."""

import collections
import json
import pathlib
import sys
import unittest
from unittest import mock

from planted import PlantedTest

import run_tests
import test_programs

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
        report = {"testsuites": [{"name": "A", "testsuite": list(cases)}]}
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
                    for name in ("cpu a_test", "tsan b_test", "tests/c_test.py")]

        def expected(first, seconds):
            return [run_tests.expected_s(program, first, seconds) for program in programs]

        self.assertEqual(expected(["c_test.py", "b_test"], {}), [1e6, 1e6 + 1, 1e6 + 2])
        known = {"tsan b_test": 5, "tests/c_test.py": 7}
        self.assertEqual(expected(["b_test"], known), [1e6, 5, 7])

    def run_stand_ins(self, *groups: dict[str, float]) -> list[run_tests.Result]:
        """Runs programs on one lane, {name: seconds of the last run}, one group added after the
        other. Each program ends after all groups have been added."""
        wait = "while not os.path.exists(os.environ['GO']): time.sleep(0.01)\n"
        root = self.plant({"program.py": STAND_IN.format(wait + self.write_report(case()))})
        seconds_file = root / "seconds.json"
        seconds_file.write_text(json.dumps(dict(collections.ChainMap(*groups))))
        command, environment = [sys.executable, str(root / "program.py")], {"GO": str(root / "go")}
        with (mock.patch.object(run_tests, "SECONDS_FILE", seconds_file),
              mock.patch.object(run_tests, "lanes", lambda: 1), run_tests.Runner([]) as runner):
            for group in groups:
                runner.add([run_tests.Program(name, command, 30, environment, True)
                            for name in group])
            (root / "go").touch()
            results = runner.finish()
        self.assertEqual(set(json.loads(seconds_file.read_text())), {r.name for r in results})
        return results

    def test_programs_are_added_while_others_run(self):
        results = self.run_stand_ins({"a": 1}, {"b": 1, "c": 3}, {"d": 2})
        self.assertEqual([self.counts(result) for result in results], [(1, 0, 0)] * 4)
        names = [result.name for result in results]
        self.assertEqual([name for name in names if name != "a"], ["c", "d", "b"])

    def test_after_an_error_no_more_programs_start(self):
        root = self.plant({"program.py": "import os\nopen(os.environ['RAN'], 'a').write('x')\n"})
        ran, command = root / "ran", [sys.executable, str(root / "program.py")]
        program = run_tests.Program("a", command, 30, {"RAN": str(ran)}, True)
        with (mock.patch.object(run_tests, "SECONDS_FILE", root / "seconds.json"),
              self.assertRaises(KeyboardInterrupt), run_tests.Runner([]) as runner):
            runner.add([program] * 10_000)  # minutes
            raise KeyboardInterrupt
        self.assertLess(len(ran.read_text()) if ran.exists() else 0, 10_000)

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

    SUITES = {"sanitized": {"asan-ubsan": ["a_test"], "tsan": ["a_test"]},
              "not_sanitized": {"b_test": "why"}, "not_tsan": {"programs": ["c_test"]},
              "without_tsan": {}}

    def test_names_without_a_program_are_found(self):
        self.assertEqual(test_programs.undecided(self.SUITES, ["a_test", "b_test", "c_test"]), [])
        self.assertEqual(test_programs.undecided(self.SUITES, ["a_test", "b_test"]),
                         ["not_tsan names c_test, which is not a test program"])

    def test_a_program_that_is_listed_and_left_out_is_found(self):
        suites = self.SUITES | {"not_tsan": {"programs": ["a_test"]}}
        self.assertEqual(test_programs.undecided(suites, ["a_test", "b_test"]),
                         ["a_test runs under tsan and is left out of it"])

    def test_a_sanitizer_runs_its_list_or_all_that_can_run_under_it(self):
        tests = ["a_test", "b_test", "c_test", "d_test"]
        with mock.patch.object(test_programs, "built_tests", lambda preset: tests):
            def names(preset, everything):
                return test_programs.gtest_names(preset, self.SUITES, everything)

            self.assertEqual(names("cpu", False), tests)
            self.assertEqual(names("tsan", False), ["a_test"])
            self.assertEqual(names("asan-ubsan", True), ["a_test", "c_test", "d_test"])
            self.assertEqual(names("tsan", True), ["a_test", "d_test"])


if __name__ == "__main__":
    unittest.main()
