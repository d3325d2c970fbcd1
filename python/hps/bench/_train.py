"""Forward, backward and update of embedding tables, against PyTorch and FBGEMM.

26 tables of dim 32, one key a bag, batch 4,096, keys of a power law (1.05) over a million. Peers
take turns with hps in one process of one thread, so that what disturbs one disturbs the other; a
figure is the median of the rounds. Ranks take turns with one process, and the best rounds count.
The peers' tables are static arrays, and their keys row numbers; hps has dynamic tables of 64-bit
keys. All of them have had every key before.
"""

import dataclasses
import datetime
import importlib.util
import multiprocessing
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

import hps.train as ht
from hps.bench import _train_device
from hps.bench._fbgemm import fbgemm_tables
from hps.bench._train_cases import chosen

TABLES, DIM, BATCH, KEYS, ALPHA = 26, 32, 4096, 1_000_000, 1.05
BATCHES, ROUNDS, STEPS = 16, 7, 8
RANK_ROUNDS = 25
PARAMS = {"tables": TABLES, "dim": DIM, "batch": BATCH, "keys": KEYS, "alpha": ALPHA}


def make_batches(seed: int = 0) -> list[list[torch.Tensor]]:
    random = np.random.default_rng(seed)
    weights = np.cumsum(1 / np.arange(1, KEYS + 1)**ALPHA)
    return [[torch.from_numpy(np.searchsorted(weights, random.random(BATCH) * weights[-1]))
             for _ in range(TABLES)] for _ in range(BATCHES)]


class HpsPeer:
    def __init__(self, optimizer, placement: str = "auto", share_memory: bool = True) -> None:
        self.embed = ht.EmbeddingCollection(
            [ht.Table(f"t{i}", DIM, optimizer=optimizer, placement=placement)
             for i in range(TABLES)], share_memory=share_memory)

    def step(self, keys, gradients) -> None:
        out = self.embed({f"t{i}": k for i, k in enumerate(keys)})
        torch.autograd.backward(list(out.values()), gradients)


class TorchPeer:
    def __init__(self, make_optimizer) -> None:
        self.bags = [torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", sparse=True)
                     for _ in range(TABLES)]
        self.optimizer = make_optimizer([bag.weight for bag in self.bags])
        self.offsets = torch.arange(BATCH)

    def step(self, keys, gradients) -> None:
        out = [bag(k, self.offsets) for bag, k in zip(self.bags, keys)]
        self.optimizer.zero_grad()
        torch.autograd.backward(out, gradients)
        self.optimizer.step()


class FbgemmPeer:
    """FBGEMM's table-batched kernels; it takes the keys of all tables as one array."""

    def __init__(self, optimizer: str) -> None:
        self.tables = fbgemm_tables([KEYS] * TABLES, DIM, optimizer, torch.device("cpu"))
        self.offsets = torch.arange(TABLES * BATCH + 1)

    def step(self, keys, gradients) -> None:
        self.tables(torch.cat(keys), self.offsets).backward(torch.cat(gradients, 1))


def compare(peers: dict, batches, gradients) -> dict[str, list[float]]:
    """Rows per second of each peer, one figure a round."""
    found = {name: [] for name in peers}
    for peer in peers.values():
        for keys in batches:
            peer.step(keys, gradients)
    for number in range(ROUNDS):
        for name, peer in peers.items():
            part = [batches[(number * STEPS + i) % BATCHES] for i in range(STEPS)]
            began = time.perf_counter()
            for keys in part:
                peer.step(keys, gradients)
            found[name].append(STEPS * TABLES * BATCH / (time.perf_counter() - began))
    return found


def result(name: str, own: list[float], peer: list[float], target: str, best: bool = False,
           **params: object) -> dict:
    middle = max if best else statistics.median
    figure, bound = middle(own), middle(peer)
    return {"name": name, "params": PARAMS | params, "unit": "rows/s", "figure": figure,
            "bound": bound, "ratio": figure / bound, "target": target, "runs": len(own),
            "range": [min(own), max(own)], "bound_range": [min(peer), max(peer)]}


