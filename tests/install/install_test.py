"""Installs hps into a new prefix. Runs what is installed where the source tree is hidden, and
builds and runs a project that finds it there."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cpu"
sys.path.insert(0, str(ROOT / "tests" / "server"))
import support  # noqa: E402
from small_network import SIGMOID, products  # noqa: E402

# Where the build has OpenVINO: in the tree, or where several trees share it.
BUILD_VENV = pathlib.Path(os.environ.get("HPS_BUILD_VENV") or ROOT / ".venv-build").resolve()
UNIT = ROOT / "deploy" / "systemd" / "hps.service"


def run_command(*command, expect: int = 0) -> str:
    done = subprocess.run([str(word) for word in command], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != expect:
        raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def without_the_tree() -> list[str]:
    """Before a command: nothing lies in the source tree and in .venv-build for it."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    hide = "; ".join(f"mount -t tmpfs -o ro none {shlex.quote(str(folder))}"
                     for folder in (BUILD_VENV, ROOT))
    return ["unshare", "--mount", *rights, "sh", "-ec", f'{hide}; cd /; exec "$@"', "sh"]


def can_hide_the_tree() -> bool:
    tried = subprocess.run([*without_the_tree(), "test", "!", "-e", ROOT / "Makefile"], check=False,
                           capture_output=True)
    return tried.returncode == 0


def is_elf(file: pathlib.Path) -> bool:
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="hps_install_")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        cls.prefix = cls.scratch / "prefix"
        run_command("cmake", "--install", BUILD, "--prefix", cls.prefix)

    def programs(self) -> list[pathlib.Path]:
        """Programs and shared libraries that are installed."""
        return [file for file in self.prefix.rglob("*")
                if file.is_file() and is_elf(file)]


class PackageTest(Installation):
    def configure(self, name: str, version: str = "0.1", expect: int = 0,
                  hidden: list[str] | None = None) -> str:
        source = self.scratch / name
        source.mkdir()
        text = (ROOT / "examples" / "find_package" / "CMakeLists.txt").read_text()
        (source / "CMakeLists.txt").write_text(text.replace("hps 0.1 ", f"hps {version} "))
        (source / "first_lookup.cc").write_bytes(
            (ROOT / "examples" / "find_package" / "first_lookup.cc").read_bytes())
        return run_command(*(hidden or []), "cmake", "-S", source, "-B", source / "build", "-G",
                           "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}", expect=expect)

    def test_a_consumer_imports_and_looks_up(self):
        hidden = without_the_tree() if can_hide_the_tree() else []
        self.configure("consumer", hidden=hidden)
        build = self.scratch / "consumer" / "build"
        run_command(*hidden, "cmake", "--build", build)
        output = run_command(*hidden, build / "first_lookup", self.scratch / "work")
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
        run_command("cmake", "-S", source, "-B", source / "build", "-G", "Ninja",
                    f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run_command("cmake", "--build", source / "build")

    def test_another_minor_version_is_not_accepted(self):
        self.assertIn("0.2", self.configure("too_new", version="0.2", expect=1))

    def test_exactly_the_public_headers_are_installed(self):
        def headers(folder: pathlib.Path) -> set[str]:
            return {str(path.relative_to(folder)) for path in folder.rglob("*.h")}

        self.assertEqual(headers(self.prefix / "include"), headers(ROOT / "include"))

    def test_no_installed_file_names_the_source_tree(self):
        for path in self.prefix.rglob("*.cmake"):
            self.assertNotIn(str(ROOT), path.read_text(), path)

    def test_libraries_are_looked_for_in_the_installation_alone(self):
        programs = self.programs()
        self.assertEqual([program for program in programs if program.parent.name == "bin"],
                         [self.prefix / "bin" / "hps"])  # hps-bench is for the build tree
        self.assertIn((self.prefix / "lib" / "libhps.so").resolve(), programs)
        for program in programs:
            with self.subTest(program.relative_to(self.prefix)):
                paths = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", run_command("readelf", "-d",
                                                                              program))
                for path in ":".join(paths).split(":"):
                    self.assertRegex(path, r"^(\$ORIGIN|$)")
                resolved = run_command("ldd", program)
                self.assertNotIn("not found", resolved)
                for folder in (ROOT, BUILD_VENV):
                    self.assertNotIn(f"{folder}/", resolved)

    def test_what_is_installed_is_built_without_tests(self):
        inputs = run_command("ninja", "-C", BUILD, "-t", "inputs", "installed").split()
        self.assertEqual([file for file in inputs if "_test" in pathlib.Path(file).name], [])
        built = {pathlib.Path(file).name for file in inputs}
        for file in (self.prefix / "lib").glob("*.a"):
            self.assertIn(file.name, built)
        commands = run_command("make", "-C", ROOT, "-n", "install", f"PREFIX={self.prefix}")
        self.assertIn("ninja -C build/cpu installed\n", commands)
        self.assertIn(f"cmake --install build/cpu --prefix {self.prefix}\n", commands)

    def test_a_partial_build_installs_nothing_and_says_what_to_build(self):
        build, prefix = self.scratch / "partial", self.scratch / "nothing"
        run_command("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DHPS_BUILD_TESTS=OFF")
        told = " ".join(run_command("cmake", "--install", build, "--prefix", prefix,
                                    expect=1).split())
        self.assertIn(f"`ninja -C {build} installed`", told)
        self.assertFalse(prefix.exists())


