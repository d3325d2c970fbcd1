#!/usr/bin/env python3
"""PyTorch's predictions on a GPU beside those of `hps bench ctr --device 0`: keys in, scores out.

    python3 tools/bench_ctr_gpu_torch.py [--hps F.json] [--out F.json] [--batches 1024,65536]
        [--math tf32,float16]

DLRM with 26 tables of dim 128, all rows in the GPU's memory, and the layers of `hps bench ctr`.
`torch.compile` makes lookups and network one program, which is recorded in a CUDA graph. A request
has its ids (row numbers, drawn by a power law) and numbers in the host's pageable memory: they go
through pinned memory to the GPU, and the scores come back. In float16 rows and weights are float16
as well. With --hps, the JSON of the scenario on the same machine, prints the ratio of the rates of
one instance.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch

CRITEO_ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
               27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
SMALL_TABLE_ROWS = 100_000
SCALE = 0.01  # of larger tables, as bench/ctr/ctr_instances.cc
DIM, DENSE = 128, 13
ALPHA = 1.05
ID_SETS = 4
TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16}


def mlp(*widths: int, last: torch.nn.Module) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for width, following in zip(widths, widths[1:], strict=False):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], last)


class Dlrm(torch.nn.Module):
    def __init__(self, rows: list[int]) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(count, DIM) for count in rows)
        self.bottom = mlp(DENSE, 512, 256, DIM, last=torch.nn.ReLU())
        features = len(rows) + 1
        pairs = [features * i + j for i in range(features) for j in range(i)]
        self.register_buffer("pairs", torch.tensor(pairs))
        self.top = mlp(len(pairs) + DIM, 512, 512, 256, 1, last=torch.nn.Sigmoid())

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense.to(self.bottom[0].weight.dtype))
        rows = [table(ids[i]) for i, table in enumerate(self.tables)]
        features = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products.index_select(1, self.pairs)], 1)).float()


def draw(rows: list[int], batch: int, random: np.random.Generator) -> np.ndarray:
    """Ids [table, batch] of a power law, by inversion of its sums."""
    ids = []
    for count in rows:
        sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -ALPHA)
        ranks = np.minimum(np.searchsorted(sums, random.random(batch) * sums[-1]), count - 1)
        ids.append(random.permutation(count)[ranks])
    return np.stack(ids)


class Recorded:
    """The compiled model in a CUDA graph, with pinned memory for what goes in and comes out."""

    def __init__(self, model: torch.nn.Module, batch: int, tables: int) -> None:
        self.stream = torch.cuda.Stream()
        self.ids = torch.zeros(tables, batch, dtype=torch.int64, pin_memory=True)
        self.dense = torch.zeros(batch, DENSE, pin_memory=True)
        self.scores = torch.zeros(batch, 1, pin_memory=True)
        ids, dense = self.ids.cuda(), self.dense.cuda()
        torch.compiler.reset()
        network = torch.compile(model, dynamic=False)
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            for _ in range(3):
                network(dense, ids)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                ids.copy_(self.ids, non_blocking=True)
                dense.copy_(self.dense, non_blocking=True)
                self.scores.copy_(network(dense, ids), non_blocking=True)

    def predict(self, dense: np.ndarray, ids: np.ndarray) -> np.ndarray:
        np.copyto(self.ids.numpy(), ids)
        np.copyto(self.dense.numpy(), dense)
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()
        return self.scores.numpy().copy()


def microseconds(recorded: Recorded, rows: list[int], batch: int) -> float:
    """Median of a request."""
    random = np.random.default_rng(1)
    sets = [draw(rows, batch, random) for _ in range(ID_SETS)]
    dense = random.standard_normal((batch, DENSE), dtype=np.float32)
    times = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < 1.5:
        start = time.perf_counter()
        recorded.predict(dense, sets[len(times) % ID_SETS])
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 4:]) * 1e6


def of_hps(path: str) -> dict[tuple[str, int], float]:
    """Microseconds of a request of one instance."""
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    return {(result["params"]["math"], int(result["params"]["batch"])): result["p50"]
            for result in results if result["params"]["instances"] == "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hps")
    parser.add_argument("--out")
    parser.add_argument("--batches", default="1024,65536")
    parser.add_argument("--math", default="float32,tf32,float16")
    asked = parser.parse_args()
    hps = of_hps(asked.hps) if asked.hps else {}
    torch.manual_seed(1)
    rows = [int(count * SCALE) if count > SMALL_TABLE_ROWS else count for count in CRITEO_ROWS]
    model = Dlrm(rows).cuda().eval()
    figures = {}
    for math in asked.math.split(","):
        torch.set_float32_matmul_precision("high" if math == "tf32" else "highest")
        model = model.to(TYPES[math])
        for batch in map(int, asked.batches.split(",")):
            time_us = microseconds(Recorded(model, batch, len(rows)), rows, batch)
            figures[f"{math} {batch}"] = time_us
            line = f"{math:8} batch {batch:6}: PyTorch {time_us:9.1f} us"
            if (math, batch) in hps:
                line += f", hps {hps[math, batch]:9.1f} us, ratio {time_us / hps[math, batch]:.2f}"
            print(line, flush=True)
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "us": figures}, file, indent=1)


if __name__ == "__main__":
    main()
