"""Forward, backward and update of embedding tables on a GPU, against PyTorch, FBGEMM and a copy.

26 tables with the cardinalities of Criteo 1TB, each capped at 10 M, dim 128; keys of a power law;
every key has a row before. hps has dynamic tables of hashed 64-bit keys; the peers' tables are
static arrays, and their keys row numbers. Peers come one after the other in one process, because
the GPU has no memory for several. A figure is the median of some rounds of steps, between two CUDA
events. The bound is the fewest bytes that a step must move, at the rate of a large copy in the same
run.
"""

import gc
import importlib.util
import statistics
from collections.abc import Callable

import torch

import hps.train as ht
from hps.bench._fbgemm import fbgemm_tables

CRITEO = [39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10,
          2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36]
ROWS_MAX = 10_000_000
DIM = 128
BATCHES, ROUNDS = 6, 5
FILL = 1 << 21
MULTIPLIER = -7046029254386353131  # odd: different numbers give different keys
GRADIENT = 1e-3
# Bytes of a row's state that are read and written, a sector at least: of each optimizer.
STATE_BYTES = {"SGD": 0, "row-wise AdaGrad": 64, "Adam": DIM * 16 + 64}


class Shape:
    def __init__(self, batch: int, hotness: int, alpha: float) -> None:
        self.batch, self.hotness, self.alpha = batch, hotness, alpha

    def params(self) -> dict:
        return {"tables": len(CRITEO), "dim": DIM, "batch": self.batch, "keys_a_bag": self.hotness,
                "alpha": self.alpha, "rows_max": ROWS_MAX}


SHAPES = [Shape(65536, 1, 1.05), Shape(65536, 1, 1.2), Shape(65536, 1, 1.5), Shape(8192, 1, 1.05),
          Shape(8192, 10, 1.05), Shape(65536, 10, 1.05)]


class Data:
    """Row numbers of each table [tables, batch * keys a bag], and the keys of hps for them."""

    def __init__(self, device: torch.device, sizes: list[int]) -> None:
        self.device, self.sizes = device, sizes
        self.bases = torch.tensor([sum(sizes[:i]) for i in range(len(sizes))], device=device)

    def draw(self, shape: Shape, seed: int) -> torch.Tensor:
        random = torch.Generator(self.device).manual_seed(seed)
        parts, power = [], 1 - shape.alpha
        for number, size in enumerate(self.sizes):
            u = torch.rand(shape.batch * shape.hotness, dtype=torch.float64, device=self.device,
                           generator=random)
            rank = ((1 + u * (size**power - 1))**(1 / power)).floor_().long() - 1
            parts.append((rank.clamp_(0, size - 1) * 2654435761 + 12345 * number) % size)
        return torch.stack(parts)

    def numbers(self, rows: torch.Tensor) -> torch.Tensor:
        """Of the rows of all tables together."""
        return rows + self.bases[:, None]

    def keys(self, rows: torch.Tensor) -> torch.Tensor:
        return self.numbers(rows) * MULTIPLIER + 99


def offsets_of(shape: Shape, data: Data) -> torch.Tensor | None:
    if shape.hotness == 1:
        return None
    count = shape.batch * shape.hotness * len(data.sizes)
    return torch.arange(0, count + 1, shape.hotness, device=data.device)


class Peer:
    def can(self, shape: Shape) -> bool:  # noqa: ARG002, of one peer
        return True


class HpsPeer(Peer):
    def __init__(self, data: Data, optimizer) -> None:
        self.names = [f"t{i}" for i in range(len(data.sizes))]
        self.embed = ht.EmbeddingCollection(
            [ht.Table(name, DIM, optimizer=optimizer) for name in self.names], device=data.device)
        for number, (name, size) in enumerate(zip(self.names, data.sizes)):
            for begin in range(0, size, FILL):
                rows = torch.arange(begin, min(begin + FILL, size), device=data.device)
                self.embed({name: (rows + data.bases[number]) * MULTIPLIER + 99})

    def prepare(self, shape: Shape, data: Data, rows: torch.Tensor) -> ht.Keys:
        return ht.Keys(self.names, data.keys(rows).view(-1), offsets_of(shape, data))

    def step(self, keys: ht.Keys, gradient: torch.Tensor) -> None:
        self.embed(keys).tensor.backward(gradient)


class TorchPeer(Peer):
    """All tables as one EmbeddingBag."""

    def can(self, shape: Shape) -> bool:
        """PyTorch 2.11 reads beyond a sparse gradient of 2^31 values or more."""
        return shape.batch * shape.hotness * len(CRITEO) * DIM < 2**31

    def __init__(self, data: Data, make_optimizer: Callable) -> None:
        self.bag = torch.nn.EmbeddingBag(1, DIM, mode="sum", sparse=True, device=data.device)
        self.bag.num_embeddings = sum(data.sizes)
        self.bag.weight = torch.nn.Parameter(
            torch.empty(sum(data.sizes), DIM, device=data.device).uniform_(-.01, .01))
        self.optimizer = make_optimizer([self.bag.weight])

    def prepare(self, shape: Shape, data: Data, rows: torch.Tensor) -> tuple:
        numbers = data.numbers(rows).view(-1)
        return numbers, torch.arange(0, numbers.numel(), shape.hotness, device=data.device)

    def step(self, keys: tuple, gradient: torch.Tensor) -> None:
        out = self.bag(*keys)
        self.optimizer.zero_grad()
        out.backward(gradient.view(out.shape))
        self.optimizer.step()


