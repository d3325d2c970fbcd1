#!/usr/bin/env python3
"""hps inside Triton: a tritonserver with the backend libtriton_hps.so, an ensemble of it with a
model in Python, every answer checked; and perf_analyzer beside a backend that only copies rows.

    demo_triton.py BUILD     (build/cpu, with `hps` and the backend)

Exit status: 0 when every check held.
"""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools" / "triton_peer"))
import triton_peer  # noqa: E402

VENV = ROOT / ".venv-bench"
MODEL, ENSEMBLE = "m", "scores"
ERROR_MAX = 1e-5
SECONDS = 1.0
ROUNDS = 3  # of both servers in turn; the best of each counts, as the machine is shared
CONFIGS = {
    MODEL: """name: "m"
backend: "hps"
parameters { key: "config" value: { string_value: "CONFIGURATION" } }
""",
    "dense": """name: "dense"
backend: "python"
input { name: "rows" data_type: TYPE_FP32 dims: [ -1, 32 ] }
output { name: "score" data_type: TYPE_FP32 dims: [ -1 ] }
instance_group { count: 1 kind: KIND_CPU }
""",
    ENSEMBLE: """name: "scores"
platform: "ensemble"
input { name: "t0" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "score" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "m" model_version: -1
         input_map { key: "t0" value: "t0" } output_map { key: "t0" value: "rows" } }
  step { model_name: "dense" model_version: -1
         input_map { key: "rows" value: "rows" } output_map { key: "score" value: "score" } }
}
"""}


class Table:
    """The table as it was imported: the truth that answers are compared with."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.keys = np.fromfile(folder / "key", np.int64)
        rows = np.fromfile(folder / "emb_vector", np.float32)
        self.rows = rows.reshape(len(self.keys), -1)


def make_store(hps: pathlib.Path, work: pathlib.Path) -> Table:
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([hps, "generate", "--out", work / "tables", "--tables", "1", "--rows",
                    str(triton_peer.ROWS), "--dim", str(triton_peer.DIM)], **quiet)
    subprocess.run([hps, "import", "--store", work / "store", "--model", MODEL, "--from",
                    work / "tables"], **quiet)
    (work / "hps.toml").write_text(
        '[store]\npath = "store"\n[l2]\nbytes_max = "256MiB"\npreload = 1.0\n')
    return Table(work / "tables" / "t0")


def make_models(build: pathlib.Path, work: pathlib.Path) -> None:
    versions = {name: triton_peer.write_model(
        work, name, config.replace("CONFIGURATION", str(work / "hps.toml")))
        for name, config in CONFIGS.items()}
    triton_peer.write_python_model(versions["dense"], HERE / "dense_model.py",
                                   pathlib.Path(np.__file__).parent.parent)
    triton_peer.add_backends(VENV, work, build)


def expected_scores(rows: np.ndarray) -> np.ndarray:
    """What dense_model.py computes; it can't be imported outside of Triton."""
    first = np.cos(np.arange(rows.shape[1] * 16, dtype=np.float32)).reshape(-1, 16)
    second = np.sin(np.arange(16, dtype=np.float32))
    return 1 / (1 + np.exp(-(np.maximum(rows @ first, 0) @ second)))


class Checks:
    def __init__(self) -> None:
        self.all_held = True

    def check(self, what: str, holds: bool) -> None:
        self.all_held &= bool(holds)
        print(f"  {what}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)


def infer(client, module, model: str, inputs: dict, outputs: list[str]) -> list[np.ndarray]:
    answer = client.infer(model, triton_peer.tensors(module, inputs),
                          outputs=[module.InferRequestedOutput(name) for name in outputs])
    return [answer.as_numpy(name) for name in outputs]


def check_answers(addresses: dict, table: Table, checks: Checks) -> None:
    choose = np.random.default_rng(1)
    for module, address in ((http_client, addresses["http"]), (grpc_client, addresses["grpc"])):
        name = module.__name__.rsplit(".", 1)[-1]
        with contextlib.closing(module.InferenceServerClient(address)) as client:
            places = choose.integers(0, len(table.keys), 500)
            keys, rows = table.keys[places], table.rows[places]
            got, status = infer(client, module, MODEL, {"t0": keys}, ["t0", "t0.status"])
            checks.check(f"{name}: 500 rows by table, from level 2 or 3",
                         np.array_equal(got, rows) and set(status) <= {2, 3})
            counts = np.array([[500]], np.int32)
            got = infer(client, module, MODEL, {"KEYS": keys[None], "NUMKEYS": counts},
                        ["OUTPUT0"])[0]
            checks.check(f"{name}: 500 rows by KEYS and NUMKEYS",
                         np.array_equal(got, rows.reshape(-1)))
            got = infer(client, module, ENSEMBLE, {"t0": keys}, ["score"])[0]
            checks.check(f"{name}: 500 scores of the ensemble",
                         np.abs(got - expected_scores(rows)).max() <= ERROR_MAX)


def try_to_measure(analyzer: triton_peer.Analyzer, *arguments) -> dict | None:
    """A demo shows that answers are right; on a busy machine it may go without a figure."""
    try:
        return analyzer.measure(*arguments)
    except triton_peer.NoFigure as error:
        print(f"  no figure: {str(error).strip().splitlines()[-1]}", flush=True)
        return None


def compare_speed(work: pathlib.Path, ours: dict, ideal: dict, table: Table) -> None:
    analyzer = triton_peer.Analyzer(VENV, work, table.keys.tolist(), SECONDS)
    servers = {"hps, lookup": (ours, MODEL), "ideal, lookup": (ideal, MODEL),
               "hps + Python, ensemble": (ours, ENSEMBLE)}
    for protocol in ("http", "grpc"):
        for concurrency in (1, 4):
            best: dict[str, dict] = {}
            for _ in range(ROUNDS):
                for name, (addresses, model) in servers.items():
                    got = try_to_measure(analyzer, protocol, addresses[protocol], concurrency,
                                         model)
                    if got and (name not in best
                                or got["per_second"] > best[name]["per_second"]):
                        best[name] = got
            for name, got in best.items():
                print(f"  {protocol}, {concurrency} at a time, {name:23} "
                      f"{got['per_second']:9.0f} requests/s  p50 {got['p50']:7.0f} us", flush=True)
            if not {"hps, lookup", "ideal, lookup"} <= best.keys():
                continue
            ratio = best["hps, lookup"]["per_second"] / best["ideal, lookup"]["per_second"]
            print(f"    hps / ideal: {ratio:.2f} of its requests/s (target: 0.95)", flush=True)


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="hps_triton_") as name:
        work, peer = pathlib.Path(name), pathlib.Path(name) / "peer"
        peer.mkdir()
        print(f"1. a table of {triton_peer.ROWS} rows of dim {triton_peer.DIM}, imported; "
              "models: lookup by hps, a dense model in Python, their ensemble", flush=True)
        table = make_store(build / "bin" / "hps", work)
        make_models(build, work)
        with triton_peer.serve_triton(VENV, work) as (ours, process):
            print("2. Triton serves; asking", flush=True)
            check_answers(ours, table, checks)
            with triton_peer.triton(VENV, peer) as ideal:
                print(f"3. perf_analyzer, {triton_peer.KEYS} keys in a request; ideal: a backend "
                      "that copies rows of one array in memory", flush=True)
                compare_speed(work, ours, ideal, table)
        checks.check(f"4. Triton has stopped, exit status {process.returncode}",
                     process.returncode == 0)
    return 0 if checks.all_held else 1


if __name__ == "__main__":
    sys.exit(main())
