"""The examples of deploy/ with a Redis: they are whole, and real servers run with what they say."""

import os
import re
import shutil
import signal
import subprocess
import tomllib

import unittest
import yaml

import support
from deploy_support import DEPLOY, DeployChecks
from redis_test import RedisTestCase
from support import WAIT_S


def comment_of(text: str) -> str:
    """The lines of the comment that a file begins with."""
    lines = text.splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line[1:].removeprefix(" ") for line in lines[:end])


class DeployRedisTest(RedisTestCase, DeployChecks):

    def settings_of(self, command: list[str], acl_path: str, acl) -> dict[str, str]:
        """The settings that a container's command gives its redis-server."""
        self.assertEqual(command[0], "redis-server")
        settings = {name.removeprefix("--"): value
                    for name, value in zip(command[1::2], command[2::2], strict=True)}
        self.assertEqual(settings["aclfile"], acl_path)
        return settings | {"aclfile": str(acl)}

    def run_with(self, text: str, settings: dict[str, str], host: str, password) -> None:
        """A server with the level 2 of this configuration, before a Redis with these settings."""
        redis = self.redis(settings=settings)
        level2 = tomllib.loads(text)["l2"]
        of_redis = level2.pop("redis")
        self.assertEqual(of_redis.pop("nodes"), [f"{host}:6379"])
        of_redis["password_file"] = str(password)
        more = "".join(f'{name} = "{value}"\n' for name, value in of_redis.items())
        server = self.start(redis, more, kind=level2.pop("kind"),
                            level2="".join(f'{name} = "{value}"\n'
                                           for name, value in level2.items()))
        self.await_hits(server, self.all_keys)
        self.set_version(server, self.all_keys, 2)
        self.await_hits(server, self.all_keys, 2)
        self.assertEqual(self.metric(server, "hps_redis_failures_total"), 0)

    def test_the_rights_are_those_of_the_documentation(self) -> None:
        rights = (DEPLOY / "docker" / "redis.rights").read_text().strip()
        self.assertIn(rights, (support.ROOT / "docs" / "redis.md").read_text())

    def test_compose(self) -> None:
        text = (DEPLOY / "docker" / "compose-redis.yaml").read_text()
        compose = yaml.safe_load(text)
        for service in compose["services"].values():
            self.assertLessEqual(set(service["networks"]), set(compose["networks"]) | {"default"})
            self.assertLessEqual(set(service["secrets"]), set(compose["secrets"]))
        for volume in compose["services"]["hps"]["volumes"]:
            if volume.startswith("./"):
                self.assertTrue((DEPLOY / "docker" / volume.split(":")[0]).exists(), volume)
        config = (DEPLOY / "docker" / "hps-redis.toml").read_text()
        self.printed_config(config)
        password = tomllib.loads(config)["l2"]["redis"]["password_file"]
        self.assertEqual(password, "/run/secrets/redis_password")
        # The files are made as the comment says.
        made = self.directory / "made"
        made.mkdir()
        shutil.copy(DEPLOY / "docker" / "redis.rights", made)
        commands = re.findall(r"^ +((?:openssl|printf|chmod) .*)$", comment_of(text),
                              flags=re.MULTILINE)
        self.assertEqual(len(commands), 3)
        # The files are for the users of the containers alone.
        self.assertIn("chmod 400 redis.password redis.acl", commands)
        dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
        owner = re.search(r"^USER (\d+)$", dockerfile, flags=re.MULTILINE)[1]
        self.assertIn(f"chown {owner} redis.password", comment_of(text))
        self.assertRegex(comment_of(text), r"chown 999 redis\.acl")
        subprocess.run(["sh", "-ec", "\n".join(commands)], cwd=made, timeout=60, check=True)
        files = {name: made / secret["file"] for name, secret in compose["secrets"].items()}
        settings = self.settings_of(compose["services"]["redis"]["command"],
                                    "/run/secrets/redis_acl", files["redis_acl"])
        self.run_with(config, settings, "redis", files["redis_password"])

    def test_kubernetes(self) -> None:
        text = (DEPLOY / "kubernetes" / "redis.yaml").read_text()
        made = {one["kind"]: one for one in yaml.safe_load_all(text)}
        pod = made["Deployment"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self.check_mounts(pod)
        self.check_pod(pod)
        labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
        for selector in (made["Service"]["spec"]["selector"],
                         made["Deployment"]["spec"]["selector"]["matchLabels"],
                         made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]):
            self.assertEqual(selector, labels)
        hps = {one["kind"]: one for one in yaml.safe_load_all(
            (DEPLOY / "kubernetes" / "hps.yaml").read_text())}
        allowed = made["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["podSelector"]
        self.assertEqual(allowed["matchLabels"],
                         hps["StatefulSet"]["spec"]["template"]["metadata"]["labels"])
        # It replaces the ConfigMap of hps.yaml: what differs is level 2.
        self.assertEqual(made["ConfigMap"]["metadata"], hps["ConfigMap"]["metadata"])
        config = made["ConfigMap"]["data"]["hps.toml"]
        self.printed_config(config)
        with_redis = tomllib.loads(config)
        without = tomllib.loads(hps["ConfigMap"]["data"]["hps.toml"])
        level2 = with_redis.pop("l2")
        self.assertEqual(level2["bytes_max"], without.pop("l2")["bytes_max"])
        self.assertEqual(with_redis, without)
        # The secrets are made as the comment says, and are where the pods look for them.
        comment = comment_of(text)
        key = re.search(r"--from-literal=(redis_\w+)=\$PASSWORD", comment)[1]
        mounts = hps["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        token = next(mount["mountPath"] for mount in mounts if mount["name"] == "token")
        self.assertEqual(level2["redis"]["password_file"], f"{token}/{key}")
        rights = (DEPLOY / "docker" / "redis.rights").read_text().strip()
        acl = re.search(r'--from-literal=acl="([^"]*)"', comment)[1]
        acl = "\n".join(line.strip() for line in acl.splitlines())
        files = {name: self.directory / name for name in ("acl", "password")}
        files["acl"].write_text(acl.replace("$PASSWORD", "secret").replace("RIGHTS", rights) + "\n")
        files["password"].touch(0o640)
        files["password"].write_text("secret\n")
        settings = self.settings_of(container["command"] + container["args"],
                                    "/run/secrets/redis/acl", files["acl"])
        self.run_with(config, settings, made["Service"]["metadata"]["name"], files["password"])
        self.check_liveness(container["livenessProbe"], settings)

    def check_liveness(self, probe: dict, settings: dict[str, str]) -> None:
        """Passes before a Redis that answers, and not before one that only takes connections."""
        redis = self.redis(settings=settings)
        host, port = redis.addresses[0].rsplit(":", 1)
        program, option, command = probe["exec"]["command"]
        command = command.replace("-p 6379", f"-h {host} -p {port}")

        def passes(timeout_s: float) -> bool:
            with subprocess.Popen([program, option, command], start_new_session=True) as process:
                try:
                    return process.wait(timeout_s) == 0
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    return False

        self.assertTrue(passes(WAIT_S))
        redis.pause(0)
        self.assertFalse(passes(probe["timeoutSeconds"]))


if __name__ == "__main__":
    unittest.main()
