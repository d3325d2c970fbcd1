"""The notebooks of examples/python: their code cells, in order, as Jupyter would run them."""

import contextlib
import io
import json
import pathlib
import unittest

import support

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "python"


class NotebookTest(support.StoreTestCase):
    def test_the_tutorial(self) -> None:
        notebook = json.loads((EXAMPLES / "tutorial.ipynb").read_text())
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 6)
        names: dict = {"__name__": "__main__"}
        with contextlib.redirect_stdout(io.StringIO()):
            for number, cell in enumerate(cells):
                code = "".join(cell["source"])
                code = code.replace("/tmp/hps-tutorial", str(self.directory / "tutorial"))
                exec(compile(code, f"tutorial.ipynb, code cell {number}", "exec"), names)
        self.assertEqual(names["path"], self.directory / "tutorial" / "store")
        self.assertEqual(names["predictions"].shape, (4, 1))

    def test_outputs_are_not_stored(self) -> None:
        for file in EXAMPLES.glob("*.ipynb"):
            notebook = json.loads(file.read_text())
            self.assertEqual(notebook["nbformat"], 4)
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))


if __name__ == "__main__":
    unittest.main()