class FbgemmPeer(Peer):
    """FBGEMM's table-batched kernels."""

    def __init__(self, data: Data, optimizer: str) -> None:
        self.tables = fbgemm_tables(data.sizes, DIM, optimizer, data.device, learning_rate=1e-3)

    def prepare(self, shape: Shape, data: Data, rows: torch.Tensor) -> tuple:
        count = rows.numel()
        return rows.view(-1), torch.arange(0, count + 1, shape.hotness, device=data.device)

    def step(self, keys: tuple, gradient: torch.Tensor) -> None:
        self.tables(*keys).backward(gradient)


def copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written."""
    source = torch.randn(1 << 28, device=device)
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source)) for _ in range(12)]
    return 2 * source.numel() * source.element_size() / statistics.median(times[2:])


def timed(work: Callable) -> float:
    """Seconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def floor_bytes(shape: Shape, data: Data, rows: torch.Tensor, optimizer: str) -> float:
    """Of a step: keys, each different row once in the forward and twice in the update, outputs,
    gradients, the order of the keys, states."""
    keys, outputs = rows.numel(), shape.batch * len(data.sizes) * DIM * 4
    unique = torch.unique(data.numbers(rows)).numel()
    return keys * 12 + unique * (3 * DIM * 4 + STATE_BYTES[optimizer]) + 2 * outputs


def seconds_of(peer, shape: Shape, data: Data) -> list[float]:
    """Of a step, one figure a round."""
    gradient = torch.randn(shape.batch, len(data.sizes) * DIM, device=data.device) * GRADIENT
    keys = [peer.prepare(shape, data, data.draw(shape, seed)) for seed in range(BATCHES)]
    work = [timed(lambda: [peer.step(each, gradient) for each in keys]) / BATCHES
            for _ in range(ROUNDS + 1)]
    return work[1:]


class Case:
    """An optimizer, and how the peers call it."""

    def __init__(self, name: str, own: Callable, make_torch: Callable | None,
                 fbgemm: str) -> None:
        self.name, self.own, self.torch, self.fbgemm = name, own, make_torch, fbgemm

    def peers(self, data: Data) -> dict[str, Callable]:
        """What makes each of them."""
        found: dict[str, Callable] = {"hps": lambda: HpsPeer(data, self.own())}
        if importlib.util.find_spec("fbgemm_gpu"):
            found["FBGEMM"] = lambda: FbgemmPeer(data, self.fbgemm)
        if self.torch:
            found["torch"] = lambda: TorchPeer(data, self.torch)
        return found


CASES = [Case("row-wise AdaGrad", ht.RowwiseAdagrad, None, "EXACT_ROWWISE_ADAGRAD"),
         Case("SGD", ht.SGD, lambda rows: torch.optim.SGD(rows, lr=1e-3), "EXACT_SGD"),
         Case("Adam", ht.Adam, lambda rows: torch.optim.SparseAdam(rows, lr=1e-3), "ADAM")]


def result(name: str, shape: Shape, own: list[float], bound: list[float], target: str) -> dict:
    """`bound`: seconds of a peer, or of the fewest bytes."""
    figure, other = statistics.median(own), statistics.median(bound)
    keys = shape.batch * shape.hotness * len(CRITEO)
    return {"name": f"{name}, {shape.batch} x {shape.hotness}, {shape.alpha}",
            "params": shape.params() | {"step_us": figure * 1e6, "bound_us": other * 1e6},
            "unit": "keys/s", "figure": keys / figure, "bound": keys / other,
            "ratio": other / figure, "target": target, "runs": len(own),
            "range": [keys / max(own), keys / min(own)]}


def run(show: Callable) -> list[dict]:
    device = torch.device("cuda", torch.cuda.current_device())
    data = Data(device, [min(size, ROWS_MAX) for size in CRITEO])
    rate, results = copy_rate(device), []
    for case in CASES:
        found = {name: _all_shapes(make, data) for name, make in case.peers(data).items()}
        own = found.pop("hps")
        for shape, seconds in zip(SHAPES, own):
            floor = [floor_bytes(shape, data, data.draw(shape, seed), case.name) / rate
                     for seed in range(BATCHES)]
            results.append(show(result(f"{case.name} over the fewest bytes", shape, seconds, floor,
                                       ">= 0.5")))
        for name, of_peer in found.items():
            for shape, seconds, peer in zip(SHAPES, own, of_peer):
                if not peer:
                    continue
                results.append(show(result(f"{case.name} over {name}", shape, seconds, peer,
                                           "> 1")))
    return results


def _all_shapes(make: Callable, data: Data) -> list[list[float]]:
    peer = make()
    found = [seconds_of(peer, shape, data) if peer.can(shape) else [] for shape in SHAPES]
    del peer
    gc.collect()
    torch.cuda.empty_cache()
    return found
