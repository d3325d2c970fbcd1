"""Runs one file of unittest tests and writes the counts of its cases as JSON.

Used by run_tests.py, one process per file: python_suite.py FILE REPORT
"""

import importlib.util
import json
import pathlib
import sys
import unittest


def load(path: pathlib.Path) -> unittest.TestSuite:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def main() -> int:
    path, report = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(load(path))
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = max(result.testsRun - failed - skipped, 0)
    report.write_text(json.dumps({"passed": passed, "failed": failed, "skipped": skipped}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
