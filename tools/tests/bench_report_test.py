"""tools/bench_report.py: a page from every result of record, and verdicts that follow targets."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import bench_report  # noqa: E402

RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))


class BenchReportTest(unittest.TestCase):

    def test_every_kept_report_has_a_page_that_loads_nothing(self) -> None:
        self.assertGreaterEqual(len(RESULTS), 3)
        made_again = set()  # the page of one report of each scenario
        for kept in RESULTS:
            with self.subTest(kept.name):
                report = json.loads(kept.read_text())
                page = bench_report.page_of([report])
                root = xml.etree.ElementTree.fromstring(page.split("\n", 1)[1])
                self.assertEqual(len(root.findall(".//tbody/tr")), len(report["results"]))
                for element in root.iter():
                    self.assertNotIn(element.tag.split("}")[-1], ("script", "link", "img"))
                self.assertIn(report["machine"]["commit"], page)
                if report["scenario"] not in made_again:
                    made_again.add(report["scenario"])
                    self.assertEqual(page, bench_report.page_of([report]))

    def test_plots_need_three_points_of_one_parameter(self) -> None:
        rows = [{"name": "fetch", "unit": "keys/s", "params": {"batch": str(batch)},
                 "figure": batch * 2.0, "bound": batch * 3.0, "p50": 1.0, "p99": 2.0}
                for batch in (1, 10, 1000)]
        self.assertEqual(len(bench_report.plots_of(rows)), 2)
        self.assertEqual(bench_report.plots_of(rows[:2]), [])

    def test_verdicts(self) -> None:
        for result, verdict in (
                ({"target": ">= 0.8", "figure": 1, "bound": 2, "ratio": 0.8}, "met"),
                ({"target": ">= 0.8", "figure": 1, "bound": 2, "ratio": 0.79}, "missed"),
                ({"target": "<= 10", "figure": 9}, "met"),
                ({"target": "<= 10", "figure": 11}, "missed"),
                ({"target": "<= 10", "skipped": "no GPU"}, ""),
                ({"figure": 1}, "")):
            self.assertEqual(bench_report.verdict_of(result), verdict, result)

    def test_what_is_no_report_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            page = pathlib.Path(scratch) / "page.html"
            for text in ("{", "{}", "[1]", '{"scenario": "l2", "machine": {}, "results": [{}]}'):
                source = pathlib.Path(scratch) / "x.json"
                source.write_text(text)
                done = subprocess.run([sys.executable, ROOT / "tools" / "bench_report.py", source,
                                       "--out", page], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1, text)
                self.assertIn("not a report", done.stderr)
                self.assertFalse(page.exists())


if __name__ == "__main__":
    unittest.main()
