#!/usr/bin/env python3
"""Checks the house style: what clang-format, the compiler and clang-tidy do not.

    tools/tidy.py [ROOT]

Lengths (function, file, public header, line), parameters, virtual functions, members of a class,
names, includes, conditional compilation, banned constructs, comments, type names that two files
define, a test beside every source file, explicit source lists. CONTRIBUTING.md has the rules with
their reasons, tools/tidy_allowed.py the exceptions. Prints one line per finding, then the share of
code in long functions.
"""

import pathlib
import re
import sys

import tidy_allowed
import tidy_rules
from cpp_source import CppSource, matching
from source_tree import Finding, SourceTree

TEXT_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".toml", "CMakeLists.txt",
                 "CMakePresets.json", "Makefile")
BUILT_FOLDERS = ("src/", "bench/", "cli/", "tests/")
TESTED_FOLDERS = ("src/",)
STATE_IN = re.compile(r"(include|src|cli|python/csrc)/(?!testing/)")
NAMESPACE = re.compile(r"\bnamespace\s*([\w:]*)\s*\{")


def check_files(tree: SourceTree) -> tuple[list[Finding], list[CppSource]]:
    findings, sources = [], []

    def add(path: str, found) -> None:
        findings.extend(Finding(path, *finding) for finding in found)

    for path in tree.ending(*TEXT_SUFFIXES):
        add(path, tidy_rules.rule_text(path, tree.text(path)))
        if path.endswith(".py"):
            add(path, tidy_rules.rule_python(path, tree.text(path)))
    for path in tree.ending(".h", ".cc", ".cu", ".cuh"):
        sources.append(CppSource(path, tree.text(path)))
        add(path, tidy_rules.rule_includes(tree, path))
        for rule in tidy_rules.CPP_RULES:
            add(path, rule(sources[-1]))
    return findings, sources


def check_tests(tree: SourceTree, untested: dict[str, str],
                reached: dict[str, str]) -> list[Finding]:
    """Every source file has a test of its name beside it, or one there or in a folder above that
    includes its header; or it is known which other test reaches it, or why none does."""
    findings = []
    names = set(tree.files)
    included_by_tests = {(str(pathlib.PurePosixPath(path).parent), tree.resolve(include.path))
                         for path in tree.ending("_test.cc", "_test.cu")
                         for include in tree.includes(path)}
    for path in tree.ending(".cc", ".cu"):
        stem = path.rsplit(".", 1)[0]
        if not path.startswith(TESTED_FOLDERS) or tidy_rules.is_test(path) or \
                stem.endswith("_bench"):
            continue
        folders = [str(folder) for folder in pathlib.PurePosixPath(path).parents]
        has_test = any((folder, stem + ".h") in included_by_tests for folder in folders) or \
            stem + "_test.cc" in names or stem + "_test.cu" in names
        if not has_test and path not in untested and path not in reached:
            findings.append(Finding(path, 1, "untested", "no test beside it includes its header"))
        if has_test and path in untested:
            findings.append(Finding(path, 1, "untested",
                                    "has a test: take it off tools/tidy_allowed.py"))
    findings += [Finding(path, 1, "untested", "tools/tidy_allowed.py names it; it is not there")
                 for path in untested if path not in names]
    return findings


def namespaces_at(source: CppSource, position: int) -> list[str]:
    """Names of the namespaces around a position, outermost first; "" = unnamed."""
    return [match[1] for match in NAMESPACE.finditer(source.code, 0, position)
            if matching(source.code, match.end() - 1, "{}") > position]


def check_type_names(sources: list[CppSource]) -> list[Finding]:
    """No two types of one name: a linker that meets both keeps either one's functions."""
    findings, defined = [], {}
    for source in sources:
        for found in source.types:
            nested = any(other.begin < found.begin < other.end for other in source.classes)
            if found.kind in ("alias", "concept") or nested or "::" in found.name or not found.name:
                continue
            namespaces = namespaces_at(source, found.begin)
            if "" in namespaces:
                continue
            name = "::".join([*namespaces, found.name])
            first = defined.setdefault(name, source.path)
            if first != source.path:
                findings.append(Finding(source.path, found.line, "type-name",
                                        f"{name} is also defined in {first}"))
    return findings


