"""The page of `hps bench --html`, made from every result of record."""

import json
import unittest
import xml.etree.ElementTree

import support

RESULTS = sorted((support.ROOT / "bench" / "results").glob("*.json"))


class BenchReportTest(support.CommandTestCase):

    def test_every_kept_report_has_a_page_that_loads_nothing(self) -> None:
        self.assertGreaterEqual(len(RESULTS), 3)
        page, out = self.directory / "page.html", self.directory / "out.json"
        for kept in RESULTS:
            with self.subTest(kept.name):
                report = json.loads(kept.read_text())
                printed = self.succeed("bench", report["scenario"], "--from", kept, "--html", page,
                                       "--out", out)
                self.assertEqual(printed, json.loads(out.read_text()))
                self.assertEqual(printed, report)
                root = xml.etree.ElementTree.parse(page).getroot()
                self.assertEqual(root.get("lang"), "en")
                rows = root.find("body/main").findall(".//tbody/tr")
                self.assertGreaterEqual(len(rows), len(report["results"]))
                self.assertIn(report["machine"]["commit"], page.read_text())
                for element in root.iter():
                    self.assertNotIn(element.tag, ("script", "link", "img", "iframe"))
                    self.assertNotIn("src", element.attrib)
                    self.assertNotIn("href", element.attrib)
                for figure in root.iter("figure"):
                    picture = figure.find("svg")
                    self.assertEqual(picture.get("role"), "img")
                    named = figure.find("figcaption").get("id")
                    self.assertEqual(picture.get("aria-labelledby"), named)
                identifiers = [e.get("id") for e in root.iter() if e.get("id")]
                self.assertEqual(len(identifiers), len(set(identifiers)))

    def test_what_is_no_report_of_the_scenario_is_refused(self) -> None:
        page = self.directory / "page.html"
        other = self.directory / "other.json"
        other.write_text(json.dumps({"scenario": "l3", "results": []}))
        broken = self.directory / "broken.json"
        broken.write_text("{")
        for source, status, code, parts in (
                (self.directory / "none.json", 1, "NOT_FOUND", ["none.json"]),
                (self.directory, 1, "INVALID_ARGUMENT", [self.directory, "Is a directory"]),
                (broken, 1, "INVALID_ARGUMENT", [broken, "no report"]),
                (other, 1, "INVALID_ARGUMENT", [other, "'l3'", "'l2'"])):
            self.fail_with(status, code, parts, "bench", "l2", "--from", source, "--html", page)
            self.assertFalse(page.exists())


if __name__ == "__main__":
    unittest.main()
