"""What is documented is what the command does: docs/command_line.md and the tour of the README."""

import json
import os
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
        parts = re.split(r"^## `hps (\w+)`\n", text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_every_command_has_its_page_with_all_its_options(self) -> None:
        listed = re.findall(r"^  (\w+) {2,}", self.run_hps("--help").stdout.split(
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


if __name__ == "__main__":
    unittest.main()
