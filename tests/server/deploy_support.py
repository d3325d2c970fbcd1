"""What the tests of deploy/ share."""

import subprocess
import unittest

import support

DEPLOY = support.ROOT / "deploy"


class DeployChecks(unittest.TestCase):
    """Beside a ServerTestCase."""

    def printed_config(self, text: str) -> str:
        """The settings that the program itself reads from a configuration, which it accepts."""
        file = self.directory / "deployed.toml"
        file.write_text(text)
        done = subprocess.run([str(support.HPS), "serve", "--config", str(file), "--print-config"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_mounts(self, pod: dict, claims: tuple[str, ...] = ()) -> None:
        """The containers of a pod mount nothing but its volumes and these claims."""
        volumes = {volume["name"] for volume in pod["volumes"]} | set(claims)
        for container in pod["containers"] + pod.get("initContainers", []):
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            self.assertLessEqual(mounts, volumes)

    def check_pod(self, pod: dict) -> None:
        """Nothing in it may take a whole node, and its secrets are for its group alone."""
        for container in pod["containers"] + pod.get("initContainers", []):
            self.assertIn("memory", container["resources"]["limits"], container["name"])
            self.assertEqual(set(container["resources"]["requests"]), {"cpu", "memory"})
            probes = [container.get(kind) for kind in ("readinessProbe", "livenessProbe")]
            what = [{kind: probe.get(kind) for kind in ("exec", "httpGet", "tcpSocket")}
                    for probe in probes if probe]
            if what:
                self.assertNotEqual(what[0], what[1], "both probes see the same")
        for volume in pod["volumes"]:
            if "secret" in volume:
                self.assertEqual(volume["secret"]["defaultMode"], 0o440, volume["name"])
        self.assertEqual(pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"])
