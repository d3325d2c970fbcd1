"""DLRM in PyTorch, and what the benchmarks that measure it beside hps have in common.

A module: bench_ctr_torch.py, bench_ctr_gpu_torch.py, bench_dense_torch.py, bench_dlrm_torch.py and
bench_triton.py import it. Those that run on another machine need this file beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch

CRITEO_ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
               27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
SMALL_TABLE_ROWS = 100_000
DENSE = 13  # numbers of a sample
ALPHA = 1.05
TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16,
         "bfloat16": torch.bfloat16}


def table_rows(scale: float) -> list[int]:
    """The rows of Criteo's tables, those of large tables scaled."""
    return [int(count * scale) if count > SMALL_TABLE_ROWS else count for count in CRITEO_ROWS]


def draw(rows: list[int], batch: int, random: np.random.Generator) -> np.ndarray:
    """Ids [table, batch] of a power law, by inversion of its sums."""
    ids = []
    for count in rows:
        sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -ALPHA)
        ranks = np.minimum(np.searchsorted(sums, random.random(batch) * sums[-1]), count - 1)
        ids.append(random.permutation(count)[ranks])
    return np.stack(ids)


def mlp(*widths: int, last: torch.nn.Module) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for width, following in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], last)


class Network(torch.nn.Module):
    """The dense network: layers of 512 and 256 below, `top` and one more above."""

    def __init__(self, tables: int, dim: int, top: tuple[int, ...]) -> None:
        super().__init__()
        self.features, self.dim = tables + 1, dim
        self.bottom = mlp(DENSE, 512, 256, dim, last=torch.nn.ReLU())
        pairs = [self.features * i + j for i in range(self.features) for j in range(i)]
        self.register_buffer("pairs", torch.tensor(pairs))
        self.top = mlp(len(pairs) + dim, *top, 1, last=torch.nn.Sigmoid())

    def forward(self, dense: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        """Scores [batch, 1] of numbers [batch, DENSE] and the rows [batch, dim] of each table."""
        bottom = self.bottom(dense)
        features = torch.cat([bottom, *rows], 1).view(-1, self.features, self.dim)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products.index_select(1, self.pairs)], 1))


class Dlrm(torch.nn.Module):
    """The tables, and the network over their rows."""

    def __init__(self, rows: list[int], dim: int) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(count, dim) for count in rows)
        self.network = Network(len(rows), dim, top=(512, 512, 256))

    def forward(self, dense: torch.Tensor, *ids: torch.Tensor) -> torch.Tensor:
        """Scores [batch, 1] of numbers [batch, DENSE] and the ids [batch] of each table."""
        return self.network(dense, *[table(ids[i]) for i, table in enumerate(self.tables)])


# ---- On a GPU ----


def gpu_parser(description: str, batches: str, math: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hps", help="the JSON of the scenario of hps on the same machine")
    parser.add_argument("--out", help="also write the figures as JSON")
    parser.add_argument("--batches", default=batches)
    parser.add_argument("--math", default=math)
    parser.add_argument("--mode", default="default",
                        help="of torch.compile; or `eager`: a CUDA graph without torch.compile")
    return parser


def compiled(call: Callable, mode: str) -> Callable:
    torch.compiler.reset()
    return call if mode == "eager" else torch.compile(call, mode=mode, dynamic=False)


def recorded(call: Callable[[], object], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """The call in a CUDA graph, after three calls that compile it."""
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            call()
    return graph


def hps_us(path: str | None, key: str, wanted: Callable[[dict], bool]) -> dict:
    """The microseconds of hps by math and batch size."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    return {(result["params"]["math"], int(result["params"]["batch"])): result[key]
            for result in results if wanted(result)}


def compare(asked: argparse.Namespace, model: torch.nn.Module, hps: dict,
            measure: Callable[[torch.nn.Module, int, torch.dtype], float]) -> None:
    """Measures all math and batch sizes; prints the ratio where hps has a figure as well."""
    figures = {}
    for math in asked.math.split(","):
        torch.set_float32_matmul_precision("high" if math == "tf32" else "highest")
        model = model.to(TYPES[math])
        for batch in map(int, asked.batches.split(",")):
            time_us = figures[f"{math} {batch}"] = measure(model, batch, TYPES[math])
            line = f"{math:8} batch {batch:6}: PyTorch, {asked.mode} {time_us:9.1f} us"
            if (math, batch) in hps:
                line += f", hps {hps[math, batch]:9.1f} us, ratio {time_us / hps[math, batch]:.2f}"
            print(line, flush=True)
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "mode": asked.mode, "us": figures}, file, indent=1)
