#!/usr/bin/env python3
"""Checks the sources without running them; `make check` and `make check-all`.

    tools/check.py          layers, style, format; clang's warnings and thread-safety analysis on
                            all sources but those of test programs; clang-tidy on changed files
    tools/check.py --all    clang and clang-tidy on all files

What clang or clang-tidy found nothing in, and what is as it was then with all that it includes, is
not looked at again (build/check remembers it; it can be copied between checkouts).

Everything that a tool looks at counts as one case: a file, for clang a unit of up to eight, for
clang-format 32; layers.py, tidy.py, python_reference.py and the subjects of the last commits are
one case each. The product's lines are printed (lines.py). The last line is "N passed, N failed";
the exit status is 1 if any failed.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

import lines
from source_tree import SourceTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "analysis"
# Most of clang's time goes into headers: eight sources of a target are compiled as one.
CONFIGURE = ["cmake", "--preset", "cpu", "-B", str(BUILD)]
PROGRESS_S = 10
# clang-tidy takes seconds per file. When a change is larger than this, or can't be told, every
# n-th file is taken; `make check-all` takes them all.
TIDY_FILES_MAX = 12
GENERATED_HEADERS = ["hps_bench_commit", "hps_proto", "hps_onnx_proto"]  # targets
SEEN = ROOT / "build" / "check"
CLANG = ["clang++-14", "-fsyntax-only", "-Wthread-safety", "-Wno-unknown-warning-option",
         "-Wno-gnu-zero-variadic-macro-arguments"]
# What one source calls a thing hides what another in its unit does; g++ looks at each alone.
CLANG_IN_UNITS = ["-Wno-shadow"]
CLANG_FORMAT = ["clang-format-14", "--dry-run", "--Werror"]
FORMAT_FILES = 32  # at once: a file takes less than its start
SUBJECT_LENGTH_MAX = 72
SUBJECTS = 20  # of the last commits
CLANG_TIDY = ["clang-tidy-14", "--quiet", "--extra-arg=-Wno-unknown-warning-option",
              "--extra-arg=-Wno-gnu-zero-variadic-macro-arguments"]


def run(command: list[str]) -> tuple[bool, str]:
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout


@dataclasses.dataclass
class Unit:
    """What is compiled at once: a source file, or a generated one that includes several."""
    path: str
    sources: list[str]
    flags: list[str]  # without compiler, file and output
    is_test: bool  # of a test program


def sources_of(path: str) -> list[str]:
    if "/Unity/" in path:
        included = re.findall(r'^#include "(.+)"', (ROOT / path).read_text(), re.MULTILINE)
        return [named_from_root(file) for file in included]
    return [] if path.startswith("build/") else [path]  # generated


def units() -> list[Unit]:
    """Everything that is compiled; a source that two targets have is in two units."""
    for command in (CONFIGURE, ["ninja", "-C", str(BUILD), *GENERATED_HEADERS]):
        ok, output = run(command)
        if not ok:
            print(output)
            sys.exit(f"check: `{' '.join(command)}` failed")
    found = []
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["file"].endswith(".c"):
            continue
        words = shlex.split(entry["command"])
        compiler_at = [bool(re.search(r"\+\+[-\d]*$", word)) for word in words].index(True)
        words = words[compiler_at + 1:]
        output_at = words.index("-o")
        arguments = words[:output_at] + words[output_at + 2:]
        path = named_from_root(entry["file"])
        sources = [file for file in sources_of(path) if not file.startswith("build/")]
        if sources:
            flags = [word for word in arguments if word not in ("-c", entry["file"])]
            is_test = re.search(r"CMakeFiles/\w+_test\.dir/", words[output_at + 1]) is not None
            found.append(Unit(path, sources, flags, is_test))
    return found


@functools.lru_cache(maxsize=None)
def digest(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


def named_from_root(text: str) -> str:
    """The same in every checkout."""
    return text.replace(f"{ROOT}/", "").replace(str(ROOT), ".")


def includes_of(unit: Unit) -> pathlib.Path:
    """Clang writes it, when it looks at the unit."""
    return SEEN / f"{unit.path.replace('/', '+')}.d"


class SeenUnit:
    """A unit and a tool that looks at it, or at one of its sources: whether it found nothing when
    it looked last, and the command, the sources and all that they include are as they were."""

    def __init__(self, tool: str, unit: Unit, path: str, command: list[str],
                 beside: tuple[str, ...] = ()):
        self.stamp = SEEN / f"{path.replace('/', '+')}.{tool}.json"
        self.unit = unit
        self.command = command
        self.named_command = named_from_root(shlex.join([*command, *unit.sources]))
        self.beside = beside

    def is_current(self) -> bool:
        try:
            seen = json.loads(self.stamp.read_text())
            return seen["command"] == self.named_command and all(
                digest(file) == before for file, before in seen["files"].items())
        except (OSError, ValueError, KeyError):
            return False

    def look(self) -> tuple[bool, str]:
        start_ns = time.time_ns()
        self.stamp.unlink(missing_ok=True)
        ok, output = run(self.command)
        if ok and includes_of(self.unit).exists():
            listed = includes_of(self.unit).read_text().split(":", 1)[1].replace("\\\n", " ")
            files = [named_from_root(file) for file in listed.split()] + list(self.beside)
            if self.unit.path not in self.unit.sources:
                files.remove(self.unit.path)  # it names the checkout
            # What has changed while the tool looked may not be what it saw.
            if max((ROOT / file).stat().st_mtime_ns for file in files) < start_ns:
                self.stamp.write_text(json.dumps({
                    "command": self.named_command,
                    "files": {file: digest(file) for file in files}}))
        return ok, output


def changed_files() -> set[str] | None:
    """Files changed since the branch left main (or by the last commit on main) and not committed;
    None when git can't tell."""
    for base in ("origin/main", "main"):
        ok, merge_base = run(["git", "merge-base", "HEAD", base])
        if ok:
            break
    else:
        merge_base = ""
    head = run(["git", "rev-parse", "HEAD"])[1].strip()
    if merge_base.strip() in ("", head):
        merge_base = "HEAD~1"
    ok, listed = run(["git", "diff", "--name-only", merge_base.strip(), "--"])
    untracked = run(["git", "ls-files", "-o", "--exclude-standard"])[1]
    return set((listed + untracked).split()) if ok else None


