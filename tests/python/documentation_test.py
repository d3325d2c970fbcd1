"""The code of docs/python.md and of the README's Python part, and examples/python, run as they are,
but for their directory."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import unittest

import support

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def python_blocks(text: str) -> list[str]:
    return [block.split("```")[0] for block in text.split("```python\n")[1:]]


class DocumentationTest(support.StoreTestCase):
    def test_the_tutorial(self) -> None:
        blocks = python_blocks((ROOT / "docs" / "python.md").read_text())
        self.assertGreater(len(blocks), 6)
        code = "\n".join(blocks).replace("/tmp/hps-python", str(self.directory))
        self.assertIn(str(self.directory), code)
        names: dict = {}
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(code, "docs/python.md", "exec"), names)
        names["store"].close()
        self.assertIn("NOT_FOUND there is no store", output.getvalue())

    def test_the_readme(self) -> None:
        text = (ROOT / "README.md").read_text()
        block, = [block for block in python_blocks(text) if "import hps" in block]
        self.assertLessEqual(len(block.strip().splitlines()), 5)
        hps.generate(self.directory / "model", tables=2, rows=1000)
        hps.import_table(self.directory / "store", "dlrm", from_path=self.directory / "model")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block.replace("/tmp/", f"{self.directory}/"), "README.md", "exec"), {})
        self.assertIn("[[", output.getvalue())

    def test_examples(self) -> None:
        for example in sorted((ROOT / "examples" / "python").glob("*.py")):
            directory = self.directory / example.stem
            directory.mkdir()
            done = subprocess.run([sys.executable, str(example), str(directory)],
                                  capture_output=True, text=True, check=False)
            with self.subTest(example=example.name):
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_missing_extra_is_named(self) -> None:
        hidden = ("import sys\nfor name in ('torch', 'jax', 'tensorflow', 'tritonclient.http'):\n"
                  "    sys.modules[name] = None\nimport hps\n")
        for code, extra in (("hps.Client('http://localhost:1')", "client"),
                            ("import hps.torch", "torch"), ("import hps.jax", "jax"),
                            ("import hps.tensorflow", "tensorflow")):
            done = subprocess.run([sys.executable, "-c", hidden + code], capture_output=True,
                                  text=True, check=False, env=os.environ)
            self.assertIn(f"pip install 'hps[{extra}]'", done.stderr)
            self.assertIn("ImportError", done.stderr)


if __name__ == "__main__":
    unittest.main()
