"""Runs one file of unittest tests, or one case of it, and writes what became of them as JSON.

Used by run_tests.py, one process per file: python_suite.py FILE [--case CLASS.METHOD] REPORT
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load(path: pathlib.Path, case: str) -> unittest.TestSuite:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path[:0] = [str(path.parent), str(ROOT / "tests" / "common")]
    spec.loader.exec_module(module)
    if case:
        return unittest.defaultTestLoader.loadTestsFromName(case, module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def name_of(test: unittest.TestCase) -> str:
    """CLASS.METHOD, also of one of its sub-tests; of a failed set-up what unittest says."""
    test = getattr(test, "test_case", test)
    if not isinstance(test, unittest.TestCase) or not hasattr(test, "_testMethodName"):
        return str(test)
    return f"{type(test).__name__}.{test._testMethodName}"


class Result(unittest.TextTestResult):
    """Keeps the exception of each failure."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.messages: dict[str, list[str]] = {}

    def _keep(self, test, error) -> None:
        """The exception, and the failed assertions that it was raised in the handling of: a late
        clean-up must not hide what was wrong."""
        raised, hidden = error[1], error[1].__context__
        messages = self.messages.setdefault(name_of(test), [])
        messages.append(f"{type(raised).__name__}: {raised}")
        while hidden is not None:
            if isinstance(hidden, AssertionError):
                messages.append(f"{type(hidden).__name__}: {hidden}")
            hidden = hidden.__context__

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(test, err)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.messages.setdefault(name_of(test), []).append("unexpected success")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--case", default="", help="CLASS.METHOD")
    arguments = parser.parse_args()
    suite = load(arguments.file.resolve(), arguments.case)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
    result = runner.run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = max(result.testsRun - failed - skipped, 0)
    arguments.report.write_text(json.dumps({"passed": passed, "failed": failed, "skipped": skipped,
                                            "failures": result.messages}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
