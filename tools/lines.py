#!/usr/bin/env python3
"""Counts the product's lines of C++ and CUDA, and those of its tests.

    tools/lines.py [ROOT] [--folders]

The product here is src (without train* and testing), include and cli; a line counts if it has more
than blanks and comments. Tests are the test files beside the product. --folders: each folder.
"""

import argparse
import collections
import pathlib
import re

from layers import TEST_FILE
from source_tree import SourceTree

PRODUCT = re.compile(r"^(include|cli|src)/")
BESIDE = re.compile(r"^src/(train\w*|testing)/")
# What a comment may stand in, then comments.
TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|'
                   r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def code_lines(text: str) -> int:
    def blanked(match: re.Match) -> str:
        token = match[0]
        return "\n" * token.count("\n") if token.startswith(("//", "/*")) else token
    return sum(bool(line.strip()) for line in TOKEN.sub(blanked, text).split("\n"))


def count(tree: SourceTree) -> tuple[collections.Counter, collections.Counter]:
    """Lines of product and of tests, by folder."""
    product, tests = collections.Counter(), collections.Counter()
    for path in tree.ending(".h", ".cc", ".cu", ".cuh"):
        if not PRODUCT.match(path) or BESIDE.match(path):
            continue
        folder = "/".join(path.split("/")[:2]) if path.startswith("src/") else path.split("/")[0]
        counter = tests if TEST_FILE.search(path) else product
        counter[folder] += code_lines(tree.text(path))
    return product, tests


def summary(tree: SourceTree) -> str:
    product, tests = count(tree)
    return (f"product without training: {product.total():,} lines in {len(product)} folders; "
            f"its tests: {tests.total():,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--folders", action="store_true", help="also the lines of each folder")
    options = parser.parse_args()
    tree = SourceTree(options.root)
    if options.folders:
        product, tests = count(tree)
        for folder in sorted(product | tests):
            print(f"{product[folder]:7,} {tests[folder]:7,}  {folder}")
    print(summary(tree))


if __name__ == "__main__":
    main()
