"""The alerts of deploy/prometheus: promtool makes each fire, and a healthy server fires none."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import support
from deploy_support import DEPLOY

RULES = DEPLOY / "prometheus" / "hps_alerts.yml"
MINUTES = 60  # of recorded samples
PERIOD_S = 30  # between two
SERVER = {"instance": "a", "job": "hps"}
QUEUE = {"topic": "hps_et.m.t", "partition": "0"}
GIB = 1 << 30
DAY_S = 24 * 3600


def for_ever(value: float) -> str:
    return f"{value}x{MINUTES * 60 // PERIOD_S}"


def growing(per_second: float) -> str:
    return f"0+{per_second * PERIOD_S}x{MINUTES * 60 // PERIOD_S}"


# Of a healthy server with every part: name -> (labels, values in promtool's notation).
HEALTHY = {
    "up": [({}, for_ever(1))],
    "hps_ready": [({}, for_ever(1))],
    "hps_draining": [({}, for_ever(0))],
    "hps_model_ready": [({"model": "m"}, for_ever(1))],
    "hps_tier_up": [({"tier": tier}, for_ever(1)) for tier in ("l1", "l2", "l3")],
    "hps_tier_errors_total": [({"tier": "l3", "code": "UNKNOWN"}, for_ever(0))],
    "hps_lookup_keys_total": [({"table": "m/t", "status": "default_degraded"}, for_ever(0)),
                              ({"table": "m/t", "status": "hit_l2"}, growing(1000))],
    "hps_requests_refused_total": [({"reason": reason}, for_ever(0))
                                   for reason in ("capacity", "connections")],
    "hps_deadline_exceeded_total": [({"stage": "queue"}, for_ever(0))],
    "hps_lookup_seconds_bucket": [({"model": "m", "stage": "total", "le": bound}, growing(100))
                                  for bound in ("0.01", "1", "+Inf")],
    "hps_store_free_bytes": [({}, for_ever(100 * GIB))],
    "hps_store_free_bytes_min": [({}, for_ever(GIB))],
    "hps_store_writable": [({}, for_ever(1))],
    "hps_row_checksum_failures_total": [({"tier": "l3"}, for_ever(0))],
    "hps_store_background_errors_total": [({}, for_ever(0))],
    "hps_auth_failures_total": [({}, for_ever(0))],
    "hps_tls_certificate_not_after_seconds": [({}, for_ever(15 * DAY_S))],
    "process_open_fds": [({}, for_ever(100))],
    "process_max_fds": [({}, for_ever(1000))],
    "hps_update_up": [({}, for_ever(1))],
    "hps_update_lag_seconds": [(QUEUE, for_ever(2))],
    "hps_update_parked_total": [({"reason": "checksum"}, for_ever(7))],
    "hps_update_paused": [({"reason": "disk_full"}, for_ever(0))],
    "hps_update_missing_topics": [({}, for_ever(0))],
    "hps_recovery_unverified": [({}, for_ever(0))],
    "hps_shared_lag_records": [(QUEUE, for_ever(300))],
}
# What differs from it when an alert fires, and the labels of the alert beside the server's (None:
# it has no server).
FIRING = {
    "HpsDown": ({"up": [({}, for_ever(0))]}, {}),
    "HpsAbsent": ({"up": []}, None),
    # In three of four minutes there is an answer, so the server never seems to be down.
    "HpsScrapesFail": ({"up": [({}, "1x5 0x1 " * (MINUTES // 4))]}, {}),
    "HpsNotReady": ({"hps_ready": [({}, for_ever(0))]}, {}),
    "HpsModelNotServed": ({"hps_model_ready": [({"model": "m"}, for_ever(0))]}, {"model": "m"}),
    "HpsTierDown": ({"hps_tier_up": [({"tier": "l2"}, for_ever(0))]}, {"tier": "l2"}),
    "HpsTierErrors": (
        {"hps_tier_errors_total": [({"tier": "l3", "code": "UNKNOWN"}, growing(0.2))]},
        {"tier": "l3", "code": "UNKNOWN"}),
    "HpsDegradedAnswers": (
        {"hps_lookup_keys_total": [({"table": "m/t", "status": "default_degraded"}, growing(2)),
                                   ({"table": "m/t", "status": "hit_l2"}, growing(1000))]},
        {"table": "m/t"}),
    "HpsRefusesRequests": (
        {"hps_requests_refused_total": [({"reason": "capacity"}, growing(2))]},
        {"reason": "capacity"}),
    "HpsRefusesConnections": (
        {"hps_requests_refused_total": [({"reason": "connections"}, growing(2))]},
        {"reason": "connections"}),
    "HpsDeadlinesExceeded": ({"hps_deadline_exceeded_total": [({"stage": "queue"}, growing(2))]},
                             {"stage": "queue"}),
    "HpsSlow": ({"hps_lookup_seconds_bucket": [
        ({"model": "m", "stage": "total", "le": bound}, growing(rate))
        for bound, rate in (("0.01", 60), ("1", 100), ("+Inf", 100))]}, {"model": "m"}),
    "HpsDiskFillsUp": ({"hps_store_free_bytes": [({}, for_ever(3 * GIB))]}, {}),
    "HpsStoreNotWritable": ({"hps_store_writable": [({}, for_ever(0))]}, {}),
    "HpsDamagedRows": ({"hps_row_checksum_failures_total": [({"tier": "l3"}, growing(0.1))]},
                       {"tier": "l3"}),
    "HpsDiskErrors": ({"hps_store_background_errors_total": [({}, growing(0.1))]}, {}),
    "HpsWrongTokens": ({"hps_auth_failures_total": [({}, growing(2))]}, {}),
    "HpsCertificateExpires": (
        {"hps_tls_certificate_not_after_seconds": [({}, for_ever(14 * DAY_S))]}, {}),
    "HpsManyOpenFiles": ({"process_open_fds": [({}, for_ever(900))]}, {}),
    "HpsUpdateStreamDown": ({"hps_update_up": [({}, for_ever(0))]}, {}),
    "HpsUpdateLag": ({"hps_update_lag_seconds": [(QUEUE, for_ever(400))]},
                     {"topic": QUEUE["topic"]}),
    "HpsUpdateTableStale": ({"hps_update_table_stale": [({"table": "m/t"}, for_ever(1))]},
                            {"table": "m/t"}),
    "HpsUpdateParked": ({"hps_update_parked_total": [({"reason": "checksum"}, growing(0.1))]},
                        {"reason": "checksum"}),
    "HpsUpdatePaused": ({"hps_update_paused": [({"reason": "disk_full"}, for_ever(1))]},
                        {"reason": "disk_full"}),
    "HpsUpdateTopicMissing": ({"hps_update_missing_topics": [({}, for_ever(2))]}, {}),
    "HpsUpdateUnverified": ({"hps_recovery_unverified": [({}, for_ever(1))]}, {}),
    "HpsSharedLevelBehind": ({"hps_shared_lag_records": [(QUEUE, for_ever(20000))]},
                             {"topic": QUEUE["topic"]}),
}


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"]
            for rule in group["rules"]]


def selector(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def series_of(samples: dict[str, list]) -> list[dict]:
    return [{"series": selector(name, SERVER | labels), "values": values}
            for name, all_of_it in samples.items() for labels, values in all_of_it]


def slug_of(heading: str) -> str:
    """The anchor of a heading in a page that GitHub or GitLab shows."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@unittest.skipUnless(shutil.which("promtool"), "there is no promtool")
