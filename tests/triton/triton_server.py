"""A tritonserver with the backend of this build, for tests: explicit model control, free ports."""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
import support  # noqa: E402
from waiting import WAIT_S, await_true  # noqa: E402

BACKEND = support.HPS.parent.parent / "triton" / "hps"
VENV = ROOT / ".venv-bench"
CONFIG = """name: "{name}"
backend: "hps"
parameters {{ key: "config" value: {{ string_value: "{config}" }} }}
"""
STARTS_MAX = 5  # another process may take a free port first


def program() -> pathlib.Path | None:
    found = [path for path in VENV.glob("lib/python3*/site-packages/pytriton/tritonserver/bin/*")
             if path.name == "tritonserver"]
    return found[0] if found else None


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Triton:
    """Models are folders of DIRECTORY/models; backends those of DIRECTORY/backends."""

    def __init__(self, directory: pathlib.Path, *arguments: str, load: tuple = ()) -> None:
        self.directory, self.models = directory, directory / "models"
        self.models.mkdir(exist_ok=True)
        (directory / "backends").mkdir(exist_ok=True)
        link = directory / "backends" / "hps"
        if not link.exists():
            link.symlink_to(BACKEND)
        self.log = directory / "triton.log"
        for _ in range(STARTS_MAX):
            self.start(arguments, load)
            await_true(lambda: self.is_ready() or self.process.poll() is not None,
                       lambda: "ready Triton:\n" + self.log.read_text())
            if self.process.poll() is None:
                return
            if "in use" not in self.log.read_text():
                break
        raise AssertionError("Triton has ended:\n" + self.log.read_text())

    def start(self, arguments: tuple, load: tuple) -> None:
        ports = dict(zip(("http", "grpc", "metrics"), free_ports(3)))
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in ports.values())
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*support.ENDS_WITH_US, str(program()), f"--model-repository={self.models}",
                 f"--backend-directory={self.directory / 'backends'}",
                 "--model-control-mode=explicit", "--exit-timeout-secs=60",
                 *(f"--{name}-address=127.0.0.1" for name in ports),
                 *(f"--{name}-port={port}" for name, port in ports.items()),
                 *(f"--load-model={name}" for name in load), *arguments],
                stdout=log, stderr=log)

    def get(self, path: str, address: str = "", **more) -> tuple[int, str]:
        request = urllib.request.Request(f"http://{address or self.http}{path}", **more)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get("/v2/health/ready")[0] == 200
        return False

    def post(self, path: str) -> tuple[int, str]:
        return self.get(path, method="POST", data=b"")

    def load(self, model: str) -> tuple[int, str]:
        return self.post(f"/v2/repository/models/{model}/load")

    def unload(self, model: str) -> None:
        """Returns when every load of the model has ended: Triton answers before. A load that a
        later one replaced ends in the background, so a line that tells of an end may be its line;
        until it has ended, the store stays open and the model counts as served."""
        def ended() -> bool:
            log = self.log.read_text()
            return (log.count(f"successfully unloaded '{model}'")
                    == log.count(f"successfully loaded '{model}'"))

        assert self.post(f"/v2/repository/models/{model}/unload")[0] == 200
        await_true(ended, lambda: "unloading:\n" + self.log.read_text(), process=self.process)

    def add_model(self, name: str, config: pathlib.Path | str, more: str = "") -> None:
        (self.models / name / "1").mkdir(parents=True, exist_ok=True)
        (self.models / name / "config.pbtxt").write_text(
            CONFIG.format(name=name, config=config) + more)

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(timeout=WAIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def copy_python_backend(directory: pathlib.Path) -> None:
    """Triton's own backend of models in Python, beside ours."""
    triton = program().parent.parent
    target = directory / "backends" / "python"
    shutil.copytree(triton / "backends" / "python", target)
    # A link: its libraries lie beside the original.
    (target / "triton_python_backend_stub").symlink_to(
        triton / "python_backend_stubs" / "3.11" / "triton_python_backend_stub")