@dataclasses.dataclass
class Case:
    """An optimizer, and those of the peers that have it."""

    name: str
    own: Callable
    torch: Callable | None = None
    fbgemm: str | None = None
    fbgemm_target: str = ">= 1"


CASES = [Case("SGD", ht.SGD, lambda rows: torch.optim.SGD(rows, lr=0.01), "EXACT_SGD"),
         Case("Adam", ht.Adam, torch.optim.SparseAdam),  # FBGEMM has none on the CPU
         Case("AdaGrad", ht.Adagrad, torch.optim.Adagrad, "EXACT_ADAGRAD"),
         Case("row-wise AdaGrad", ht.RowwiseAdagrad, None, "EXACT_ROWWISE_ADAGRAD", ">= 2")]


def one_rank(show, cases: list[Case]) -> list[dict]:
    batches, results = make_batches(), []
    gradients = [torch.rand(BATCH, DIM) for _ in range(TABLES)]
    for case in cases:
        peers = {"hps": HpsPeer(case.own())}
        if case.torch:
            peers["torch"] = TorchPeer(case.torch)
        if case.fbgemm and importlib.util.find_spec("fbgemm_gpu"):
            peers["fbgemm"] = FbgemmPeer(case.fbgemm)
        found = compare(peers, batches, gradients)
        if "torch" in found:
            results.append(show(result(f"{case.name} over EmbeddingBag(sparse=True)", found["hps"],
                                       found["torch"], ">= 2",
                                       against=f"torch {torch.__version__}")))
        if "fbgemm" in found:
            results.append(show(result(f"{case.name} over FBGEMM", found["hps"], found["fbgemm"],
                                       case.fbgemm_target)))
        del peers
    return results


def rate(seconds: list[float]) -> float:
    """Rows per second of processes that made a round at the same time."""
    return len(seconds) * STEPS * TABLES * BATCH / max(seconds)


def tell(pipes: list, what: str) -> list:
    for pipe in pipes:
        pipe.send(what)
    return [pipe.recv() for pipe in pipes]


class _Ranks:
    """Processes that make rounds of steps when they are told to."""

    def __init__(self, count: int, directory: str, placement: str, share_memory: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.count, self.figures = count, []
        self.pipes, self.processes = [], []
        for rank in range(count):
            own, other = context.Pipe()
            process = context.Process(target=_rank, args=(
                rank, count, f"file://{directory}/{count}{placement}{share_memory}", placement,
                share_memory, other))
            process.start()
            self.pipes.append(own)
            self.processes.append(process)
        self.tell("start")

    def tell(self, what: str) -> list:
        return tell(self.pipes, what)

    def round(self) -> None:
        self.figures.append(rate(self.tell("round")))

    def end(self) -> None:
        self.tell("end")
        for process in self.processes:
            process.join()


def _rank(rank: int, rank_count: int, meeting: str, placement: str, share_memory: bool,
          pipe) -> None:
    torch.set_num_threads(1)
    if rank_count > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=rank_count)
    batches = make_batches(rank)
    peer = HpsPeer(ht.SGD(), placement=placement, share_memory=share_memory)
    gradients = [torch.rand(BATCH, DIM) for _ in range(TABLES)]
    while (command := pipe.recv()) != "end":
        if command == "exchange":
            pipe.send(_exchange_seconds(rank_count))
            continue
        part = batches[:STEPS] if command == "round" else batches + batches
        if rank_count > 1:
            dist.barrier()
        began = time.perf_counter()
        for keys in part:
            peer.step(keys, gradients)
        pipe.send(time.perf_counter() - began)
    if rank_count > 1:
        dist.destroy_process_group()
    pipe.send(0)