class FiringTest(unittest.TestCase):

    def fired(self, tests: list[tuple[str, dict, dict[str, dict]]]) -> str:
        """What promtool finds wrong in that, under these samples, exactly these alerts with these
        labels fire at the end; empty if nothing. A test is (its name, samples, alerts)."""
        severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
        made = []
        for name, samples, alerts in tests:
            expected = [
                {"labels": selector("ALERTS", labels | {"alertname": alert, "alertstate": "firing",
                                                        "severity": severity[alert]}), "value": 1}
                for alert, labels in alerts.items()]
            made.append({"interval": f"{PERIOD_S}s", "name": name,
                         "input_series": series_of(samples), "promql_expr_test": [
                             {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{MINUTES - 1}m",
                              "exp_samples": expected}]})
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/alerts.json"  # JSON is YAML
            with open(file, "w", encoding="ascii") as out:
                json.dump({"rule_files": [str(RULES)], "evaluation_interval": f"{PERIOD_S}s",
                           "tests": made}, out)
            done = subprocess.run(["promtool", "test", "rules", file], timeout=support.WAIT_S,
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode == 0, "SUCCESS" in done.stdout, done.stdout + done.stderr)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def test_the_rules_are_whole(self) -> None:
        done = subprocess.run(["promtool", "check", "rules", str(RULES)], timeout=support.WAIT_S,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_healthy_server_fires_none(self) -> None:
        self.assertEqual(self.fired([("healthy", HEALTHY, {})]), "")
        # The check sees an alert that fires and is not expected.
        self.assertIn("HpsNotReady", self.fired(
            [("not ready", HEALTHY | FIRING["HpsNotReady"][0], {})]))

    def test_each_alert_fires_alone(self) -> None:
        self.assertEqual(set(FIRING), {rule["alert"] for rule in rules()})
        tests = []
        for alert, (changed, labels) in FIRING.items():
            aggregated = "by (" in next(rule["expr"] for rule in rules() if rule["alert"] == alert)
            of_server = {"instance": SERVER["instance"]} if aggregated else SERVER
            expected = {"job": SERVER["job"]} if labels is None else of_server | labels
            tests.append((alert, HEALTHY | changed, {alert: expected}))
        self.assertEqual(self.fired(tests), "")

    def test_a_dead_server_fires_though_its_series_have_ended(self) -> None:
        dead = {name: [(labels, "1x20 stale") for labels, _ in all_of_it]
                for name, all_of_it in HEALTHY.items()}
        dead["up"] = [({}, f"1x20 0x{MINUTES * 60 // PERIOD_S}")]
        self.assertEqual(self.fired([("dead", dead, {"HpsDown": SERVER})]), "")


class RunbookTest(unittest.TestCase):

    def test_every_alert_has_its_row_in_its_section(self) -> None:
        page = (support.ROOT / "docs" / "operations.md").read_text()
        sections = {slug_of(text.partition("\n")[0].strip("# ")): text
                    for text in re.split(r"^(?=#+ )", page, flags=re.MULTILINE)}
        rows = set()
        for rule in rules():
            with self.subTest(rule["alert"]):
                file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
                self.assertEqual(file, "docs/operations.md")
                self.assertRegex(sections[anchor], rf"(?m)^\| [^|]*`{rule['alert']}`")
        for row in re.findall(r"^\| (`Hps[^|]*) \|", page, flags=re.MULTILINE):
            rows |= set(re.findall(r"`(\w+)`", row))
        self.assertEqual(rows, {rule["alert"] for rule in rules()})

    def test_a_summary_names_only_labels_that_the_alert_has(self) -> None:
        for rule in rules():
            labels = set(SERVER) | set(FIRING[rule["alert"]][1] or {})
            used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
            self.assertLessEqual(used, labels, rule["alert"])

    def test_the_addresses_become_links_as_the_rules_say(self) -> None:
        command = re.search(r"^#   (sed .*)$", RULES.read_text(), flags=re.MULTILINE)[1]
        done = subprocess.run(["sh", "-ec", command], cwd=RULES.parent, timeout=support.WAIT_S,
                              capture_output=True, text=True, check=True)
        made = [rule for group in yaml.safe_load(done.stdout)["groups"] for rule in group["rules"]]
        for rule, link in zip(rules(), made, strict=True):
            self.assertEqual(link["annotations"]["runbook_url"], "https://git.example.com/hps/blob/"
                             f"main/{rule['annotations']['runbook_url']}")


if __name__ == "__main__":
    unittest.main()
