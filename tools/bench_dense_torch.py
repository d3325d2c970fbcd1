#!/usr/bin/env python3
"""PyTorch's time for the network of `hps bench dense`: compiled, in CUDA graphs.

    python3 tools/bench_dense_torch.py [--hps F.json] [--out F.json] [--batches 1024,65536]
        [--math tf32,float16]

DLRM with 26 tables of width 128, layers of Criteo's; rows and dense numbers are on the device, one
tensor per table; in float16 and bfloat16 they and the weights are of that type. `torch.compile` in
its default mode or, with --mode, another one; the compiled network is recorded in a CUDA graph.
With --hps, the JSON of `hps bench dense` of the same machine, prints the ratio of the times.
Needs tools/dlrm_torch.py beside it.
"""

import statistics

import torch

import dlrm_torch as dlrm

TABLES, WIDTH = 26, 128


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


def main() -> None:
    asked = dlrm.gpu_parser(__doc__, "1024,4096,16384,65536",
                            "float32,tf32,float16,bfloat16").parse_args()

    def measure(model: torch.nn.Module, batch: int, kind: torch.dtype) -> float:
        inputs = [torch.randn(batch, dlrm.DENSE, device="cuda", dtype=kind)]
        inputs += [torch.randn(batch, WIDTH, device="cuda", dtype=kind) for _ in range(TABLES)]
        network = dlrm.compiled(model, asked.mode)
        stream = torch.cuda.Stream()
        graph = dlrm.recorded(lambda: network(*inputs), stream)
        with torch.cuda.stream(stream):
            return microseconds(graph.replay, 5 if batch > 10_000 else 20)

    torch.manual_seed(1)
    hps = dlrm.hps_us(asked.hps, "figure", lambda result: result["name"] == "network")
    model = dlrm.Network(TABLES, WIDTH, top=(1024, 1024, 512, 256)).cuda().eval()
    dlrm.compare(asked, model, hps, measure)


if __name__ == "__main__":
    main()
