"""`hps bench serve --quick`: what it counts adds up, and what it leaves out it says."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
NOT_SENT = ("not_sent_no_connection", "not_sent_generator_late")
ANSWERS = ("in_time", "past_deadline", "refused", "late", "failed", "unanswered")
CODED = ("refused", "late", "failed")


class BenchServeTest(unittest.TestCase):

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="hps_bench_serve_")
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def run_quick(self) -> list[dict]:
        out = self.directory / "out.json"
        done = subprocess.run(
            [str(HPS), "bench", "serve", "--quick", "--json", "--directory",
             str(self.directory / "scratch"), "--out", str(out)],
            capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), json.loads(out.read_text()))
        return json.loads(done.stdout)["results"]

    def check_counts(self, row: dict) -> None:
        counts = row["measured"]
        self.assertEqual(counts["offered"], counts["sent"] + sum(counts[n] for n in NOT_SENT))
        self.assertEqual(counts["sent"], sum(counts[name] for name in ANSWERS))
        codes = [value for name, value in counts.items() if name.startswith("code_")]
        self.assertEqual(sum(codes), sum(counts[name] for name in CODED))
        self.assertEqual(row.get("runs", 0), counts["in_time"] + counts["past_deadline"])
        self.assertLessEqual(counts["connections"], 2048)
        self.assertGreater(counts["offered"], 0)
        shares = [share for share, _ in row.get("latency_us", [])]
        self.assertEqual(shares, sorted(shares))

    def check_goodput(self, row: dict, loads: list[dict]) -> None:
        self.assertIn("target", row)
        [judged] = [load for load in loads if load["params"] == row["params"]]
        self.assertEqual(row["bound"], judged["bound"], "the capacity of the same rounds")
        self.assertEqual(row["runs"], 9)
        self.assertGreater(row["bound"], 0)
        self.assertGreater(judged["measured"]["offered"],
                           5 * max(load["measured"]["offered"] for load in loads
                                   if load["params"]["protocol"] == row["params"]["protocol"]
                                   and load is not judged))

    def test_every_part_has_its_rows(self) -> None:
        results = self.run_quick()
        protocols = {row["params"]["protocol"] for row in results if row["name"] == "closed_loop"}
        self.assertIn("http", protocols)
        by_name: dict[str, list[dict]] = {}
        for row in results:
            by_name.setdefault(row["name"], []).append(row)
        for name, count in {"latency_added": 1, "closed_loop": 3, "capacity": 1, "open_loop": 8,
                            "overload_goodput": 1, "overload_p99": 1, "overload_memory": 1,
                            "many_requests_memory": 1}.items():
            self.assertEqual(len(by_name[name]), count * len(protocols), name)
        for row in by_name["open_loop"]:
            with self.subTest(row["params"]):
                self.check_counts(row)
        for row in by_name["overload_goodput"]:
            self.check_goodput(row, by_name["open_loop"])
        for row in by_name["many_requests_memory"]:
            self.assertEqual(row["runs"], int(row["params"]["requests"]))
        self.assertIn("--quick", by_name["triton"][0]["skipped"])
        redis = by_name["redis_mget"][0]
        self.assertTrue("ratio" in redis or "bootstrap" in redis["skipped"], redis)


if __name__ == "__main__":
    unittest.main()
