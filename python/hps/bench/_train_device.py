"""Forward, backward and update of embedding tables on a GPU, against PyTorch, FBGEMM and a copy.

26 tables with the cardinalities of Criteo 1TB, each capped at 10 M, dim 128; keys of a power law;
every key has a row before. hps has dynamic tables of hashed 64-bit keys; the peers' tables are
static arrays, and their keys row numbers. Peers come one after the other in one process, because
the GPU has no memory for several. A figure is the median of some rounds of steps, between two CUDA
events. The cases are in _train_cases.py. Then come scenarios of hps alone (_train_scenarios.py).
"""

import gc
import importlib.util
import statistics
from collections.abc import Callable

import torch

from hps.bench._train_cases import (CASES, CRITEO, FBGEMM, ROWS_MAX, TORCH, Case, Shape, chosen,
                                    target_of)
from hps.bench._train_peers import Data, FbgemmPeer, HpsPeer, TorchPeer, seconds_of, timed
from hps.bench._train_scenarios import SCENARIOS

NAMES = [case.name for case in CASES] + list(SCENARIOS)


def copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written."""
    source = torch.randn(1 << 28, device=device)
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source)) for _ in range(12)]
    return 2 * source.numel() * source.element_size() / statistics.median(times[2:])


def floors(case: Case, shape: Shape, data: Data, rate: float) -> dict[str, list[float]]:
    """Seconds of each batch, by the names of the bounds."""
    moved = [case.floor_bytes(shape, unique) for unique in data.unique(shape)]
    return {name: [each[name] / rate for each in moved] for name in moved[0]}


def peers(case: Case, data: Data) -> dict[str, Callable]:
    """What makes each of them."""
    found: dict[str, Callable] = {"hps": lambda: HpsPeer(data, case)}
    if importlib.util.find_spec("fbgemm_gpu"):
        found[FBGEMM] = lambda: FbgemmPeer(data, case)
    if case.make_torch:
        found[TORCH] = lambda: TorchPeer(data, case.make_torch)
    return found


def seconds_of_shapes(make: Callable, case: Case, data: Data) -> dict[Shape, list[float]]:
    """Of the shapes that a peer can do."""
    peer = make()
    found = {shape: seconds_of(peer, shape, case, data) for shape in case.shapes if peer.can(shape)}
    del peer
    release()
    return found


def release() -> None:
    """Frees the GPU memory of deleted tensors and tables."""
    gc.collect()
    torch.cuda.empty_cache()


def result(case: Case, shape: Shape, own: list[float], bound: tuple[str, list[float]]) -> dict:
    """`own`: seconds of a step; `bound`: its name and seconds."""
    name, seconds = bound
    figure, other = statistics.median(own), statistics.median(seconds)
    return {"name": f"{case.name} over {name}, {shape}",
            "params": shape.params() | case.params() | {"step_us": figure * 1e6,
                                                        "bound_us": other * 1e6},
            "unit": "keys/s", "figure": shape.keys / figure, "bound": shape.keys / other,
            "ratio": other / figure, "target": target_of(case, shape, name), "runs": len(own),
            "range": [shape.keys / max(own), shape.keys / min(own)]}


def compare(case: Case, data: Data, rate: float, show: Callable) -> list[dict]:
    found = {name: seconds_of_shapes(make, case, data) for name, make in peers(case, data).items()}
    own, results = found.pop("hps"), []
    for shape, seconds in own.items():
        for bound in floors(case, shape, data, rate).items():
            results.append(show(result(case, shape, seconds, bound)))
    for name, of_peer in found.items():
        for shape, seconds in of_peer.items():
            results.append(show(result(case, shape, own[shape], (name, seconds))))
    return results


def run(show: Callable, only: list[str] | None = None) -> list[dict]:
    """`only`: names of cases and scenarios; see `chosen`."""
    names = chosen(NAMES, only)
    device = torch.device("cuda", torch.cuda.current_device())
    data = Data(device, [min(size, ROWS_MAX) for size in CRITEO])
    cases, results = [case for case in CASES if case.name in names], []
    rate = copy_rate(device) if cases else 0.
    for case in cases:
        results += compare(case, data, rate, show)
    for name, scenario in SCENARIOS.items():
        if name in names:
            results += [show(each) for each in scenario(data)]
            release()
    return results
