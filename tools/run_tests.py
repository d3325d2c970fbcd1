#!/usr/bin/env python3
"""Builds the presets, runs every test program, counts the test cases.

    tools/run_tests.py                   as `make test`: the preset cpu, and what tests/suites.toml
                                         lists for the sanitizers
    tools/run_tests.py --all             as `make test-all`: every program in each preset, all
                                         trials, and what depends on the processor by each of its
                                         instruction sets
    tools/run_tests.py --presets cpu     one preset (and the Python tests, which use its build)
    tools/run_tests.py --presets cuda    the build of `make gpu`, also where there is no GPU
    tools/run_tests.py --only l2 --no-build   programs whose name contains "l2", as they are built

Programs run side by side, one more than there are cores, the longest of the last run first, each
with a time-out and a temporary directory of its own. The programs of a preset run as soon as it is
built. The next preset is built meanwhile, with a lower priority: the programs keep the processors
that they need, and the compiler has those of programs that wait.

A skipped case counts as skipped; a crash, a time-out, a sanitizer's report or a program without a
single test counts as failed. A case of the preset cpu that was only late is tried again at the end
(tools/unstable.py). The last line is "N passed, N failed" and, when there are any, ", N skipped";
the exit status is 1 if any failed.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import test_programs
import unstable
from test_programs import PACKAGE_VENV, ROOT, SANITIZED, Program
from unstable import UnstableCase

PRESETS = ["cpu", *SANITIZED]
SECONDS_FILE = ROOT / "build" / "test_seconds.json"
UNSTABLE_FILE = ROOT / "build" / "unstable.json"
OUTPUT_LINES_MAX = 200  # of a failed program
REPEATED_LINES_MAX = 40  # the same at the end of the run, where one looks first
FAILURE_LINE = re.compile(r"Sanitizer: |: runtime error: |: Failure$|^(ERROR|FAIL|FAILED): ")

@dataclasses.dataclass
class Result:
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""  # why it counts as failed beyond its cases
    output: str = ""
    failures: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # of each failed case
    ended_by_itself: bool = False  # it ran to its end and says itself that it failed

    def summary(self) -> str:
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        return ", ".join(parts) + (f" ({self.reason})" if self.reason else "")

    def fail(self, reason: str) -> None:
        self.failed += 1
        self.reason = reason


def count_gtest_report(report: dict) -> tuple[int, int, int]:
    """Counts (passed, failed, skipped) of gtest's JSON report; a disabled test is skipped."""
    passed = failed = skipped = 0
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            if case.get("failures"):
                failed += 1
            elif case.get("result") == "COMPLETED" and case.get("status") == "RUN":
                passed += 1
            else:
                skipped += 1
    return passed, failed, skipped


def count_gtest_output(output: str) -> tuple[int, int, int]:
    """Counts what a program without a report (it crashed) had finished."""
    passed = len(re.findall(r"^\[       OK \] \S+ \(", output, re.MULTILINE))
    failed = len(re.findall(r"^\[  FAILED  \] \S+ \(", output, re.MULTILINE))
    skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", output, re.MULTILINE))
    return passed, failed, skipped


def gtest_failures(report: dict) -> dict[str, list[str]]:
    return {f"{suite['name']}.{case['name']}": [one["failure"] for one in case["failures"]]
            for suite in report.get("testsuites", []) for case in suite.get("testsuite", [])
            if case.get("failures")}


def read_report(program: Program, file: pathlib.Path, result: Result) -> None:
    """Counts the cases; without a report those of GoogleTest's output."""
    counts = (0, 0, 0)
    try:
        report = json.loads(file.read_text())
    except (OSError, ValueError):
        if program.is_gtest:
            counts = count_gtest_output(result.output)
    else:
        if program.is_gtest:
            counts, result.failures = count_gtest_report(report), gtest_failures(report)
        else:
            counts = report["passed"], report["failed"], report["skipped"]
            result.failures = report["failures"]
    result.passed, result.failed, result.skipped = counts


def execute(program: Program, scratch: pathlib.Path,
            report: pathlib.Path) -> tuple[int | None, str]:
    """Runs it in its own process group; exit status None = time-out (the group is killed)."""
    environment = os.environ | program.environment
    environment |= {"TMPDIR": str(scratch), "TEST_TMPDIR": str(scratch)}
    flag = [f"--gtest_output=json:{report}"] if program.is_gtest else [str(report)]
    with subprocess.Popen(program.command + flag, cwd=ROOT, env=environment, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=program.timeout_s)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output


