#!/usr/bin/env python3
"""PyTorch's predictions on a GPU beside those of `hps bench ctr --device 0`: keys in, scores out.

    python3 tools/bench_ctr_gpu_torch.py [--hps F.json] [--out F.json] [--batches 1024,65536]
        [--math tf32,float16]

DLRM with 26 tables of dim 128, all rows in the GPU's memory, and the layers of `hps bench ctr`.
`torch.compile` makes lookups and network one program, which is recorded in a CUDA graph. A request
has its ids (row numbers, drawn by a power law) and numbers in the host's pageable memory: they go
through pinned memory to the GPU, and the scores come back. In float16 rows and weights are float16
as well. With --hps, the JSON of the scenario on the same machine, prints the ratio of the times of
a request with one instance. Needs tools/dlrm_torch.py beside it.
"""

import statistics
import time

import numpy as np
import torch

import dlrm_torch as dlrm

SCALE = 0.01  # of larger tables, as bench/ctr/ctr_instances.cc
DIM = 128
ID_SETS = 4


class Recorded:
    """The compiled model in a CUDA graph, with pinned memory for what goes in and comes out."""

    def __init__(self, model: torch.nn.Module, mode: str, batch: int, tables: int,
                 kind: torch.dtype) -> None:
        self.stream = torch.cuda.Stream()
        self.ids = torch.zeros(tables, batch, dtype=torch.int64, pin_memory=True)
        self.dense = torch.zeros(batch, dlrm.DENSE, pin_memory=True)
        self.scores = torch.zeros(batch, 1, pin_memory=True)
        ids, dense = self.ids.cuda(), self.dense.cuda()

        def predict(dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return model(dense.to(kind), *ids).float()

        network = dlrm.compiled(predict, mode)

        def request() -> None:
            ids.copy_(self.ids, non_blocking=True)
            dense.copy_(self.dense, non_blocking=True)
            self.scores.copy_(network(dense, ids), non_blocking=True)

        self.graph = dlrm.recorded(request, self.stream)

    def predict(self, dense: np.ndarray, ids: np.ndarray) -> np.ndarray:
        np.copyto(self.ids.numpy(), ids)
        np.copyto(self.dense.numpy(), dense)
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        self.stream.synchronize()
        return self.scores.numpy().copy()


def microseconds(network: Recorded, rows: list[int], batch: int) -> float:
    """Median of a request."""
    random = np.random.default_rng(1)
    sets = [dlrm.draw(rows, batch, random) for _ in range(ID_SETS)]
    dense = random.standard_normal((batch, dlrm.DENSE), dtype=np.float32)
    times = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < 1.5:
        start = time.perf_counter()
        network.predict(dense, sets[len(times) % ID_SETS])
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 4:]) * 1e6


def main() -> None:
    asked = dlrm.gpu_parser(__doc__, "1024,65536", "float32,tf32,float16").parse_args()
    torch.manual_seed(1)
    rows = dlrm.table_rows(SCALE)

    def measure(model: torch.nn.Module, batch: int, kind: torch.dtype) -> float:
        return microseconds(Recorded(model, asked.mode, batch, len(rows), kind), rows, batch)

    hps = dlrm.hps_us(asked.hps, "p50", lambda result: result["params"]["instances"] == "1")
    dlrm.compare(asked, dlrm.Dlrm(rows, DIM).cuda().eval(), hps, measure)


if __name__ == "__main__":
    main()
