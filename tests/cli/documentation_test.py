"""What is documented is what the command does: docs/command_line.md and the tour of the README; and
no page names a command, an option, a make target or a file that is not there."""

import functools
import json
import os
import pathlib
import re
import subprocess
import unittest

import support

NUMBER = re.compile(r"-?\b\d+(\.\d+)?(e[-+]?\d+)?\b")
SIZE = re.compile(r"N (KiB|MiB|GiB|B)\b")


def shape(line: str) -> object:
    """What must be the same in two outputs: everything but numbers."""
    def of_value(value: object) -> object:
        if isinstance(value, dict):
            return {name: of_value(member) for name, member in value.items()}
        if isinstance(value, list):
            return [of_value(element) for element in value]
        if isinstance(value, str):
            return NUMBER.sub("N", value)
        return value if isinstance(value, bool) else "number"

    if line.startswith("{"):
        return of_value(json.loads(line))
    return SIZE.sub("N BYTES", NUMBER.sub("N", line))


def members(value: object) -> set:
    """The names of all members in a JSON value; those of a benchmark's parameters are its own."""
    if isinstance(value, dict):
        below = [members(member) for name, member in value.items() if name != "params"]
        return set(value).union(*below)
    return set().union(*map(members, value)) if isinstance(value, list) else set()


class DocumentationTestCase(support.CommandTestCase):

    def run_line(self, line: str) -> subprocess.CompletedProcess:
        path = f"{support.HPS.parent}:{os.environ['PATH']}"
        return subprocess.run(["bash", "-c", line], cwd=self.directory, text=True, check=False,
                              env=os.environ | {"PATH": path}, timeout=support.TIMEOUT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class CommandLineTest(DocumentationTestCase):

    def sections(self) -> dict:
        text = (support.ROOT / "docs" / "command_line.md").read_text()
        parts = re.split(r"^## `hps ([\w-]+)`\n", text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_every_command_has_its_page_with_all_its_options(self) -> None:
        listed = re.findall(r"^  ([\w-]+) {2,}", self.run_hps("--help").stdout.split(
            "Subcommands:")[1].split("Example:")[0], flags=re.MULTILINE)
        sections = self.sections()
        self.assertEqual(sorted(listed), sorted(sections))
        for command, section in sections.items():
            offered = set(re.findall(r"^  (--[a-z-]+)", self.run_hps(command, "--help").stdout,
                                     flags=re.MULTILINE))
            documented = set(re.findall(r"`(--[a-z-]+)", section))
            everywhere = {"--help", "--json", "--store", "--config"}
            self.assertEqual(offered - everywhere, documented - everywhere, command)

    def test_examples(self) -> None:
        count = 0
        for command, section in self.sections().items():
            for block in re.findall(r"^```console\n(.*?)^```", section,
                                    flags=re.MULTILINE | re.DOTALL):
                for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                    line, _, shown = example.partition("\n")
                    with self.subTest(line):
                        count += 1
                        self.compare(command, section, line, shown.rstrip("\n"))
        self.assertGreater(count, 20)

    def compare(self, command: str, section: str, line: str, shown: str) -> None:
        done = self.run_line(line)
        self.assertEqual(done.returncode, 0, done.stdout)
        printed = done.stdout.rstrip("\n")
        if command == "bench":  # one object over many lines; the figures are the machine's
            objects = [json.loads(printed)]
            self.assertEqual(members(objects[0]), members(json.loads(shown)))
        else:
            lines = printed.split("\n")
            self.assertEqual([shape(part) for part in lines],
                             [shape(part) for part in shown.split("\n")])
            objects = [json.loads(part) for part in lines if part.startswith("{")]
        for name in set().union(*map(members, objects)) - {"error", "code", "message"}:
            self.assertIn(f"`{name}`", section)


class ReadmeTest(DocumentationTestCase):

    def test_the_tour(self) -> None:
        text = (support.ROOT / "README.md").read_text()
        tour = text.split("## Five minutes")[1].split("\n## ")[0]
        lines = [line.strip().replace("/tmp/", f"{self.directory}/")
                 for line in tour.split("\n") if line.startswith("    ")]
        self.assertEqual([line.split()[0] for line in lines[:2]], ["make", "export"])
        printed = []
        for line in lines[2:]:
            done = self.run_line(line)
            printed.append(done.stdout)
            self.assertEqual(done.returncode, 1 if line == lines[-1] else 0, done.stdout)
        self.assertIn("absent", printed[3])
        self.assertEqual(printed[3].count("hit_l3"), 2)
        self.assertIn("emb_vector", printed[-1])
        self.assertIn("hps: INVALID_ARGUMENT: ", printed[-1])


class PagesTest(DocumentationTestCase):
    """Every page, and what deploy/ and examples/ show."""

    def pages(self) -> dict[pathlib.Path, str]:
        found = [*support.ROOT.glob("*.md"), *support.ROOT.glob("docs/*.md")]
        found += [path for top in ("deploy", "examples") for path in
                  (support.ROOT / top).rglob("*") if path.is_file() and path.suffix != ".json"]
        self.assertGreater(len(found), 20)
        return {path: path.read_text() for path in found}

    @functools.cached_property
    def options(self) -> dict[str, set]:
        """Of each command."""
        commands = re.findall(r"^  ([\w-]+) {2,}", self.run_hps("--help").stdout, re.MULTILINE)
        return {command: set(re.findall(r"(--[a-z-]+)", self.run_hps(command, "--help").stdout))
                for command in commands}

    def wrong_options(self, text: str) -> list[str]:
        """What its command lines `hps COMMAND --option ...` name and the command lacks."""
        lines = re.sub(r"\\\n\s*", " ", text)  # that go on
        return [f"hps {command} {option}"
                for command, rest in re.findall(r"\bhps ([a-z]+)( [^`\n|;#]*)?", lines)
                if command in self.options
                for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", rest)
                if option not in self.options[command]]

    def missing_files(self, path: pathlib.Path, text: str) -> list[str]:
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if path.suffix == ".md" else []
        missing = [target for target in links if not (path.parent / target).exists()]
        tops = "bench|cli|cmake|deploy|docs|examples|include|src|tests|tools"
        named = re.findall(rf"(?<![\w/$-])((?:{tops})/[\w./*-]*\w)(?![\w*<])", text)
        return missing + [name for name in named if not list(support.ROOT.glob(name))]

    def test_options_of_commands(self) -> None:
        self.assertEqual(self.wrong_options("hps serve --store s \\\n  --prot 1; hps inspect --x"),
                         ["hps serve --prot", "hps inspect --x"])
        for path, text in self.pages().items():
            self.assertEqual(self.wrong_options(text), [], path)

    def test_make_targets(self) -> None:
        targets = re.findall(r"^([a-z-]+):", (support.ROOT / "Makefile").read_text(), re.MULTILINE)
        for path, text in self.pages().items():
            named = re.findall(r"(?:`|^ {4})make ([a-z][a-z-]*)", text, re.MULTILINE)
            self.assertLessEqual(set(named), set(targets), path)

    def test_files(self) -> None:
        planted = "[a](none.md) [b](docs/server.md) `src/none.h` build/cpu/tests/x src/*/*.none"
        self.assertEqual(self.missing_files(support.ROOT / "README.md", planted),
                         ["none.md", "src/none.h", "src/*/*.none"])
        for path, text in self.pages().items():
            self.assertEqual(self.missing_files(path, text), [], path)


if __name__ == "__main__":
    unittest.main()