def run_program(program: Program) -> Result:
    result = Result(program.name)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="hps_test_"))
    report = scratch / "report.json"
    start = time.monotonic()
    try:
        status, result.output = execute(program, scratch, report)
        read_report(program, report, result)
    except OSError as error:
        status = 127
        result.output = str(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result.seconds = time.monotonic() - start
    result.ended_by_itself = status == 1
    if status is None:
        result.fail(f"timed out after {program.timeout_s:.0f} s")
    elif status < 0:
        result.fail(f"ended by signal {-status}")
    elif status != 0 and result.failed == 0:
        result.fail(f"exit status {status}")
    elif result.passed + result.failed + result.skipped == 0:
        result.fail("no test in it")
    return result


def show(result: Result, done: int, total: int) -> None:
    mark = "FAILED" if result.failed else "ok"
    print(f"[{done:3}/{total}] {mark:6} {result.name:32} {result.seconds:7.1f} s  "
          f"{result.summary()}", flush=True)
    if result.failed:
        show_output(result, OUTPUT_LINES_MAX)


def telling_lines(lines: list[str], lines_max: int) -> list[str]:
    """From the first line that reports a failure on; without one, the last lines."""
    first = next((i for i, line in enumerate(lines) if FAILURE_LINE.search(line)), len(lines))
    begin = min(first, max(len(lines) - lines_max, 0))
    return lines[begin:begin + lines_max]


def show_output(result: Result, lines_max: int) -> None:
    lines = result.output.splitlines()
    shown = telling_lines(lines, lines_max)
    if len(lines) > len(shown):
        print(f"    ... {len(shown)} of {len(lines)} lines")
    for line in shown:
        print("    " + line)
    sys.stdout.flush()


def lanes() -> int:
    """One more than cores: a good part of the programs waits for others more than it works."""
    return (os.cpu_count() or 1) + 1


def expected_s(program: Program, first: list[str], seconds: dict) -> float:
    """As long as the last time, by `seconds`. A program that has never run is taken for a long one,
    those that `first` names for the longest."""
    named = unstable.short_name(program.name)
    rank = len(first) - first.index(named) if named in first else 0
    return seconds.get(program.name, 1e6 + rank)


class Runner:
    """Runs programs on lanes() threads, the longest of those that wait first. More programs can be
    added while others run."""

    def __init__(self, first: list[str]):
        self._first = first
        self._seconds = json.loads(SECONDS_FILE.read_text()) if SECONDS_FILE.exists() else {}
        self._waiting = queue.PriorityQueue()  # of (-expected seconds, number, program)
        self._added = 0
        self._lock = threading.Lock()  # of what follows, and of the output
        self._results = []

    def __enter__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=lanes())
        self._threads = [self._pool.submit(self._run) for _ in range(lanes())]
        return self

    def __exit__(self, *_):
        self._end(-math.inf)  # does nothing after finish()

    def add(self, programs: list[Program]) -> None:
        for program in programs:
            self._added += 1
            expected = expected_s(program, self._first, self._seconds)
            self._waiting.put((-expected, self._added, program))

    def finish(self) -> list[Result]:
        """Waits for the programs, and returns their results."""
        self._end(math.inf)
        self._seconds |= {result.name: round(result.seconds, 2) for result in self._results}
        SECONDS_FILE.parent.mkdir(exist_ok=True)
        SECONDS_FILE.write_text(json.dumps(self._seconds, indent=1, sort_keys=True))
        return self._results

    def _end(self, rank: float) -> None:
        """Ends each thread when it gets to `rank`; raises what one of them raised."""
        for i, _ in enumerate(self._threads):
            self._waiting.put((rank, -i, None))
        for thread in self._threads:
            thread.result()
        self._pool.shutdown()

    def _run(self) -> None:
        while (program := self._waiting.get()[2]) is not None:
            result = run_program(program)
            with self._lock:
                self._results.append(result)
                show(result, len(self._results), self._added)


def run_quietly(command: list[str], beside_tests: bool, result: Result) -> bool:
    """Beside tests with a low priority. The compiler's output is shown if it failed."""
    is_quiet = beside_tests or command[0] == "cmake"
    polite = ["nice", "-n", "15"] if beside_tests else []
    done = subprocess.run([*polite, *command], cwd=ROOT, check=False, text=True, errors="replace",
                          stdout=subprocess.PIPE if is_quiet else None)
    if done.returncode != 0:
        result.fail(f"`{' '.join(command)}` failed")
        result.output = done.stdout or ""
        show_output(result, OUTPUT_LINES_MAX)
    return done.returncode == 0


def build(preset: str, suites: dict, arguments: argparse.Namespace, beside_tests: bool) -> Result:
    result = Result(f"{preset} build")
    start = time.monotonic()
    if run_quietly(["cmake", "--preset", preset], beside_tests, result):
        targets = targets_of(preset, suites, arguments)
        print(f"== building {preset}: {', '.join(targets) or 'nothing'}", flush=True)
        if targets:
            run_quietly(["ninja", "-C", f"build/{preset}", *targets], beside_tests, result)
    result.seconds = time.monotonic() - start
    print(f"== {preset}: {result.reason or 'built'} ({result.seconds:.0f} s)", flush=True)
    return result


def install_package() -> Result:
    """Installs the Python package as it is, over the build of `cpu`, for its tests."""
    result = Result("Python package")
    done = subprocess.run([str(PACKAGE_VENV / "bin" / "pip"), "install", "--quiet", "--no-deps",
                           "--disable-pip-version-check", "--no-build-isolation", str(ROOT)],
                          cwd=ROOT, check=False)
    if done.returncode != 0:
        result.fail("`pip install .` failed")
    return result


