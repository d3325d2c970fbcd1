#!/usr/bin/env python3
"""Runs the steps of deploy/docker/Dockerfile in clean Debian roots, without Docker.

    tools/image_check.py [--ccache DIR] [--keep]

Needs root, `debootstrap` and Debian's packages and PyPI. Makes a minimal Debian 12 for each stage,
runs its instructions there as Docker would, imports a small store and starts the image's command as
the image's user, and asks its health check until it passes. Exit status 0 only if it did. Takes as
long as a build without a cache (some 15 minutes on two cores); `--ccache` lends the build a folder
of ccache's.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
SUITE = {"debian:12-slim": "bookworm"}
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MIRROR = "http://deb.debian.org/debian"
HEALTHY_S = 60  # for the server to come up


@dataclasses.dataclass
class Stage:
    """The instructions below one FROM, in order, and what they set."""

    base: str
    name: str
    instructions: list[tuple[str, str]]


def read_stages(text: str) -> list[Stage]:
    """Reads the instructions that the Dockerfile uses; an unknown one is an error of the caller."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    stages = []
    for instruction in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if not instruction.strip():
            continue
        word, argument = instruction.strip().split(maxsplit=1)
        if word == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(Stage(base, name, []))
        else:
            stages[-1].instructions.append((word, argument))
    return stages


class Image:
    """A root directory that a stage's instructions change."""

    def __init__(self, root: pathlib.Path, others: dict[str, "Image"], ccache: str | None):
        self.root = root
        self.others = others
        self.ccache = ccache
        self.folder = "/"
        self.user = "0"
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.health = ""

    def begin(self, base: str) -> None:
        clean = self.root.parent / SUITE[base]
        if not clean.exists():
            subprocess.run(["debootstrap", "--variant=minbase", SUITE[base], str(clean), MIRROR],
                           check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cp", "-a", str(clean), str(self.root)], check=True)
        # The network of this machine: its names, and whom it trusts (a company's proxy, say).
        shutil.copy("/etc/resolv.conf", self.root / "etc" / "resolv.conf")
        shutil.copy(CERTIFICATES, self.root / "certificates")
        (self.root / "ccache").mkdir()

    def enter(self, command: list[str]) -> list[str]:
        """`command`, run in the root, in a mount and process space of its own."""
        mounts = f"mount -t proc proc {self.root}/proc && mount --rbind /dev {self.root}/dev"
        if self.ccache:
            mounts += f" && mount --bind {shlex.quote(self.ccache)} {self.root}/ccache"
        inside = shlex.join(["env", "-i", *self.environment(), "setpriv", f"--reuid={self.user}",
                             "--clear-groups", "env", "-C", self.folder, *command])
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                f"{mounts} && exec chroot {self.root} {inside}"]

    def environment(self) -> list[str]:
        lent = {name: value for name, value in os.environ.items()
                if name.startswith("PIP_") or name.lower().endswith("_proxy")}
        lent |= {"PIP_CERT": "/certificates", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive",
                 "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        if self.ccache:
            lent |= {"CCACHE_DIR": "/ccache", "CCACHE_BASEDIR": "/src", "CCACHE_NOHASHDIR": "1"}
        return [f"{name}={value}" for name, value in lent.items()]

    def run(self, step: str) -> None:
        subprocess.run(self.enter(["sh", "-ec", step]), check=True)

    def copy(self, argument: str) -> None:
        source, target = re.sub(r"--from=\S+ ", "", argument).split()
        if stage := re.match(r"--from=(\S+) ", argument):
            origin = self.others[stage[1]].root / source.lstrip("/")
            shutil.copytree(origin, self.root / target.lstrip("/"), symlinks=True,
                            dirs_exist_ok=True)
            return
        # Git's files, which is what .dockerignore leaves of a checkout.
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                               capture_output=True).stdout
        packed = subprocess.run(["tar", "-c", "--null", "-T", "-"], cwd=ROOT, check=True,
                                input=names, capture_output=True).stdout
        folder = self.root / self.folder.lstrip("/")
        subprocess.run(["tar", "-x", "-C", str(folder), "--no-same-owner"], check=True,
                       input=packed)

    def follow(self, word: str, argument: str) -> None:
        print(f"image_check: {word} {argument[:100]}", flush=True)
        if word == "RUN":
            self.run(argument)
        elif word == "COPY":
            self.copy(argument)
        elif word == "WORKDIR":
            self.folder = argument
            (self.root / argument.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            self.user = argument
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(self, {"ENTRYPOINT": "entrypoint", "CMD": "command"}[word],
                    json.loads(argument))
        elif word == "HEALTHCHECK":
            self.health = argument.partition("CMD ")[2]
        elif word not in ("VOLUME", "EXPOSE", "STOPSIGNAL"):
            raise SystemExit(f"image_check: {DOCKERFILE}: {word} is not known here")

    def passes_its_health_check(self) -> bool:
        for step in ("generate --out tables --tables 2 --rows 1000 --dim 8",
                     "import --store store --model demo --from tables"):
            subprocess.run(self.enter([*self.entrypoint, *step.split()]), check=True,
                           stdout=subprocess.DEVNULL)
        command = self.enter([*self.entrypoint, *self.command])
        with subprocess.Popen(command) as server:
            try:
                end = time.monotonic() + HEALTHY_S
                while time.monotonic() < end and server.poll() is None:
                    probe = subprocess.run(self.enter(["sh", "-c", self.health]), check=False,
                                           stderr=subprocess.DEVNULL)
                    if probe.returncode == 0:
                        return True
                    time.sleep(0.5)
                return False
            finally:
                # unshare itself hears no signal but the one that would leave its child behind.
                children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children")
                for child in children.read_text(encoding="ascii").split():
                    os.kill(int(child), signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ccache", help="a folder of ccache's to build with")
    parser.add_argument("--keep", action="store_true", help="keep the roots, and say where")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hps_image_", dir=ROOT / "build"))
    images: dict[str, Image] = {}
    with contextlib.ExitStack() as stack:
        if arguments.keep:
            print(f"image_check: roots in {folder}")
        else:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for number, stage in enumerate(read_stages(DOCKERFILE.read_text())):
            image = Image(folder / str(number), images, arguments.ccache)
            images[stage.name or str(number)] = image
            image.begin(stage.base)
            for word, argument in stage.instructions:
                image.follow(word, argument)
        healthy = image.passes_its_health_check()
    print("image_check: the server in the image is " + ("healthy" if healthy else "NOT healthy"))
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
