"""deploy/prometheus/prometheus.yml: both of its jobs scrape what they are for."""

import contextlib
import json
import re
import shutil
import subprocess
import threading
import time
import unittest
import urllib.parse
import urllib.request

import yaml

import support
from deploy_support import DEPLOY

FILE = DEPLOY / "prometheus" / "prometheus.yml"
TOKEN = "the-token-of-prometheus"
MOUNTED = "/run/secrets/hps"


def variants() -> dict[str, str]:
    """The file as it is, and with the job in its comment in place of the other."""
    text = FILE.read_text()
    other = re.search(r"^  #- job_name(?:.*\n?)*", text, flags=re.MULTILINE)[0]
    first = re.search(r"^  - job_name(?:.+\n)*", text, flags=re.MULTILINE)[0]
    uncommented = re.sub(r"^  #", "  ", other, flags=re.MULTILINE)
    return {"static": text, "kubernetes": text.replace(other, "").replace(first, uncommented)}


def job_of(text: str) -> dict:
    job, = yaml.safe_load(text)["scrape_configs"]
    return job


class JobsTest(unittest.TestCase):

    def test_both_jobs_are_what_the_alerts_expect(self) -> None:
        alerts = (DEPLOY / "prometheus" / "hps_alerts.yml").read_text()
        for name, text in variants().items():
            job = job_of(text)
            self.assertEqual({job["job_name"]}, set(re.findall(r'job="(\w+)"', alerts)), name)
            self.assertTrue(job["authorization"]["credentials_file"].startswith(MOUNTED), name)
            for rules in yaml.safe_load(text)["rule_files"]:
                self.assertTrue((FILE.parent / rules).exists(), rules)
        self.assertNotIn("relabel_configs", job_of(variants()["static"]))
        self.assertNotIn("static_configs", job_of(variants()["kubernetes"]))


@unittest.skipUnless(shutil.which("promtool") and shutil.which("prometheus"),
                     "there is no Prometheus")
class PrometheusTest(support.ServerTestCase):

    def test_the_job_of_kubernetes_keeps_the_metrics_port_of_each_pod(self) -> None:
        """Debian's Prometheus cannot ask Kubernetes: the test writes down what it would answer."""
        objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "hps.yaml").read_text())
        services = {made["metadata"]["name"]: made["spec"]["ports"] for made in objects
                    if made["kind"] == "Service"}
        self.assertEqual(len(services), 2)
        found = [{"targets": [f"10.0.0.{pod}:{port['port']}"], "labels": {
            "__meta_kubernetes_service_name": service,
            "__meta_kubernetes_endpoint_port_name": port["name"],
            "__meta_kubernetes_pod_name": f"hps-{pod}"}}
                 for pod in (0, 1) for service, ports in services.items() for port in ports]
        config = yaml.safe_load(variants()["kubernetes"])
        job, = config["scrape_configs"]
        self.assertEqual(job.pop("kubernetes_sd_configs"), [{"role": "endpoints"}])
        job["static_configs"] = found
        job["authorization"]["credentials_file"] = str(self.write_token())
        config.pop("rule_files")
        file = self.directory / "kubernetes.yml"
        file.write_text(json.dumps(config))
        done = subprocess.run(
            ["promtool", "check", "service-discovery", "--timeout", "5s", str(file), "hps"],
            timeout=support.WAIT_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = [target["labels"] for target in json.loads(done.stdout) if target["labels"]]
        self.assertEqual({(labels["__address__"], labels["instance"], labels["job"])
                          for labels in kept},
                         {("10.0.0.0:8002", "hps-0", "hps"), ("10.0.0.1:8002", "hps-1", "hps")})

    def write_token(self):
        token = self.directory / "token"
        token.write_text(TOKEN)
        token.chmod(0o400)
        return token

    def run_prometheus(self, server, text: str) -> str:
        """Its address. It scrapes the server as this text says, but each second."""
        folder = self.directory / "prometheus"
        folder.mkdir()
        shutil.copy(FILE.parent / "hps_alerts.yml", folder)
        text = text.replace("127.0.0.1:8002", server.metrics).replace(MOUNTED, str(self.directory))
        (folder / FILE.name).write_text(text.replace("scrape_interval: 15s", "scrape_interval: 1s"))
        process = subprocess.Popen(
            [*support.ENDS_WITH_US, "prometheus", f"--config.file={folder / FILE.name}",
             f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait, support.WAIT_S)
        self.addCleanup(process.kill)
        told = []
        for line in process.stderr:
            told.append(line)
            if found := re.search(r'"Listening on" address=(\S+)', line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return found[1]
        raise AssertionError("".join(told))

    def ask(self, prometheus: str, path: str, **query) -> dict:
        url = f"http://{prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=support.WAIT_S) as answer:
            return json.load(answer)["data"]

    def await_ready(self, prometheus: str) -> None:
        """Until it knows that the server is ready; by then it has evaluated every rule."""
        end, found = time.monotonic() + support.WAIT_S, []
        while not found:
            if time.monotonic() > end:
                self.fail(str(self.targets(prometheus)))
            with contextlib.suppress(OSError):  # it answers 503 before it has begun
                found = self.ask(prometheus, "query", query='hps_ready{job="hps"} == 1')["result"]
            time.sleep(0.2)
        self.assertEqual([target["health"] for target in self.targets(prometheus)], ["up"])

    def targets(self, prometheus: str) -> list:
        return self.ask(prometheus, "targets")["activeTargets"]

    def test_the_static_job_scrapes_with_the_token(self) -> None:
        server = self.serve_ready(security=f'token_file = "{self.write_token()}"')
        prometheus = self.run_prometheus(server, FILE.read_text())
        self.await_ready(prometheus)
        rules = self.ask(prometheus, "rules")["groups"][0]["rules"]
        self.assertGreater(len(rules), 20)

    def test_the_static_job_scrapes_with_tls_and_client_certificates(self) -> None:
        text = FILE.read_text()
        lines = re.search(r"^#    scheme.*\n#    tls_config.*$", text, flags=re.MULTILINE)[0]
        lines = re.sub(r"^#", "", lines, flags=re.MULTILINE).replace(
            "}", ", cert_file: /run/secrets/hps/own.pem, key_file: /run/secrets/hps/own.key}")
        certificate, key = self.make_certificate("ca")
        own = self.make_certificate("own")
        server = self.serve(security=f'token_file = "{self.write_token()}"\n'
                            f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
                            f'tls_client_ca = "{own[0]}"')
        job = "    scrape_interval: 15s\n"
        prometheus = self.run_prometheus(server, text.replace(job, f"{job}{lines}\n", 1))
        self.await_ready(prometheus)


if __name__ == "__main__":
    unittest.main()