def check_suites(suites: dict) -> list[Result]:
    problems = test_programs.problems(suites)
    results = []
    for problem in problems:
        results.append(Result("tests/suites.toml"))
        results[-1].fail(problem)
        show(results[-1], len(results), len(problems))
    return results


def try_again(results: list[Result], programs: list[Program], suites: dict) -> list[UnstableCase]:
    """Runs cases that were late again; those that pass now count as passed. Returns them."""
    by_name = {program.name: program for program in programs}
    cases = []
    for result in results:
        if not result.ended_by_itself or result.name not in by_name:
            continue
        program = by_name[result.name]
        seed = unstable.seed_of(result.output)
        for case in unstable.late_cases(result.name, result.reason, result.failures,
                                        suites["never_again"]):
            print(f"== {result.name} {case} was late: running it alone, up to "
                  f"{unstable.TRIES} times", flush=True)
            alone = program.alone(case, seed)
            if not all(passes(alone) for _ in range(unstable.TRIES)):
                continue
            result.passed, result.failed = result.passed + 1, result.failed - 1
            cause = suites["unstable"].get(f"{unstable.short_name(result.name)} {case}", "")
            cases.append(UnstableCase(result.name, case, cause, result.output))
    return cases


def passes(program: Program) -> bool:
    result = run_program(program)
    print(f"   {result.seconds:.1f} s, {result.summary()}", flush=True)
    return result.passed == 1 and not result.failed


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join(PRESETS), help="comma-separated")
    parser.add_argument("--all", action="store_true",
                        help="every program in every preset, all trials")
    parser.add_argument("--only", default="", help="run programs whose name contains this")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--timeout", type=float, metavar="SECONDS",
                        help="of each program, in the place of those of tests/suites.toml")
    return parser.parse_args()


def targets_of(preset: str, suites: dict, arguments: argparse.Namespace) -> list[str]:
    """What to build. Python tests need programs that they do not name."""
    names = test_programs.gtest_names(preset, suites, arguments.all)
    if preset not in SANITIZED and not arguments.only:
        return ["all"]
    python = test_programs.python_programs(preset, suites, arguments.all)
    if preset not in SANITIZED and any(arguments.only in program.name for program in python):
        return ["all"]
    return [name for name in names if arguments.only in f"{preset} {name}"]


def build_and_run(presets: list[str], suites: dict,
                  arguments: argparse.Namespace) -> tuple[list[Result], list[Program]]:
    """Builds one preset after the other; the programs of each run from then on."""
    results, programs = [], []

    def add(runner: Runner, found: list[Program]) -> None:
        found = [program for program in found if arguments.only in program.name]
        for program in found:
            program.timeout_s = arguments.timeout or program.timeout_s
        programs.extend(found)
        runner.add(found)

    with Runner(suites["first"]) as runner:
        for preset in presets:
            if not arguments.no_build:
                results.append(build(preset, suites, arguments, preset != presets[0]))
            add(runner, test_programs.gtest_programs(preset, suites, arguments.all))
            python = []
            if preset not in SANITIZED:
                python = test_programs.python_programs(preset, suites, arguments.all)
            if preset == "cpu":
                results += check_suites(suites)
                if not arguments.no_build and not results[0].failed and any(
                        arguments.only in program.name for program in python):
                    results.append(install_package())
            add(runner, python)
        return results + runner.finish(), programs


def show_unstable(cases: list[UnstableCase]) -> None:
    for case in cases:
        print(f"UNSTABLE {case.title()}: late, then passed {unstable.TRIES} times alone")
        show_output(Result(case.program, output=case.output), REPEATED_LINES_MAX)


def main() -> int:
    arguments = parse_arguments()
    suites = tomllib.loads((ROOT / "tests" / "suites.toml").read_text())
    os.environ.setdefault("NINJA_STATUS", "[%f/%t %es] ")
    if arguments.all:
        os.environ.setdefault("HPS_TEST_TRIALS_PERCENT", "100")
    print(f"== {test_programs.processor()}\n== running test programs, {lanes()} at a time",
          flush=True)
    results, programs = build_and_run(arguments.presets.split(","), suites, arguments)
    cases = try_again(results, programs, suites)
    unstable.write(cases, UNSTABLE_FILE)
    if why := unstable.excess(cases):
        results.append(Result("unstable cases"))
        results[-1].fail(why)
    show_unstable(cases)
    for result in results:
        if result.failed:
            print(f"FAILED {result.name}: {result.summary()}")
            show_output(result, REPEATED_LINES_MAX)
    totals = [sum(getattr(result, kind) for result in results)
              for kind in ("passed", "failed", "skipped")]
    print(f"{totals[0]} passed, {totals[1]} failed"
          + (f", {totals[2]} skipped" if totals[2] else ""), flush=True)
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
