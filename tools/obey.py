"""What a program does that starts servers for a test, and that the test tells what to do."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

# Of servers that do not do what they are told; AssertionError: a wait in vain.
FAILURES = (RuntimeError, AssertionError, subprocess.SubprocessError, OSError)


def end_all(processes: Iterable[subprocess.Popen | None], wait_s: float) -> None:
    for process in processes:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(wait_s)


def answer(actions: dict[str, Callable[[int], Any]], line: str) -> str:
    """Does what a line such as "kill 0" says; returns "done" or "failed: why"."""
    command, _, index = line.strip().partition(" ")
    if command not in actions or not index.isdigit():
        return f"failed: unknown command '{line.strip()}'"
    try:
        actions[command](int(index))
    except FAILURES as error:
        return _failure(error)
    return "done"


def obey(make: Callable[[], Any], commands: list[str], ready: Callable[[Any], str]) -> int:
    """Starts servers, prints a line that begins with "ready", and obeys one command per line of
    standard input, until its end. Returns the exit status.

    make: the servers, as a context manager that stops them at its end.
    commands: names of methods of the servers, each of which takes the number of a server.
    ready: what the first line says of the servers.
    """
    try:
        servers = make()
    except FAILURES as error:
        print(_failure(error), flush=True)
        return 1
    actions = {command: getattr(servers, command) for command in commands}
    with servers, contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        print(f"ready {ready(servers)}", flush=True)
        for line in sys.stdin:
            print(answer(actions, line), flush=True)
    return 0


def _failure(error: Exception) -> str:
    return "failed: " + " ".join(str(error).split())
