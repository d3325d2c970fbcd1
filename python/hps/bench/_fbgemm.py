"""The peer FBGEMM, on the CPU and on a GPU."""

import contextlib
import io
import logging

import torch


def fbgemm_tables(sizes: list[int], dim: int, optimizer: str, device: torch.device, **options):
    """Tables of FBGEMM with float32 rows and outputs, which all its optimizers update in backward.
    Its import prints, and logs warnings, which are of no use here."""
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
    logging.disable(logging.NOTSET)
    place = ((EmbeddingLocation.DEVICE, ComputeDevice.CUDA) if device.type == "cuda" else
             (EmbeddingLocation.HOST, ComputeDevice.CPU))
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(size, dim, *place) for size in sizes], optimizer=getattr(EmbOptimType, optimizer),
        device=device, **options)
