#!/usr/bin/env python3
"""Builds the presets, runs every test program, counts the test cases.

    tools/run_tests.py                     everything, as `make test`
    tools/run_tests.py --presets cpu       one preset (and the Python tests, which use its build)
    tools/run_tests.py --presets cuda      the build of `make gpu`, also where there is no GPU
    tools/run_tests.py --only l2 --no-build   programs whose name contains "l2", as they are built

Programs run side by side, one more than there are cores, the longest of the last run first, each
with a time-out and a temporary directory of its own. The programs of a preset run as soon as it is
built. The next preset is built meanwhile, with a lower priority: the programs keep the processors
that they need, and the compiler has those of programs that wait.

A skipped case counts as skipped; a crash, a time-out, a sanitizer's report or a program without a
single test counts as failed. The last line is "N passed, N failed" and, when there are any,
", N skipped"; the exit status is 1 if any failed.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZED = ["asan-ubsan", "tsan"]
PRESETS = ["cpu", *SANITIZED]
PACKAGE_VENV = ROOT / ".venv-python"  # of the tests of the Python package
SECONDS_FILE = ROOT / "build" / "test_seconds.json"
OUTPUT_LINES_MAX = 200  # of a failed program
REPEATED_LINES_MAX = 40  # the same at the end of the run, where one looks first
FAILURE_LINE = re.compile(r"Sanitizer: |: runtime error: |: Failure$|^(ERROR|FAIL|FAILED): ")

# Memory that can't be had is a null pointer, as it is without a sanitizer: tests provoke it.
ENVIRONMENT = {
    "asan-ubsan": {
        "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1:"
                        "strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    "tsan": {
        "TSAN_OPTIONS": "allocator_may_return_null=1:second_deadlock_stack=1:history_size=7:"
                        "suppressions=" + str(ROOT / "tools" / "tsan_suppressions.txt"),
    },
}


@dataclasses.dataclass
class Program:
    name: str  # as shown: "cpu base_test"
    command: list[str]
    timeout_s: float
    environment: dict[str, str]
    is_gtest: bool


@dataclasses.dataclass
class Result:
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""  # why it counts as failed beyond its cases
    output: str = ""

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


def read_counts(program: Program, report: pathlib.Path, output: str) -> tuple[int, int, int]:
    try:
        counts = json.loads(report.read_text())
    except (OSError, ValueError):
        return count_gtest_output(output) if program.is_gtest else (0, 0, 0)
    if program.is_gtest:
        return count_gtest_report(counts)
    return counts["passed"], counts["failed"], counts["skipped"]


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
        result.passed, result.failed, result.skipped = read_counts(program, report, result.output)
    except OSError as error:
        status = 127
        result.output = str(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result.seconds = time.monotonic() - start
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
    named = re.split("[ /]", program.name)[-1]
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


def build(preset: str, targets: list[str], beside_tests: bool) -> Result:
    """Builds beside tests with a low priority, and shows the compiler's output if it failed."""
    result = Result(f"{preset} build")
    start = time.monotonic()
    print(f"== building {preset}: {', '.join(targets) or 'everything'}", flush=True)
    polite = ["nice", "-n", "15"] if beside_tests else []
    for command in (["cmake", "--preset", preset], ["ninja", "-C", f"build/{preset}", *targets]):
        is_quiet = beside_tests or command[0] == "cmake"
        done = subprocess.run([*polite, *command], cwd=ROOT, check=False, text=True,
                              errors="replace", stdout=subprocess.PIPE if is_quiet else None)
        if done.returncode != 0:
            result.fail(f"`{' '.join(command)}` failed")
            result.output = done.stdout or ""
            show_output(result, OUTPUT_LINES_MAX)
            break
    result.seconds = time.monotonic() - start
    print(f"== {preset}: {result.reason or 'built'} ({result.seconds:.0f} s)", flush=True)
    return result


def built_tests(preset: str) -> list[str]:
    """Names of the test programs that the build of `preset` defines."""
    listed = subprocess.run(["ninja", "-C", f"build/{preset}", "-t", "targets", "all"], cwd=ROOT,
                            check=False, capture_output=True, text=True).stdout
    return sorted(re.findall(r"^tests/(\w+_test): ", listed, re.MULTILINE))


