#!/usr/bin/env python3
"""PyTorch's time for the network of `hps bench dense`: compiled, in CUDA graphs.

    python3 tools/bench_dense_torch.py [--hps F.json] [--out F.json] [--batches 1024,65536]
        [--math tf32,float16]

DLRM with 26 tables of width 128, layers of Criteo's; rows and dense numbers are on the device, one
tensor per table; in float16 and bfloat16 they and the weights are of that type. `torch.compile` in
its default mode or, with --mode, another one; the compiled network is recorded in a CUDA graph.
With --hps, the JSON of `hps bench dense` of the same machine, prints the ratio of the times.
"""

import argparse
import json
import statistics

import torch

TABLES, WIDTH, DENSE = 26, 128, 13
TYPES = {"float32": torch.float32, "tf32": torch.float32, "float16": torch.float16,
         "bfloat16": torch.bfloat16}


def mlp(*widths: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for width, following in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


class Dlrm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        rows = TABLES + 1
        self.bottom = mlp(DENSE, 512, 256, WIDTH)
        self.top = torch.nn.Sequential(mlp(WIDTH + rows * TABLES // 2, 1024, 1024, 512, 256),
                                       torch.nn.Linear(256, 1))
        pairs = torch.tensor([rows * i + j for i in range(rows) for j in range(i)])
        self.register_buffer("pairs", pairs)

    def forward(self, dense: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        features = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products.flatten(1).index_select(1, self.pairs)
        return torch.sigmoid(self.top(torch.cat([bottom, pairs], dim=1)))


def microseconds(call, calls: int, runs: int = 15) -> float:
    """Median of one of `calls` calls that follow one another on the stream."""
    times = []
    for run in range(runs + 2):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        if run >= 2:
            times.append(begin.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


def measure(model: torch.nn.Module, mode: str, batch: int, kind: torch.dtype) -> float:
    inputs = [torch.randn(batch, DENSE, device="cuda", dtype=kind)]
    inputs += [torch.randn(batch, WIDTH, device="cuda", dtype=kind) for _ in range(TABLES)]
    torch.compiler.reset()
    network = model if mode == "eager" else torch.compile(model, mode=mode, dynamic=False)
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            network(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            network(*inputs)
        return microseconds(graph.replay, 5 if batch > 10_000 else 20)


def of_hps(path: str) -> dict[tuple[str, int], float]:
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    return {(result["params"]["math"], int(result["params"]["batch"])): result["figure"]
            for result in results if result["name"] == "network"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hps")
    parser.add_argument("--out")
    parser.add_argument("--batches", default="1024,4096,16384,65536")
    parser.add_argument("--math", default="float32,tf32,float16,bfloat16")
    parser.add_argument("--mode", default="default",
                        help="of torch.compile; or `eager`: a CUDA graph without torch.compile")
    asked = parser.parse_args()
    hps = of_hps(asked.hps) if asked.hps else {}
    torch.manual_seed(1)
    model = Dlrm().cuda().eval()
    figures = {}
    for math in asked.math.split(","):
        torch.set_float32_matmul_precision("high" if math == "tf32" else "highest")
        model = model.to(TYPES[math])
        for batch in map(int, asked.batches.split(",")):
            time_us = measure(model, asked.mode, batch, TYPES[math])
            figures[f"{math} {batch}"] = time_us
            line = f"{math:8} batch {batch:6}: {asked.mode} {time_us:9.1f} us"
            if (math, batch) in hps:
                line += f", hps {hps[math, batch]:9.1f} us, ratio {time_us / hps[math, batch]:.2f}"
            print(line, flush=True)
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "mode": asked.mode, "us": figures}, file, indent=1)


if __name__ == "__main__":
    main()
