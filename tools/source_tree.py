"""What the checks share: the source files of a tree, their includes, and findings."""

import dataclasses
import functools
import pathlib
import re
import subprocess

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.rule}]"


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    path: str
    quoted: bool


class SourceTree:
    """The files below a root that git knows or would add (all files where there is no git)."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.files = sorted(self._list())

    def _list(self) -> list[str]:
        if not (self.root / ".git").exists():
            return [str(path.relative_to(self.root)) for path in self.root.rglob("*")
                    if path.is_file()]
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"],
                                cwd=self.root, check=True, capture_output=True, text=True).stdout
        return [name for name in listed.split("\0") if name and (self.root / name).is_file()]

    def ending(self, *suffixes: str) -> list[str]:
        return [name for name in self.files if name.endswith(suffixes)]

    @functools.cache
    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def includes(self, name: str) -> list[Include]:
        text = self.text(name)
        return [Include(text.count("\n", 0, match.start()) + 1, match[1] or match[2],
                        match[1] is not None)
                for match in INCLUDE.finditer(text)]

    def resolve(self, include: str) -> str | None:
        """The project file that `#include "include"` names, None if there is none."""
        for prefix in ("src/", "include/", ""):
            if prefix + include in self._file_set:
                return prefix + include
        return None

    @functools.cached_property
    def _file_set(self) -> frozenset[str]:
        return frozenset(self.files)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
