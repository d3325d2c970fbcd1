"""Makes small trees with planted violations, for the tests of the checks."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))


class PlantedTest(unittest.TestCase):
    """`self.plant(files)` writes files (path -> text) and returns the root of their tree."""

    def plant(self, files: dict[str, str]) -> pathlib.Path:
        folder = tempfile.TemporaryDirectory(prefix="hps_planted_")
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root
