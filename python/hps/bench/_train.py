"""Forward, backward and update of embedding tables, against PyTorch and FBGEMM.

26 tables of dim 32, one key a bag, batch 4,096, keys of a power law (1.05) over a million. Peers
take turns with hps in one process of one thread, so that what disturbs one disturbs the other; a
figure is the median of the rounds. The peers' tables are static arrays, and their keys row
numbers; hps has dynamic tables of 64-bit keys. All of them have had every key before.
"""

import contextlib
import datetime
import importlib.util
import io
import logging
import multiprocessing
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist

import hps.train as ht

TABLES, DIM, BATCH, KEYS, ALPHA = 26, 32, 4096, 1_000_000, 1.05
BATCHES, ROUNDS, STEPS = 16, 7, 8
PARAMS = {"tables": TABLES, "dim": DIM, "batch": BATCH, "keys": KEYS, "alpha": ALPHA}


def make_batches(seed: int = 0) -> list[list[torch.Tensor]]:
    random = np.random.default_rng(seed)
    weights = np.cumsum(1 / np.arange(1, KEYS + 1)**ALPHA)
    return [[torch.from_numpy(np.searchsorted(weights, random.random(BATCH) * weights[-1]))
             for _ in range(TABLES)] for _ in range(BATCHES)]


class HpsPeer:
    def __init__(self, optimizer) -> None:
        self.embed = ht.EmbeddingCollection(
            [ht.Table(f"t{i}", DIM, optimizer=optimizer) for i in range(TABLES)])

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
        logging.disable(logging.WARNING)
        with contextlib.redirect_stdout(io.StringIO()):
            from fbgemm_gpu.split_embedding_configs import EmbOptimType
            from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
            from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
                ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
        logging.disable(logging.NOTSET)
        place = (EmbeddingLocation.HOST, ComputeDevice.CPU)
        self.tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(KEYS, DIM, *place)] * TABLES, optimizer=getattr(EmbOptimType, optimizer))
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


def result(name: str, own: list[float], peer: list[float], target: str, **params: object) -> dict:
    figure, bound = statistics.median(own), statistics.median(peer)
    return {"name": name, "params": PARAMS | params, "unit": "rows/s", "figure": figure,
            "bound": bound, "ratio": figure / bound, "target": target, "runs": len(own),
            "range": [min(own), max(own)], "bound_range": [min(peer), max(peer)]}


def one_rank(show) -> list[dict]:
    batches, results = make_batches(), []
    gradients = [torch.rand(BATCH, DIM) for _ in range(TABLES)]
    cases = [("SGD", lambda: ht.SGD(), lambda rows: torch.optim.SGD(rows, lr=0.01), "EXACT_SGD"),
             ("Adam", lambda: ht.Adam(), torch.optim.SparseAdam, None),
             ("AdaGrad", lambda: ht.Adagrad(), torch.optim.Adagrad, "EXACT_ADAGRAD")]
    for name, own, make_optimizer, fbgemm in cases:
        peers = {"hps": HpsPeer(own()), "torch": TorchPeer(make_optimizer)}
        if fbgemm and importlib.util.find_spec("fbgemm_gpu"):  # it has no Adam on the CPU
            peers["fbgemm"] = FbgemmPeer(fbgemm)
        found = compare(peers, batches, gradients)
        results.append(show(result(f"{name} over EmbeddingBag(sparse=True)", found["hps"],
                                   found["torch"], ">= 2",
                                   against=f"torch {torch.__version__}")))
        if "fbgemm" in found:
            results.append(show(result(f"{name} over FBGEMM", found["hps"], found["fbgemm"],
                                       ">= 1")))
        del peers
    return results


def _rank(rank: int, rank_count: int, directory: str, queue) -> None:
    torch.set_num_threads(1)
    if rank_count > 1:
        dist.init_process_group("gloo", init_method=f"file://{directory}/{rank_count}", rank=rank,
                                world_size=rank_count)
    batches, peer = make_batches(rank), HpsPeer(ht.SGD())
    gradients = [torch.rand(BATCH, DIM) for _ in range(TABLES)]
    for keys in batches:
        peer.step(keys, gradients)
    figures = []
    for _ in range(ROUNDS):
        if rank_count > 1:
            dist.barrier()
        began = time.perf_counter()
        for keys in batches[:STEPS]:
            peer.step(keys, gradients)
        if rank_count > 1:
            dist.barrier()
        figures.append(rank_count * STEPS * TABLES * BATCH / (time.perf_counter() - began))
    if rank == 0:
        queue.put(figures)
    if rank_count > 1:
        dist.destroy_process_group()


def ranks(show) -> list[dict]:
    context, figures = multiprocessing.get_context("spawn"), {}
    with tempfile.TemporaryDirectory() as directory:
        for count in (1, 2):
            queue = context.SimpleQueue()
            processes = [context.Process(target=_rank, args=(rank, count, directory, queue))
                         for rank in range(count)]
            for process in processes:
                process.start()
            figures[count] = queue.get()
            for process in processes:
                process.join()
    return [show(result("SGD on 2 ranks over 1", figures[2], figures[1], ">= 1.4", ranks=2))]


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


def run(quiet: bool) -> dict:
    torch.set_num_threads(1)

    def show(found: dict) -> dict:
        if not quiet:
            print(f"{found['name']:40} {found['figure'] / 1e6:6.2f} M rows/s, "
                  f"peer {found['bound'] / 1e6:6.2f}, ratio {found['ratio']:.2f} "
                  f"(target {found['target']})", flush=True)
        return found

    return {"scenario": "train", "machine": machine(), "results": one_rank(show) + ranks(show)}
