#!/usr/bin/env python3
"""Writes docs/python_reference.md from the docstrings of the Python package.

    tools/python_reference.py            writes it
    tools/python_reference.py --check    says whether it is what would be written; for `make check`

Reads the sources and imports nothing, so that no framework is needed.
"""

import argparse
import ast
import inspect
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "hps"
PAGE = ROOT / "docs" / "python_reference.md"
MODULES = ["hps", "hps.torch", "hps.tensorflow", "hps.jax", "hps.train"]
INTRODUCTION = """\
# Reference of the Python package

Every public name, with its docstring. `tools/python_reference.py` writes this page from the sources
in `python/hps`; `make check` fails if it is not current. [python.md](python.md) has a tutorial.
"""

Definition = ast.ClassDef | ast.FunctionDef


class Module:
    """The source of a module: what it defines, and from where its other names come."""

    def __init__(self, name: str):
        path = PACKAGE.joinpath(*name.split(".")[1:])
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.tree = ast.parse(self.path.read_text(), str(self.path))
        self.docstring = ast.get_docstring(self.tree) or ""
        self.definitions: dict[str, Definition] = {}
        self.origins: dict[str, str] = {}
        self.public: list[str] = []
        for node in self.tree.body:
            self._add(node)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            self.definitions[node.name] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hps."):
            for alias in node.names:
                self.origins[alias.asname or alias.name] = node.module or ""
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            self.public = sorted(ast.literal_eval(node.value), key=str.lower)


def find(module: Module, name: str) -> tuple[Module, Definition] | None:
    """The definition of a name, and the module that has it; None if it is not of this package."""
    if name in module.definitions:
        return module, module.definitions[name]
    if name in module.origins:
        return find(Module(module.origins[name]), name)
    return None


def docstring_of(node: Definition) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")


def parameters(function: ast.FunctionDef, is_method: bool) -> str:
    """As they are written, without their types, which are in the sources for mypy."""
    plain = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(plain, ast.FunctionDef)
    arguments = plain.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
                     *filter(None, (arguments.vararg, arguments.kwarg))]:
        argument.annotation = None
    if is_method and not is_static(function):
        del arguments.args[0]
    return ast.unparse(arguments)


def is_static(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)


def is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in function.decorator_list)


def methods_of(module: Module, node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Its methods and those of its bases in the package, its own first."""
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    for base in node.bases:
        found = find(module, ast.unparse(base))
        if found is not None and isinstance(found[1], ast.ClassDef):
            methods |= {name: method for name, method in methods_of(found[0], found[1]).items()
                        if name not in methods}
    return methods


def constants_of(node: ast.ClassDef) -> list[str]:
    """The members of an enumeration."""
    return [ast.unparse(item) for item in node.body
            if isinstance(item, ast.Assign) and ast.unparse(item).isupper()]


def as_text(text: str) -> str:
    """A docstring as Markdown: what it indents, and the names that it explains, stay in lines."""
    return f"```text\n{text}\n```" if text else "(no docstring)"


def lines_of_class(module: Module, title: str, node: ast.ClassDef) -> list[str]:
    methods = methods_of(module, node)
    maker = methods.get("__init__")
    # What only the package makes has no arguments for users.
    is_made_by_users = maker is not None and "Made by" not in docstring_of(node) \
        and "made by" not in docstring_of(node)
    arguments = f"({parameters(maker, True)})" if maker and is_made_by_users else ""
    lines = [f"### `{title}{arguments}`", "", as_text(docstring_of(node)), ""]
    if constants := constants_of(node):
        lines += ["Members: " + ", ".join(f"`{constant}`" for constant in constants) + ".", ""]
    for name, method in methods.items():
        if name.startswith("_") or not docstring_of(method):
            continue
        call = name if is_property(method) else f"{name}({parameters(method, True)})"
        lines += [f"#### `{node.name}.{call}`", "", as_text(docstring_of(method)), ""]
    return lines


def lines_of_exceptions(module: Module, names: list[str]) -> list[str]:
    """One table of all exceptions."""
    lines = ["### Exceptions", "", "All are derived from `hps.Error`.", "",
             "| exception | also a | raised when |", "| --- | --- | --- |"]
    for name in names:
        found = find(module, name)
        assert found is not None
        node = found[1]
        assert isinstance(node, ast.ClassDef)
        bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) != "Error"]
        text = " ".join(docstring_of(node).split())
        lines.append(f"| `{name}` | {', '.join(f'`{base}`' for base in bases)} | {text} |")
    return [*lines, ""]


def lines_of_module(name: str) -> list[str]:
    module = Module(name)
    lines = [f"## {name}", "", as_text(module.docstring), ""]
    errors = []
    for public in module.public:
        found = find(module, public)
        if found is None:
            raise SystemExit(f"python_reference: {name}.{public} is defined nowhere")
        where, node = found
        title = f"{name}.{public}"
        if where.path.name == "_errors.py":
            errors.append(public)
        elif isinstance(node, ast.ClassDef):
            lines += lines_of_class(where, title, node)
        else:
            lines += [f"### `{title}({parameters(node, False)})`", "",
                      as_text(docstring_of(node)), ""]
    return lines + (lines_of_exceptions(module, errors) if errors else [])


def page() -> str:
    lines = [INTRODUCTION]
    for name in MODULES:
        lines += lines_of_module(name)
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text)
        return 0
    is_current = PAGE.exists() and PAGE.read_text() == text
    print("the page is current" if is_current else
          "docs/python_reference.md is not current: run tools/python_reference.py")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