def check_state(sources: list[CppSource],
                allowed: dict[tuple[str, str], tuple[int, int]]) -> list[Finding]:
    """A class of the product over the limits of members or bools is in the list with exactly its
    numbers. So the list can only shrink."""
    findings, over = [], set()
    for source in sources:
        if not STATE_IN.match(source.path) or tidy_rules.is_test(source.path):
            continue
        for found in source.classes:
            state = tidy_rules.state_of(source, found)
            if not tidy_rules.is_over(state):
                continue
            over.add((source.path, found.name))
            listed = allowed.get((source.path, found.name))
            if state == listed:
                continue
            text = f"{found.name} has {state[0]} members, {state[1]} of them bools"
            limits = f"the limits are {tidy_rules.MEMBERS_MAX} and {tidy_rules.BOOLS_MAX}"
            if listed is not None:
                limits = f"tools/tidy_allowed.py has {listed[0]} and {listed[1]}"
            findings.append(Finding(source.path, found.line, "state", f"{text}; {limits}"))
    return findings + [Finding(path, 1, "allow-list", f"tools/tidy_allowed.py excuses the state of "
                               f"{name}, and there is nothing to excuse")
                       for path, name in set(allowed) - over]


def tested_by(tree: SourceTree, tests: dict[str, list[str]]) -> dict[str, str]:
    """Source file -> the test that reaches it, for those whose test exists."""
    reached = {}
    for test, names in tests.items():
        folder = str(pathlib.PurePosixPath(test).parent)
        for name in names if test in tree.files else []:
            stem = name if "/" in name else f"{folder}/{name}"
            reached |= {stem + ".cc": test, stem + ".cu": test}
    return reached


def check_cmake(tree: SourceTree) -> list[Finding]:
    """Source lists are explicit and complete: a file that nobody builds is found here."""
    findings = []
    built = set()
    for path in tree.ending("CMakeLists.txt", ".cmake"):
        text = re.sub(r"#[^\n]*", "", tree.text(path))
        if re.search(r"\bGLOB(_RECURSE)?\b|aux_source_directory", text):
            findings.append(Finding(path, 1, "source-list", "name the source files, do not glob"))
        folder = pathlib.PurePosixPath(path).parent
        built.update(str(folder / word) for word in re.findall(r"[\w./-]+\.(?:cc|cu)\b", text))
    findings += [Finding(path, 1, "source-list", "no CMakeLists.txt builds it")
                 for path in tree.ending(".cc", ".cu")
                 if path.startswith(BUILT_FOLDERS) and path not in built]
    return findings


def without_allowed(findings: list[Finding], allowed: dict[tuple[str, str], str]) -> list[Finding]:
    used = {(finding.rule, finding.path) for finding in findings} & set(allowed)
    kept = [finding for finding in findings if (finding.rule, finding.path) not in allowed]
    kept += [Finding(path, 1, "allow-list", f"tools/tidy_allowed.py excuses `{rule}` here, and "
                     "there is nothing to excuse") for rule, path in set(allowed) - used]
    return kept


def share_in_long_functions(sources: list[CppSource]) -> tuple[int, int]:
    """(lines in functions over the limit, lines with code) of the sources without tests."""
    long_lines = code_lines = 0
    for source in sources:
        if tidy_rules.is_test(source.path):
            continue
        code_lines += sum(1 for line in source.code.split("\n") if line.strip())
        for function in source.functions:
            lines = function.last_line - function.first_line + 1
            long_lines += lines if lines > tidy_rules.FUNCTION_LINES_MAX else 0
    return long_lines, code_lines


def check(root: pathlib.Path, allowed=None, untested=None,
          state=None) -> tuple[list[Finding], str]:
    tree = SourceTree(root)
    findings, sources = check_files(tree)
    findings = without_allowed(findings, tidy_allowed.ALLOWED if allowed is None else allowed)
    reached = tested_by(tree, tidy_allowed.TESTED_BY) if untested is None else {}
    findings += check_tests(tree, tidy_allowed.UNTESTED if untested is None else untested, reached)
    findings += check_type_names(sources)
    findings += check_state(sources, tidy_allowed.STATE if state is None else state)
    findings += check_cmake(tree)
    long_lines, code_lines = share_in_long_functions(sources)
    share = 100 * long_lines / max(code_lines, 1)
    return sorted(set(findings)), (f"{len(sources)} C++ files, {code_lines} lines of code, "
                                   f"{share:.1f} % of them in functions over "
                                   f"{tidy_rules.FUNCTION_LINES_MAX} lines")


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if len(sys.argv) < 2:
        root = root.parent.parent
    findings, summary = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings; {summary}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
