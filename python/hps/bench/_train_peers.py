"""Keys of embedding tables on a GPU, hps and its peers, and how long their steps take."""

import contextlib
from collections.abc import Callable

import torch

import hps.train as ht
from hps.bench._fbgemm import fbgemm_tables
from hps.bench._train_cases import CRITEO, DIM, Case, Shape

BATCHES, ROUNDS = 6, 5
FILL = 1 << 21  # keys of a call that makes rows
GRADIENT = 1e-3
_MULTIPLIER = -7046029254386353131  # odd: different numbers give different keys


def hashed(numbers: torch.Tensor) -> torch.Tensor:
    """Keys of hps."""
    return numbers * _MULTIPLIER + 99


class Data:
    """Row numbers of each table [tables, batch * keys a bag], and the keys of hps for them."""

    def __init__(self, device: torch.device, sizes: list[int]) -> None:
        self.device, self.sizes = device, sizes
        self.bases = torch.tensor([sum(sizes[:i]) for i in range(len(sizes))], device=device)
        self._unique: dict[Shape, list[int]] = {}

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
        return hashed(self.numbers(rows))

    def unique(self, shape: Shape) -> list[int]:
        """How many different rows each batch has."""
        if shape not in self._unique:
            self._unique[shape] = [torch.unique(self.numbers(self.draw(shape, seed))).numel()
                                   for seed in range(BATCHES)]
        return self._unique[shape]


def backward(out: torch.Tensor, gradient: torch.Tensor) -> None:
    """Runs the backward pass. Refuses a gradient of another type than the output's: PyTorch would
    convert it, and the figure would have the time of that."""
    if out.dtype != gradient.dtype:
        raise TypeError(f"outputs are {out.dtype}, their gradients {gradient.dtype}")
    out.backward(gradient)


class Peer:
    def can(self, shape: Shape) -> bool:  # noqa: ARG002, of one peer
        return True


class HpsPeer(Peer):
    """`fill`: how many keys of a call make rows, until every key of `data` has one."""

    def __init__(self, data: Data, case: Case, fill: int = FILL) -> None:
        self.names = [f"t{i}" for i in range(len(data.sizes))]
        self.embed = ht.EmbeddingCollection(
            [ht.Table(name, DIM, optimizer=case.own(), dtype=case.rows) for name in self.names],
            device=data.device)
        self.type = case.gradient_type
        for number, (name, size) in enumerate(zip(self.names, data.sizes)):
            for begin in range(0, size, fill):
                rows = torch.arange(begin, min(begin + fill, size), device=data.device)
                self.embed({name: hashed(rows + data.bases[number])})

    def prepare(self, shape: Shape, data: Data, rows: torch.Tensor) -> ht.Keys:
        offsets = None if shape.hotness == 1 else torch.arange(
            0, rows.numel() + 1, shape.hotness, device=data.device)
        return ht.Keys(self.names, data.keys(rows).view(-1), offsets)

    def step(self, keys: ht.Keys, gradient: torch.Tensor) -> None:
        types = (contextlib.nullcontext() if self.type is torch.float32 else
                 torch.autocast(gradient.device.type, dtype=self.type))
        with types:
            out = self.embed(keys).tensor
        backward(out, gradient)


class TorchPeer(Peer):
    """All tables as one EmbeddingBag."""

    def can(self, shape: Shape) -> bool:
        """PyTorch 2.11 reads beyond a sparse gradient of 2^31 values or more."""
        return shape.keys * DIM < 2**31

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
        backward(out, gradient.view(out.shape))
        self.optimizer.step()


class FbgemmPeer(Peer):
    """FBGEMM's table-batched kernels."""

    def __init__(self, data: Data, case: Case) -> None:
        self.tables = fbgemm_tables(data.sizes, DIM, case.fbgemm, data.device, learning_rate=1e-3,
                                    rows=case.fbgemm_rows, outputs=case.outputs)

    def prepare(self, shape: Shape, data: Data, rows: torch.Tensor) -> tuple:
        count = rows.numel()
        return rows.view(-1), torch.arange(0, count + 1, shape.hotness, device=data.device)

    def step(self, keys: tuple, gradient: torch.Tensor) -> None:
        backward(self.tables(*keys), gradient)


def timed(work: Callable) -> float:
    """Seconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0]


def gradient_of(shape: Shape, case: Case, device: torch.device) -> torch.Tensor:
    """That of all outputs, with the type that they have."""
    values = torch.randn(shape.batch, len(CRITEO) * DIM, device=device) * GRADIENT
    return values.to(case.gradient_type)


def seconds_of(peer, shape: Shape, case: Case, data: Data) -> list[float]:
    """Of a step, one figure a round."""
    gradient = gradient_of(shape, case, data.device)
    keys = [peer.prepare(shape, data, data.draw(shape, seed)) for seed in range(BATCHES)]
    work = [timed(lambda: [peer.step(each, gradient) for each in keys]) / BATCHES
            for _ in range(ROUNDS + 1)]
    return work[1:]
