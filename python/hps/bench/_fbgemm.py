"""The peer FBGEMM, on the CPU and on a GPU."""

import contextlib
import io
import logging

import torch

_TYPES = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


def fbgemm_tables(sizes: list[int], dim: int, optimizer: str, device: torch.device, **options):
    """Tables of FBGEMM, which all its optimizers update in backward. `options`: FBGEMM's own, and
    the types `rows` and `outputs`, float32 if nothing else is said. FBGEMM rounds rows of 16 bits
    at random. Its import prints, and logs warnings, which are of no use here."""
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
    logging.disable(logging.NOTSET)
    place = ((EmbeddingLocation.DEVICE, ComputeDevice.CUDA) if device.type == "cuda" else
             (EmbeddingLocation.HOST, ComputeDevice.CPU))
    rows, outputs = (getattr(SparseType, _TYPES[options.pop(name, "float32")])
                     for name in ("rows", "outputs"))
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(size, dim, *place) for size in sizes], optimizer=getattr(EmbOptimType, optimizer),
        weights_precision=rows, output_dtype=outputs, device=device, **options)