@unittest.skipUnless(can_hide_the_tree(), "no rights to mount: the source tree can't be hidden")
class HiddenTreeTest(Installation, support.ServerTestCase):
    """What is installed runs, and serves a model with a dense network, without the tree."""

    def setUp(self) -> None:
        super().setUp()
        self.hps = self.prefix / "bin" / "hps"

    def command(self, *words) -> pathlib.Path:
        """A program that runs `words`, then its own arguments, without the tree."""
        script = self.directory / "hidden.sh"
        words = shlex.join([*without_the_tree(), *map(str, words)])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
        return script

    def test_the_command_starts(self):
        version = run_command(*without_the_tree(), self.hps, "--version")
        self.assertRegex(version, r"\d+\.\d+\.\d+")

    def test_the_command_of_the_unit_serves_predictions(self):
        start = re.search(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)[1].split()
        self.assertEqual(start[0], "/usr/local/bin/hps")  # PREFIX is /usr/local by default
        self.assertEqual(start[1:], ["serve", "--config", "/etc/hps/hps.toml"])
        (self.directory / "dense.onnx").write_bytes(SIGMOID)
        server = self.serve_ready(
            program=self.command(self.hps),
            models=f'[[model]]\nname = "{support.MODEL}"\n'
                   f'tables = {json.dumps(list(support.TABLES))}\n'
                   f'dense = "{self.directory}/dense.onnx"\n')
        keys = self.keys(100)
        body = {"inputs": [{"name": "user", "datatype": "INT64", "shape": [100],
                            "data": keys.tolist()}], "outputs": [{"name": "score"}]}
        status, answer = server.get(f"/v2/models/{support.MODEL}/infer",
                                    data=json.dumps(body).encode(), method="POST")
        self.assertEqual(status, 200, answer)
        np.testing.assert_allclose(json.loads(answer)["outputs"][0]["data"],
                                   1 / (1 + np.exp(-products(keys))), atol=1e-5)
        self.assertEqual(server.stop(), 0)

    def test_the_library_can_be_loaded(self):
        run_command(*without_the_tree(), "/usr/bin/python3", "-c",
                    "import ctypes, sys; ctypes.CDLL(sys.argv[1]).hps_version",
                    self.prefix / "lib" / "libhps.so")


if __name__ == "__main__":
    unittest.main()
