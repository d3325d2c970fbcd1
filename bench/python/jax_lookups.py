#!/usr/bin/env python3
"""Lookups of hps.jax on a GPU beside the same calls in C, in one process.

    python bench/python/jax_lookups.py --library build/cuda/lib/libhps.so

Needs the package of `make wheel-gpu`, JAX with CUDA, and PyTorch (of any kind, for lookups.py). 26
tables of 100,000 rows of 128 floats, all in level 1; 4,096 keys of each. A figure is the median
wall time of a call of a compiled function and the wait for its rows. `keys + 1` of the 26 arrays is
what JAX itself takes for such a call. That in C is called through ctypes, with its arguments ready.
"""

import ctypes
import os
import pathlib

# Before JAX is imported: level 1 is beside it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import device_calls
import jax
import jax.numpy as jnp
import numpy as np
from device_calls import DIM, KEYS, ROWS, TABLES

import hps
import hps.jax


def measure(config: pathlib.Path, library: ctypes.CDLL) -> None:
    random = np.random.default_rng(1)
    wide = {f"t{i}": jnp.asarray(random.integers(0, ROWS, KEYS)) for i in range(TABLES)}
    narrow = {table: keys.astype(jnp.int32) for table, keys in wide.items()}
    rows = [jnp.zeros((KEYS, DIM), jnp.float32) for _ in range(TABLES)]
    jax.block_until_ready((wide, narrow, rows))
    c_alone = device_calls.median_in_c(
        library, config, [keys.unsafe_buffer_pointer() for keys in wide.values()],
        [some.unsafe_buffer_pointer() for some in rows], None, lambda _: None)
    with hps.open(config=config) as store:
        session = store.session("m", "cuda:0")
        found = jax.jit(lambda keys: hps.jax.lookup(session, keys))
        plus_one = jax.jit(lambda keys: {table: some + 1 for table, some in keys.items()})
        device_calls.warm_up(lambda: jax.block_until_ready(found(wide)))
        times = device_calls.medians(
            jax.block_until_ready, lambda: found(wide), lambda: found(narrow),
            lambda: hps.jax.lookup(session, wide), lambda: plus_one(wide))
        _, status = hps.jax.lookup(session, wide, status=True)
        hits = np.mean([np.asarray(part) == hps.Status.HIT_L1 for part in status.values()])
    print(f"level 1 answered {hits:.4f} of the keys")
    print(f"C {c_alone:.1f} us")
    for name, ours in zip(("jit, int64", "jit, int32", "eager, int64", "jit of keys + 1"), times):
        print(f"{name} {ours:.1f} us, ratio {ours / c_alone:.2f}")


def main() -> None:
    library = device_calls.library_of_arguments(__doc__)
    jax.config.update("jax_enable_x64", True)
    with device_calls.made_store() as (_, config):
        measure(config, library)


if __name__ == "__main__":
    main()
