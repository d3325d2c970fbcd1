"""What lies in deploy/ and docs/ names only what a real server has."""

import json
import os
import re
import shutil
import subprocess
import time
import tomllib
import unittest

import yaml

import support
from deploy_support import DEPLOY, DeployChecks
from load import Load

NAME = re.compile(r"\b(?:hps|nv|process)_[a-z0-9_]+\b")
OF_PROMETHEUS = re.compile(r"\bup\{job=\"hps\"\}")  # its own, about the scrape
LABEL = re.compile(r"\b(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
AGGREGATION = re.compile(r"\b(?:by|on|ignoring)\s*\(([^)]*)\)")
OF_THE_SCRAPE = {"job", "instance"}  # labels that Prometheus adds
# Metrics that this server has not; tests/update/shared_test.py has a server with them.
OF_OTHERS = re.compile(r"\bhps_(?:shared|redis|tls|update|recovery)_(?!changes_total|seconds)")


def bytes_of(size: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)B?", size).groups()
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[unit]


class DeployTest(support.ServerTestCase, DeployChecks):

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        case = cls("test_every_alert_rule_finds_its_metrics")
        case.setUp()
        cls.addClassCleanup(case.doCleanups)
        server = case.serve_ready()
        with Load(server) as load:
            load.await_ok(20)
        cls.status, page = server.get("/metrics")
        cls.page = page.decode()
        cls.samples: dict[str, dict[str, set]] = {}  # name -> label -> values
        for line in cls.page.splitlines():
            if line.startswith("#"):
                continue
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            known = cls.samples.setdefault(name, {})
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels or ""):
                known.setdefault(label, set()).add(value)

    def check(self, expression: str, where: str) -> None:
        names = set(NAME.findall(expression))
        self.assertTrue(names, where)
        self.assertEqual(names - set(self.samples), set(), f"{where}: no such metric")
        labels = set().union(*(self.samples[name] for name in names)) | OF_THE_SCRAPE
        for label, _ in LABEL.findall(expression):
            self.assertIn(label, labels, f"{where}: no such label")
        for group in AGGREGATION.findall(expression):
            for label in filter(None, map(str.strip, group.split(","))):
                self.assertIn(label, labels, f"{where}: no such label")
        for name in names:
            for selector in re.findall(rf"\b{name}\{{([^}}]*)\}}", expression):
                for label, value in LABEL.findall(selector):
                    if label in OF_THE_SCRAPE or "$" in value or value == "default_degraded":
                        continue
                    self.assertIn(value, self.samples[name].get(label, ()), f"{where}: {label}")

    def test_every_alert_rule_finds_its_metrics(self) -> None:
        rules = [rule for group in yaml.safe_load(
            (DEPLOY / "prometheus" / "hps_alerts.yml").read_text())["groups"]
                 for rule in group["rules"]]
        self.assertGreater(len(rules), 10)
        for rule in rules:
            if OF_OTHERS.search(rule["expr"]) or OF_PROMETHEUS.search(rule["expr"]):
                continue
            with self.subTest(rule["alert"]):
                self.check(rule["expr"], rule["alert"])

    def test_every_grafana_panel_finds_its_metrics(self) -> None:
        dashboard = json.loads((DEPLOY / "grafana" / "hps.json").read_text())
        places = set()
        for panel in dashboard["panels"]:
            self.assertTrue(panel["targets"], panel["title"])
            for target in panel["targets"]:
                if OF_OTHERS.search(target["expr"]):
                    continue
                with self.subTest(panel["title"]):
                    self.check(target["expr"], panel["title"])
            grid = panel["gridPos"]
            cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                     for y in range(grid["y"], grid["y"] + grid["h"])}
            self.assertFalse(cells & places, f"{panel['title']} lies over another panel")
            self.assertLessEqual(grid["x"] + grid["w"], 24)
            places |= cells

    def test_the_check_finds_what_is_wrong(self) -> None:
        for wrong in ("hps_nothing_total > 0", "sum by (flavour) (hps_ready)",
                      'hps_tier_up{tier="l9"}', 'rate(hps_ready{colour="red"}[5m])'):
            with self.assertRaises(AssertionError):
                self.check(wrong, "planted")

    def test_the_documentation_lists_every_metric(self) -> None:
        text = (support.ROOT / "docs" / "metrics.md").read_text()
        # `a`, `..._b` stands for a with its last word replaced, or b added to it.
        named = set(NAME.findall(text))
        for base, short in re.findall(r"`(\w+)`, `\.\.\.(_\w+)`", text):
            named.add(base + short)
        for short in re.findall(r"`\.\.\.(_\w+_total)`", text):
            named.add("hps_level" + short)
        families = set(re.findall(r"^# TYPE (\w+)", self.page, flags=re.MULTILINE))
        self.assertEqual(families - named, set(), "not in docs/metrics.md")

    def test_the_manifest_is_whole(self) -> None:
        objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "hps.yaml").read_text()))
        kinds = {made["kind"]: made for made in objects}
        pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self.check_pod(pod)
        for spread in pod["topologySpreadConstraints"]:
            self.assertEqual(spread["labelSelector"], kinds["StatefulSet"]["spec"]["selector"])
            self.assertEqual(spread["topologyKey"], "kubernetes.io/hostname")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertIn(container[probe]["httpGet"]["path"],
                          ("/v2/health/live", "/v2/health/ready"))
        claims = kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]
        self.check_mounts(pod, tuple(claim["metadata"]["name"] for claim in claims))
        self.printed_config(kinds["ConfigMap"]["data"]["hps.toml"])
        self.printed_config((DEPLOY / "docker" / "hps.toml").read_text())
        drain = tomllib.loads(kinds["ConfigMap"]["data"]["hps.toml"])["server"]["drain_timeout"]
        self.assertGreater(pod["terminationGracePeriodSeconds"], int(drain.removesuffix("s")) + 5)

    def test_probes_pass_with_tls_as_the_comments_say(self) -> None:
        """The exec probe of the manifest, and the image's health check in its three forms."""
        manifest = (DEPLOY / "kubernetes" / "hps.yaml").read_text()
        snippet = re.search(r"^ +# +exec:\n(?: +#  .*\n)+", manifest, flags=re.MULTILINE)[0]
        probe = yaml.safe_load(re.sub(r"^ +# {3}", "", snippet, flags=re.MULTILINE))
        dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
        check = re.search(r"^ +CMD (curl .*)$", dockerfile, flags=re.MULTILINE)[1]
        secure = re.search(r'-e HPS_HEALTH="(.*)"$', dockerfile, flags=re.MULTILINE)[1]
        certificate, key = self.make_certificate("server")
        own = self.make_certificate("probe")
        tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
        plain = self.serve_ready()
        self.assert_passes(check, plain)
        self.assert_passes(check.replace("ready", "nothing"), plain, wanted=False)
        plain.stop()
        with_tls = self.serve(security=tls)
        self.assert_passes(check, with_tls, secure)
        self.assert_passes(check, with_tls, wanted=False)
        with_tls.stop()
        strict = self.serve(security=tls + f'tls_client_ca = "{own[0]}"\n')
        shown = " ".join(("--cert", str(own[0]), "--key", str(own[1])))
        self.assert_passes(check, strict, secure.replace("https:", f"{shown} https:"))
        self.assert_passes(check, strict, secure, wanted=False)
        command = " ".join(probe["exec"]["command"])
        self.assert_passes(command.replace("/run/secrets/hps", str(self.directory)), strict)

    def assert_passes(self, command: str, server, variable: str = "", wanted: bool = True) -> None:
        """The probe comes to have this result, with HPS_HEALTH set to `variable`."""
        command, variable = (text.replace("127.0.0.1:8000", server.http)
                             for text in (command, variable))
        environment = os.environ | ({"HPS_HEALTH": variable} if variable else {})
        end = time.monotonic() + support.WAIT_S
        while (subprocess.run(["sh", "-c", command], env=environment, timeout=support.WAIT_S,
                              check=False, stderr=subprocess.DEVNULL).returncode == 0) != wanted:
            self.assertLess(time.monotonic(), end, f"{command} with {variable}")
            time.sleep(0.05)

    def settings_of(self, text: str) -> dict[str, int]:
        """The sizes of a configuration, with the program's own defaults, in bytes."""
        printed = self.printed_config(text)
        return {name: bytes_of(size) for name, size in
                re.findall(r'^([a-z0-9_.]+) = "(\d+\w+)"', printed, flags=re.MULTILINE)
                if size.endswith("iB")}

    def test_what_is_deployed_has_the_memory_that_the_documentation_asks_for(self) -> None:
        """Level 2 of a re-imported model is there twice while it switches."""
        page = " ".join((support.ROOT / "docs" / "operations.md").read_text().split())
        rule = re.search(r"Memory is at most `\[l2\] bytes_max` \+ `\[store\] cache_bytes` \+ "
                         r"`\[store\] write_buffer_bytes` \+ ([\d.]+) × `\[server\] "
                         r"bytes_in_flight_max` \+ about (\d+) GiB", page)
        factor, rest_gib = float(rule[1]), int(rule[2])
        manifest = (DEPLOY / "kubernetes" / "hps.yaml").read_text()
        unit = (DEPLOY / "systemd" / "hps.service").read_text()
        for text in (manifest, unit):  # what they say of it is that rule
            told = " ".join(text.replace("#", " ").split())
            self.assertIn(f"{factor} times [server] bytes_in_flight_max + {rest_gib} GiB", told)
        kinds = {made["kind"]: made for made in yaml.safe_load_all(manifest)}
        size = self.settings_of(kinds["ConfigMap"]["data"]["hps.toml"])
        needed = (2 * size["l2.bytes_max"] + size["store.cache_bytes"]
                  + size["store.write_buffer_bytes"]
                  + factor * size["server.bytes_in_flight_max"] + (rest_gib << 30))
        resources = kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["resources"]
        for granted in (resources["requests"], resources["limits"]):
            self.assertGreaterEqual(bytes_of(granted["memory"]), needed)

    def test_the_first_import_is_made_until_it_is_whole(self) -> None:
        """What the init container of the manifest does, in other folders."""
        objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "hps.yaml").read_text()))
        pod = next(made for made in objects if made["kind"] == "StatefulSet")["spec"]["template"]
        container = pod["spec"]["initContainers"][0]
        store, tables = self.directory / "first", self.directory / "first_tables"
        command = container["args"][0].replace("/var/lib/hps/store", str(store)).replace(
            "/tables", str(tables))

        def run() -> int:
            return subprocess.run(
                [*container["command"], command], timeout=120, check=False, capture_output=True,
                env=os.environ | {"PATH": f"{support.HPS.parent}:{os.environ['PATH']}"}).returncode

        store.mkdir()  # as an import that was killed leaves it
        self.assertNotEqual(run(), 0)  # there are no tables
        subprocess.run([str(support.HPS), "generate", "--out", str(tables), "--tables", "2",
                        "--rows", "100", "--dim", "4"], check=True, timeout=60, capture_output=True)
        self.assertEqual(run(), 0)
        inspect = [str(support.HPS), "inspect", "--store", str(store), "--json"]
        first = json.loads(subprocess.check_output(inspect, timeout=60))["tables"]
        self.assertEqual([table["name"] for table in first], ["dlrm/t0", "dlrm/t1"])
        shutil.rmtree(tables)
        self.assertEqual(run(), 0)  # a pod that starts again: nothing is imported
        self.assertEqual(json.loads(subprocess.check_output(inspect, timeout=60))["tables"], first)

    def test_the_unit_starts_what_there_is(self) -> None:
        unit = (DEPLOY / "systemd" / "hps.service").read_text()
        command = re.search(r"^ExecStart=\S+/hps (\w+)", unit, flags=re.MULTILINE)[1]
        self.assertEqual(subprocess.run([str(support.HPS), command, "--help"], timeout=60,
                                        capture_output=True, check=False).returncode, 0)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
    def test_the_unit_is_one_for_systemd(self) -> None:
        unit = (DEPLOY / "systemd" / "hps.service").read_text()
        file = self.directory / "hps.service"
        for text, found in ((unit, ""), (unit.replace("RestartSec", "RestartSecs"), "RestartSecs")):
            file.write_text(text.replace("/usr/local/bin/hps", str(support.HPS)))
            done = subprocess.run(["systemd-analyze", "verify", str(file)], timeout=60, text=True,
                                  capture_output=True, check=False)
            # It tells of other units of the machine, too.
            told = [line for line in done.stderr.splitlines() if "hps.service" in line]
            self.assertEqual(bool(told), bool(found), told)
            self.assertIn(found, "".join(told))


if __name__ == "__main__":
    unittest.main()