def without_address_randomization() -> list[str]:
    """g++ 12's ThreadSanitizer refuses kernels that randomize more address bits than it knows."""
    command = ["setarch", "-R"]
    try:
        works = subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        works = False
    return command if works else []


def gtest_programs(preset: str, suites: dict) -> list[Program]:
    names = built_tests(preset)
    if preset in SANITIZED:
        names = [name for name in names if name in suites[preset]]
    prefix = without_address_randomization() if preset == "tsan" else []
    left_out = suites["without_tsan"] if preset == "tsan" else {}
    timeouts = suites["timeout_s_of"]

    def command(name: str) -> list[str]:
        filters = [f"--gtest_filter=-{left_out[name]}"] if name in left_out else []
        return [*prefix, str(ROOT / "build" / preset / "tests" / name), *filters]

    return [Program(f"{preset} {name}", command(name), timeouts.get(name, suites["timeout_s"]),
                    ENVIRONMENT.get(preset, {}), True) for name in names]


def python_programs(preset: str, suites: dict) -> list[Program]:
    """Those of the command; with `cpu` also those that look at no build, or at that one alone."""
    files = sorted((ROOT / "tests").rglob("*_test.py"))
    if preset == "cpu":
        files += sorted((ROOT / "tools" / "tests").glob("*_test.py"))
    else:
        files = [file for file in files if file.parent.name == "cli"]
    prefix = "" if preset == "cpu" else f"{preset} "
    environment = {"HPS_COMMAND": str(ROOT / "build" / preset / "bin" / "hps")}
    def command(file: pathlib.Path) -> list[str]:
        venv = PACKAGE_VENV if file.parent.name == "python" else ROOT / ".venv"
        python = venv / "bin" / "python"
        return [str(python) if python.exists() else sys.executable,
                str(ROOT / "tools" / "python_suite.py"), str(file)]

    return [Program(prefix + str(file.relative_to(ROOT)), command(file),
                    suites["timeout_s_of"].get(file.name, suites["timeout_s"]), environment, False)
            for file in files]


def undecided(suites: dict, tests: list[str]) -> list[str]:
    """What suites.toml gets wrong about the programs that there are."""
    named = {name: kind for kind in (*SANITIZED, "not_sanitized") for name in suites[kind]}
    problems = [f"{kind} names {name}, which is not a test program"
                for name, kind in named.items() if name not in tests]
    return problems + [f"{name} is under no sanitizer and not in not_sanitized"
                       for name in tests if name not in named]


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
    problems = undecided(suites, built_tests("cpu"))
    results = []
    for problem in problems:
        results.append(Result("tests/suites.toml"))
        results[-1].fail(problem)
        show(results[-1], len(results), len(problems))
    return results


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join(PRESETS), help="comma-separated")
    parser.add_argument("--only", default="", help="run programs whose name contains this")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--timeout", type=float, metavar="SECONDS",
                        help="of each program, in the place of those of tests/suites.toml")
    return parser.parse_args()


def build_and_run(presets: list[str], suites: dict, arguments: argparse.Namespace) -> list[Result]:
    """Builds one preset after the other; the programs of each run from then on."""
    results = []

    def chosen(programs: list[Program]) -> list[Program]:
        programs = [program for program in programs if arguments.only in program.name]
        for program in programs:
            program.timeout_s = arguments.timeout or program.timeout_s
        return programs

    with Runner(suites["first"]) as runner:
        for preset in presets:
            if not arguments.no_build:
                targets = suites[preset] if preset in SANITIZED else []
                results.append(build(preset, targets, beside_tests=preset != presets[0]))
            runner.add(chosen(gtest_programs(preset, suites)))
            if preset == "cpu":
                results += check_suites(suites)
                if not arguments.no_build and not results[0].failed:
                    results.append(install_package())
            if preset not in SANITIZED:
                runner.add(chosen(python_programs(preset, suites)))
        return results + runner.finish()


def main() -> int:
    arguments = parse_arguments()
    suites = tomllib.loads((ROOT / "tests" / "suites.toml").read_text())
    os.environ.setdefault("NINJA_STATUS", "[%f/%t %es] ")
    print(f"== running test programs, {lanes()} at a time", flush=True)
    results = build_and_run(arguments.presets.split(","), suites, arguments)
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
