"""Installs hps into a new prefix, then builds and runs a project that finds it there."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cpu"


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hps_install_")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        cls.prefix = cls.scratch / "prefix"
        cls.run_command("cmake", "--install", BUILD, "--prefix", cls.prefix)

    @classmethod
    def run_command(cls, *command, expect: int = 0) -> str:
        done = subprocess.run([str(word) for word in command], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != expect:
            raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def configure(self, name: str, version: str = "0.1", expect: int = 0) -> str:
        source = self.scratch / name
        source.mkdir()
        text = (ROOT / "examples" / "find_package" / "CMakeLists.txt").read_text()
        (source / "CMakeLists.txt").write_text(text.replace("hps 0.1 ", f"hps {version} "))
        (source / "first_lookup.cc").write_bytes(
            (ROOT / "examples" / "find_package" / "first_lookup.cc").read_bytes())
        return self.run_command("cmake", "-S", source, "-B", source / "build", "-G", "Ninja",
                                f"-DCMAKE_PREFIX_PATH={self.prefix}", expect=expect)

    def test_a_consumer_imports_and_looks_up(self):
        self.configure("consumer")
        build = self.scratch / "consumer" / "build"
        self.run_command("cmake", "--build", build)
        output = self.run_command(build / "first_lookup", self.scratch / "work")
        self.assertIn("imported 1000 rows", output)
        self.assertIn("key 1000: absent", output)
        self.assertTrue(output.endswith("0 wrong\n"), output)

    def test_the_code_of_the_readme_compiles(self):
        text = (ROOT / "README.md").read_text()
        include, _, body = text.split("```cpp\n")[1].split("```")[0].partition("\n")
        source = self.scratch / "readme"
        source.mkdir()
        (source / "main.cc").write_text(
            f"{include}\nint main() {{\n{body}\nreturn !done.ok();\n}}\n")
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(readme LANGUAGES CXX)\n"
            "find_package(hps CONFIG REQUIRED)\nadd_executable(my_server main.cc)\n"
            "target_link_libraries(my_server PRIVATE hps::hps)\n")
        self.run_command("cmake", "-S", source, "-B", source / "build", "-G", "Ninja",
                         f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_command("cmake", "--build", source / "build")

    def test_another_minor_version_is_not_accepted(self):
        self.assertIn("0.2", self.configure("too_new", version="0.2", expect=1))

    def test_exactly_the_public_headers_are_installed(self):
        def headers(folder: pathlib.Path) -> set[str]:
            return {str(path.relative_to(folder)) for path in folder.rglob("*.h")}

        self.assertEqual(headers(self.prefix / "include"), headers(ROOT / "include"))

    def test_no_installed_file_names_the_source_tree(self):
        for path in self.prefix.rglob("*.cmake"):
            self.assertNotIn(str(ROOT), path.read_text(), path)


if __name__ == "__main__":
    unittest.main()
