#!/usr/bin/env python3
"""Empty stand-ins for the NVIDIA libraries that a wheel of torch with CUDA needs when it is loaded,
so that it can be imported, on the CPU alone, without 4 GB of packages.

    tools/stub_nvidia.py SITE_PACKAGES     needs readelf and gcc

PyPI has no wheel of torch for x86-64 without CUDA. Its libraries bind their functions lazily: a
stand-in with the soname, and with each undefined symbol in its version, is enough. Its functions
return 100, which is cudaErrorNoDevice. For a virtual environment of tests only: torch there does
not find a GPU.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

SYSTEM_LIBRARY = re.compile(
    r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z|numa|util|mvec)\.so|ld-linux)")
DRIVER = "libcuda.so.1"  # is loaded at run time only
OBJECT_BYTES = 256


def readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True,
                          check=False).stdout


class Symbols:
    """What the files of a wheel define, and what they want from others."""

    def __init__(self, files: list[pathlib.Path]):
        self.wanted: set[tuple[str, str]] = set()  # (name, version)
        self.defined: set[str] = set()
        self.objects: set[str] = set()
        self.library_of: dict[str, str] = {}  # version -> soname
        self.needed: set[str] = set()
        for file in files:
            self.read_symbols(str(file))
            self.read_versions(str(file))
            self.needed.update(re.findall(r"NEEDED\).*\[(.+)\]", readelf("-d", str(file))))
        self.needed -= {file.name for file in files}

    def read_symbols(self, file: str) -> None:
        for line in readelf("--dyn-syms", file).splitlines():
            fields = line.split()
            if len(fields) < 8:
                continue
            name, _, version = fields[7].partition("@")
            if fields[6] != "UND":
                self.defined.add(name)
            elif fields[4] == "GLOBAL" and name:
                self.wanted.add((name, version.strip("@")))
                if fields[3] == "OBJECT" or name.startswith(("_ZTV", "_ZTI", "_ZTS")):
                    self.objects.add(name)

    def read_versions(self, file: str) -> None:
        library = None
        for line in readelf("-V", file).splitlines():
            if match := re.search(r"File: (\S+)", line):
                library = match[1]
            elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and library:
                self.library_of[match[1]] = library


def system_symbols(libraries: list[str]) -> set[str]:
    names = set()
    for library in libraries:
        path = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True,
                              text=True, check=False).stdout.strip()
        for line in readelf("--dyn-syms", path).splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[6] != "UND":
                names.add(fields[7].partition("@")[0])
    return names


def write_stub(path: pathlib.Path, by_version: dict[str, set[str]], objects: set[str]) -> None:
    source, versions = [".text\n"], []
    for version, names in sorted(by_version.items()):
        for name in sorted(names):
            if name in objects:
                source.append(f'.data\n.globl "{name}"\n.type "{name}",@object\n'
                              f'.size "{name}",{OBJECT_BYTES}\n"{name}": .zero {OBJECT_BYTES}\n'
                              ".text\n")
            else:
                source.append(f'.globl "{name}"\n.type "{name}",@function\n'
                              f'"{name}": mov $100,%eax\nret\n')
        if version:
            listed = " ".join(f'"{name}";' for name in sorted(names))
            versions.append(f"{version} {{ global: {listed} }};\n")
    source.append('.section .note.GNU-stack,"",@progbits\n')
    with tempfile.TemporaryDirectory() as directory:
        assembly, script = pathlib.Path(directory, "s.s"), pathlib.Path(directory, "v.map")
        assembly.write_text("".join(source))
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", "-o", str(path),
                   str(assembly)]
        if versions:
            script.write_text("".join(versions))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main() -> int:
    site = pathlib.Path(sys.argv[1])
    files = [*site.glob("torch/lib/*.so*"), *site.glob("torch/_C*.so")]
    symbols = Symbols(files)
    cached = {pathlib.Path(path).name for path in re.findall(
        r"=> (\S+)", subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True,
                                    check=False).stdout)}
    system = [name for name in symbols.needed if SYSTEM_LIBRARY.match(name) or name in cached]
    missing = sorted(symbols.needed - set(system) - {DRIVER})
    known = symbols.defined | system_symbols(system)
    stubs: dict[str, dict[str, set[str]]] = {
        name: collections.defaultdict(set) for name in missing}
    for name, version in symbols.wanted:
        library = symbols.library_of.get(version, "") if version else (missing or [""])[0]
        if name not in known and library in stubs:
            stubs[library][version].add(name)
    for name, by_version in stubs.items():
        write_stub(site / "torch" / "lib" / name, by_version, symbols.objects)
    print(f"stub_nvidia: {len(stubs)} libraries in {site}/torch/lib")
    return 0


if __name__ == "__main__":
    sys.exit(main())