def files_to_tidy(sources: list[str], everything: bool) -> list[str]:
    if everything:
        return sources
    changed = changed_files()
    if changed is None:
        chosen = sources
    else:
        chosen = [path for path in sources
                  if path in changed or path.removesuffix(".cc") + ".h" in changed]
    step = -(-len(chosen) // TIDY_FILES_MAX)
    return chosen[::max(step, 1)]


def check_subjects(commits: str) -> tuple[bool, str]:
    """Of lines "hash subject"; a longer subject is cut where commits are listed."""
    found = [line for line in commits.splitlines()
             if len(line.partition(" ")[2]) > SUBJECT_LENGTH_MAX]
    return not found, "\n".join(found + [f"subjects: {len(found)} of the last commits have more "
                                         f"than {SUBJECT_LENGTH_MAX} characters"])


class Tally:
    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def add(self, step: str, ok: bool, output: str) -> None:
        self.passed += ok
        self.failed += not ok
        if not ok:
            print(f"FAILED {step}\n{output.rstrip()}", flush=True)

    def run_one(self, step: str, command: list[str]) -> None:
        start = time.monotonic()
        ok, output = run(command)
        self.add(step, ok, output)
        print(f"== {step}: {output.strip().splitlines()[-1]} ({time.monotonic() - start:.1f} s)",
              flush=True)

    def run_many(self, step: str, looks: dict[str, Callable[[], tuple[bool, str]]]) -> None:
        """Looks at files on all cores, with a line of progress now and then."""
        start = last = time.monotonic()
        failed_before = self.failed
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            futures = {pool.submit(look): path for path, look in looks.items()}
            for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                self.add(f"{step} {futures[future]}", *future.result())
                if time.monotonic() - last > PROGRESS_S:
                    last = time.monotonic()
                    print(f"   {step}: {done} of {len(looks)} files, {last - start:.0f} s",
                          flush=True)
        print(f"== {step}: {len(looks)} files, {self.failed - failed_before} failed "
              f"({time.monotonic() - start:.1f} s)", flush=True)


def look_at_changed(tally: Tally, step: str, files: dict[str, SeenUnit]) -> None:
    """What is as it was when nothing was found in it counts as passed."""
    changed = {path: file.look for path, file in files.items() if not file.is_current()}
    tally.passed += len(files) - len(changed)
    tally.run_many(step, changed)


def clang(unit: Unit) -> SeenUnit:
    writes_includes = ["-MMD", "-MF", str(includes_of(unit))]
    return SeenUnit("clang", unit, unit.path, [*CLANG, *unit.flags, *CLANG_IN_UNITS,
                                               *writes_includes, unit.path])


def clang_tidy(unit: Unit, path: str) -> SeenUnit:
    return SeenUnit("tidy", unit, path, [*CLANG_TIDY, path, "--", *unit.flags], (".clang-tidy",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="clang and clang-tidy on all files")
    arguments = parser.parse_args()
    tally = Tally()
    tools = ROOT / "tools"
    tally.run_one("layers", [sys.executable, str(tools / "layers.py")])
    tally.run_one("style", [sys.executable, str(tools / "tidy.py")])
    tally.run_one("reference", [sys.executable, str(tools / "python_reference.py"), "--check"])
    log = ["git", "log", f"-{SUBJECTS}", "--no-merges", "--format=%h %s"]
    tally.add("subjects", *check_subjects(run(log)[1]))
    tree = SourceTree(ROOT)
    print(lines.summary(tree), flush=True)
    paths = list(tree.ending(".h", ".cc", ".cu", ".cuh"))
    tally.run_many("format", {
        f"from {paths[first]} on": functools.partial(run, [*CLANG_FORMAT,
                                                           *paths[first:first + FORMAT_FILES]])
        for first in range(0, len(paths), FORMAT_FILES)})
    compiled = units()
    SEEN.mkdir(exist_ok=True)
    look_at_changed(tally, "clang", {unit.path: clang(unit) for unit in compiled
                                     if arguments.all or not unit.is_test})
    unit_of = {path: unit for unit in compiled for path in unit.sources}
    look_at_changed(tally, "clang-tidy", {
        path: clang_tidy(unit_of[path], path)
        for path in files_to_tidy(sorted(unit_of), arguments.all)})
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
