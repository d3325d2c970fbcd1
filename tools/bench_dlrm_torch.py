#!/usr/bin/env python3
"""PyTorch's ways to look up what `hps bench dlrm` looks up, with all rows in the GPU's memory.

    python3 tools/bench_dlrm_torch.py [--scale 0.25] [--device 0] [--out F.json]

Three ways: one `embedding` call per table, the same in a CUDA graph, and one `index_select` over a
table that holds all rows. Ids are dense row numbers, which PyTorch needs, drawn as the benchmark
draws them (a power law of exponent 1.05). Prints samples/s, each batch size's best last.
Needs tools/dlrm_torch.py beside it.
"""

import argparse
import json
import statistics
import time

import torch

import dlrm_torch as dlrm

DIM = 128
RUNS = {1024: 200, 8192: 60, 65536: 20}


def draw(rows: list[int], batch: int, generator: torch.Generator) -> torch.Tensor:
    """Ids [table, batch] of a power law, by inversion of its sums."""
    ids = []
    for count in rows:
        ranks = torch.arange(1, count + 1, dtype=torch.float64, device="cuda")
        sums = ranks.pow_(-dlrm.ALPHA).cumsum(0)
        at = torch.rand(batch, dtype=torch.float64, device="cuda", generator=generator) * sums[-1]
        drawn = torch.searchsorted(sums, at).clamp_(max=count - 1)
        scattered = torch.randperm(count, device="cuda", generator=generator)
        ids.append(scattered[drawn])
    return torch.stack(ids)


def seconds_of(call, sets: list[torch.Tensor], runs: int) -> float:
    """Median seconds of a call, waited for; the ids change from call to call."""
    times = []
    for run in range(runs + 5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call(sets[run % len(sets)])
        torch.cuda.synchronize()
        if run >= 5:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(rows: list[int], batch: int, generator: torch.Generator) -> dict[str, float]:
    whole = torch.ones(sum(rows), DIM, device="cuda")
    firsts = torch.tensor([sum(rows[:i]) for i in range(len(rows))], device="cuda")[:, None]
    tables = whole.split(rows)
    sets = [draw(rows, batch, generator) for _ in range(4)]

    def embed(ids: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.embedding(ids[i], table) for i, table in enumerate(tables)]

    captured = sets[0].clone()
    graph = torch.cuda.CUDAGraph()
    embed(captured)
    with torch.cuda.graph(graph):
        kept = embed(captured)

    def replay(ids: torch.Tensor) -> list[torch.Tensor]:
        captured.copy_(ids)
        graph.replay()
        return kept

    def select(ids: torch.Tensor) -> torch.Tensor:
        return whole.index_select(0, (ids + firsts).view(-1))

    with torch.inference_mode():
        return {name: batch / seconds_of(call, sets, RUNS[batch])
                for name, call in (("embeddings", embed), ("graph", replay), ("select", select))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--out", help="also write the figures as JSON")
    arguments = parser.parse_args()
    torch.cuda.set_device(arguments.device)
    generator = torch.Generator("cuda").manual_seed(1)
    rows = dlrm.table_rows(arguments.scale)
    figures = {}
    for batch in RUNS:
        figures[batch] = measure(rows, batch, generator)
        for name, rate in figures[batch].items():
            print(f"batch {batch:6}  {name:10} {rate / 1e6:8.1f} M samples/s")
        print(f"batch {batch:6}  best       {max(figures[batch].values()) / 1e6:8.1f} M samples/s")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "samples_per_s": figures}, file, indent=1)


if __name__ == "__main__":
    main()
