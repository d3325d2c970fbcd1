#!/usr/bin/env python3
"""Asks a server for predictions over gRPC, with Triton's client.

    ask_grpc.py ADDRESS MODEL SAMPLES.npz TABLES OUT.npy BATCH     (TABLES: names, with commas)
"""

import sys

import numpy as np
import tritonclient.grpc as triton
from requests_of import by_names

DATATYPES = {"float32": "FP32", "int64": "INT64"}


def main() -> None:
    address, model, path, tables, out, batch = sys.argv[1:]
    with np.load(path) as file:
        samples = dict(file)
    scores = []
    with triton.InferenceServerClient(address) as client:
        for begin in range(0, len(samples["dense"]), int(batch)):
            part = {name: array[begin:begin + int(batch)] for name, array in samples.items()}
            inputs = []
            for name, array in by_names(tables.split(","), part).items():
                tensor = triton.InferInput(name, list(array.shape), DATATYPES[str(array.dtype)])
                tensor.set_data_from_numpy(np.ascontiguousarray(array))
                inputs.append(tensor)
            scores.append(client.infer(model, inputs).as_numpy("score"))
    np.save(out, np.concatenate(scores))


if __name__ == "__main__":
    main()