def _exchange_seconds(rank_count: int) -> float:
    """What the group needs to carry the rows and the gradients of a step, and nothing else: the
    best of some tries."""
    rows = round(statistics.mean(sum(len(torch.unique(k)) for k in keys)
                                 for keys in make_batches()[:4]))
    sent = torch.rand(rows // rank_count * DIM * (rank_count - 1))
    received, best = torch.empty_like(sent), float("inf")
    sizes = [0 if rank == dist.get_rank() else sent.numel() // (rank_count - 1)
             for rank in range(rank_count)]
    for _ in range(ROUNDS * STEPS):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(2):
            dist.all_to_all_single(received, sent, sizes, sizes)
        best = min(best, time.perf_counter() - began)
    return best


RANK_CASES = [("2 ranks", "auto", True), ("2 ranks, distributed", "distributed", True),
              ("2 ranks, distributed, over Gloo alone", "distributed", False)]


def ranks(show) -> list[dict]:
    """The best rounds: what disturbs one of two processes holds both up."""
    apart: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        one, other = (_Ranks(1, directory, "auto", True) for _ in range(2))
        many = [_Ranks(2, directory, placement, shared) for _, placement, shared in RANK_CASES]
        for _ in range(RANK_ROUNDS):
            for group in (one, *many):
                group.round()
            apart.append(rate(tell([*one.pipes, *other.pipes], "round")))
        seconds = max(many[-1].tell("exchange"))
        for group in (one, other, *many):
            group.end()
    results = []
    for (name, placement, shared), group in zip(RANK_CASES, many):
        found = result(f"SGD on {name}, over 1", group.figures, one.figures,
                       ">= 1.4" if placement == "auto" else "none", best=True, ranks=2,
                       placement=placement, shared_memory=shared)
        results.append(show(found))
    results.append(show(result("2 processes that share nothing, over 1", apart, one.figures,
                               "none", best=True)))
    # The exchange without any work, beside half of the work of one process.
    rows = TABLES * BATCH
    bound = [2 * rows / (seconds + rows / figure) for figure in one.figures]
    results.append(show(result("Gloo's exchange, and no other cost, over 1", bound, one.figures,
                               "none", best=True, ranks=2, exchange_ms=seconds * 1e3)))
    return results


def machine() -> dict:
    cpu = platform.processor()
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=False).stdout.strip()
    return {"cpu": cpu, "gpu": "", "commit": commit or "unknown",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


DEVICES = ["cpu", "cuda"]
RANKS = "ranks"


def names(device: str) -> list[str]:
    """Of the parts that can be measured alone."""
    return [case.name for case in CASES] + [RANKS] if device == "cpu" else _train_device.NAMES


def line_of(found: dict) -> str:
    """The line that reports a result."""
    start = f"{found['name']:75}"
    if "skipped" in found:
        return f"{start} not measured: {found['skipped']}"
    divisor, unit = (1e6, "M ") if found["figure"] >= 1e6 else (1, "")
    text = f"{start} {found['figure'] / divisor:8.2f} {unit}{found['unit']}"
    if "bound" in found:
        text += f", bound {found['bound'] / divisor:8.2f}, ratio {found['ratio']:.2f}"
    return f"{text} (target {found['target']})"


def run(quiet: bool, device: str = "cpu", only: list[str] | None = None) -> dict:
    """`only`: names of parts; see `chosen`."""
    torch.set_num_threads(1)

    def show(found: dict) -> dict:
        if not quiet:
            print(line_of(found), flush=True)
        return found

    found, parts = machine(), chosen(names(device), only)
    if device == "cpu":
        results = one_rank(show, [case for case in CASES if case.name in parts])
        if RANKS in parts:
            results += ranks(show)
    else:
        found["gpu"] = torch.cuda.get_device_name()
        results = _train_device.run(show, parts)
    return {"scenario": "train", "machine": found, "results": results}
