#!/usr/bin/env python3
"""Writes a model with random weights as ONNX, and samples with PyTorch's scores of them.

    export.py dlrm|deepfm|wdl|dcn|mmoe|din|dien OUT [--samples N] [--seed N]

OUT/model.onnx, and OUT/samples.npz with `dense`, `user`, `item`, `history` and the model's outputs:
`score`, and of mmoe `click` and `purchase`.
"""

import argparse
import pathlib

import fields
import numpy as np
import torch
from dcn import Dcn
from deepfm import DeepFm
from dien import Dien
from din import Din
from dlrm import Dlrm
from mmoe import Mmoe
from wdl import Wdl

MODELS = {"dlrm": Dlrm, "deepfm": DeepFm, "wdl": Wdl, "dcn": Dcn, "mmoe": Mmoe, "din": Din,
          "dien": Dien}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    model = MODELS[asked.model]()
    samples = fields.random_samples(asked.samples, asked.seed)
    asked.out.mkdir(parents=True, exist_ok=True)
    fields.export(model, asked.out / "model.onnx")
    np.savez(asked.out / "samples.npz", **fields.predict_all(model, samples), **samples)


if __name__ == "__main__":
    main()
