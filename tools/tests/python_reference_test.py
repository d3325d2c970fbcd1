"""The reference of the Python package: what it has of a small package."""

import unittest
from unittest import mock

from planted import PlantedTest

import python_reference

PACKAGE = {
    "hps/__init__.py": '''"""The package."""
from hps._errors import LostError
from hps._store import Store
__all__ = ["LostError", "Store"]
''',
    "hps/_errors.py": '''
class Error(Exception):
    """An error."""
class LostError(Error, LookupError):
    """It is lost."""
''',
    "hps/_store.py": '''
class _Base:
    def close(self, *, timeout: float | None = None) -> None:
        """Closes it."""
    def hidden(self) -> None: ...
class Store(_Base):
    """A store.

    path: of it.
    """
    def __init__(self, path: str): ...
    def _internal(self) -> None:
        """Not for users."""
    @property
    def size(self) -> int:
        """Its size."""
    @staticmethod
    def make(path, count=3):
        """Makes one."""
''',
}


class PythonReferenceTest(PlantedTest):
    def page(self, files: dict[str, str]) -> str:
        root = self.plant(files)
        with mock.patch.multiple(python_reference, PACKAGE=root / "hps", MODULES=["hps"]):
            return python_reference.page()

    def test_a_class(self):
        page = self.page(PACKAGE)
        for part in ("### `hps.Store(path)`", "A store.\n\npath: of it.", "#### `Store.size`",
                     "#### `Store.make(path, count=3)`", "#### `Store.close(*, timeout=None)`",
                     "Closes it.", "| `LostError` | `LookupError` | It is lost. |"):
            self.assertIn(part, page)
        self.assertNotIn("hidden", page)
        self.assertNotIn("_internal", page)

    def test_a_changed_docstring_changes_it(self):
        changed = PACKAGE | {"hps/_store.py": PACKAGE["hps/_store.py"].replace("Its size", "Bytes")}
        self.assertNotEqual(self.page(changed), self.page(PACKAGE))

    def test_a_name_that_is_nowhere(self):
        files = PACKAGE | {"hps/__init__.py": '__all__ = ["Nothing"]\n'}
        with self.assertRaisesRegex(SystemExit, "hps.Nothing"):
            self.page(files)

    def test_the_page_of_the_package_is_current(self):
        self.assertEqual(python_reference.page(), python_reference.PAGE.read_text())


if __name__ == "__main__":
    unittest.main()
