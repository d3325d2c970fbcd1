"""Plants what clang's tools are there to find, with the flags that `make check` gives them."""

import dataclasses
import shutil
import subprocess
import unittest
import unittest.mock

from planted import PlantedTest

import check

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{check.ROOT}/src"]

UNGUARDED = """#include "base/mutex.h"
class Counter {
 public:
  void Add() { ++count_; }

 private:
  hps::Mutex mutex_;
  int count_ HPS_GUARDED_BY(mutex_) = 0;
};
void Use() { Counter().Add(); }
"""

MOVED = """#include <string>
#include <utility>
std::string Twice(std::string text) {
  std::string other = std::move(text);
  return other + text;
}
"""


def needs(tool: str):
    return unittest.skipUnless(shutil.which(tool), f"{tool} comes with `make check`")


class CheckTest(PlantedTest):
    def output(self, command: list[str]) -> str:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode != 0 else ""

    def clang(self, text: str) -> str:
        return self.output([*check.CLANG, *FLAGS, str(self.plant({"a.cc": text}) / "a.cc")])

    @needs("clang++-14")
    def test_clang_finds_an_unguarded_access(self):
        self.assertIn("requires holding mutex", self.clang(UNGUARDED))
        locked = UNGUARDED.replace("{ ++", "{ hps::MutexLock lock(mutex_); ++")
        self.assertEqual(self.clang(locked), "")

    def seen(self, unit: check.Unit) -> check.SeenUnit:
        check.digest.cache_clear()
        return check.clang(dataclasses.replace(unit, flags=[*FLAGS, *unit.flags]))

    @needs("clang++-14")
    def test_a_unit_is_looked_at_again_when_what_it_includes_changed(self):
        root = self.plant({"a.cc": '#include "a.h"\n', "a.h": "\n"})
        path = str(root / "a.cc")
        unit = check.Unit(path, [path], [], False)
        with unittest.mock.patch.object(check, "SEEN", root / "seen"):
            check.SEEN.mkdir()
            self.assertFalse(self.seen(unit).is_current())
            self.assertEqual(self.seen(unit).look(), (True, ""))
            self.assertTrue(self.seen(unit).is_current())
            self.assertFalse(self.seen(dataclasses.replace(unit, flags=["-O1"])).is_current())
            (root / "a.h").write_text("int a(int a) { int b; }\n")
            self.assertFalse(self.seen(unit).is_current())
            self.assertFalse(self.seen(unit).look()[0])
            self.assertFalse(self.seen(unit).is_current())

    @needs("clang++-14")
    def test_a_unit_is_looked_at_again_when_it_has_another_source(self):
        root = self.plant({"a.cc": "int a;\n", "b.cc": UNGUARDED, "Unity/u.cxx": ""})
        sources = [str(root / "a.cc"), str(root / "b.cc")]
        path = root / "Unity" / "u.cxx"
        with unittest.mock.patch.object(check, "SEEN", root / "seen"):
            check.SEEN.mkdir()
            for count in (1, 2):
                path.write_text("".join(f'#include "{file}"\n' for file in sources[:count]))
                self.assertEqual(check.sources_of(str(path)), sources[:count])
                unit = check.Unit(str(path), check.sources_of(str(path)), [], False)
                self.assertFalse(self.seen(unit).is_current())
                ok, output = self.seen(unit).look()
                self.assertEqual(ok, count == 1, output)
                self.assertEqual(self.seen(unit).is_current(), count == 1)
        self.assertIn("requires holding mutex", output)

    def test_long_subjects_are_found(self):
        good = "1a2b " + "x" * 72 + "\n"
        self.assertEqual(check.check_subjects(good)[0], True)
        self.assertEqual(check.check_subjects(""), (True, "subjects: 0 of the last commits have "
                                                    "more than 72 characters"))
        ok, output = check.check_subjects(good + "3c4d " + "y" * 73)
        self.assertFalse(ok)
        self.assertIn("3c4d", output)
        self.assertNotIn("1a2b", output)

    @needs("clang-tidy-14")
    def test_clang_tidy_finds_a_use_after_move(self):
        config = (check.ROOT / ".clang-tidy").read_text()
        root = self.plant({"a.cc": MOVED, ".clang-tidy": config})
        command = ["clang-tidy-14", "--quiet", str(root / "a.cc"), "--", "-std=c++20"]
        self.assertIn("bugprone-use-after-move", self.output(command))
        (root / "a.cc").write_text(MOVED.replace("other + text", "other"))
        self.assertEqual(self.output(command), "")

    @needs("clang-format-14")
    def test_clang_format_finds_a_difference(self):
        root = self.plant({"a.cc": "int  a;\n", "b.cc": "int b;\n", ".clang-format":
                           (check.ROOT / ".clang-format").read_text()})
        command = [*check.CLANG_FORMAT, str(root / "b.cc"), str(root / "a.cc")]
        self.assertIn("clang-format-violations", self.output(command))
        (root / "a.cc").write_text("int a;\n")
        self.assertEqual(self.output(command), "")

    def test_a_failed_file_counts_as_failed(self):
        tally = check.Tally()
        tally.run_many("step", {"a.cc": lambda: (True, ""), "b.cc": lambda: (False, "why")})
        self.assertEqual((tally.passed, tally.failed), (1, 1))

    def test_a_large_change_is_bounded(self):
        sources = [f"{number}.cc" for number in range(1000)]
        self.assertEqual(check.files_to_tidy(sources, True), sources)
        self.assertLessEqual(len(check.files_to_tidy(sources, False)), check.TIDY_FILES_MAX)


if __name__ == "__main__":
    unittest.main()
