"""Rows on their way into serving: a model's directory, and changes."""

import json
import os
import pathlib
import shutil
import warnings

import numpy as np
import torch

from hps.train._together import together

OPSET = 17
_DESCRIPTION = "model.toml"
_NETWORK = "dense.onnx"


def owned_rows(engine, table):
    """(keys sorted, rows [n, dim]) that this rank exports."""
    rows = engine.shards[table.name].read_rows(False)
    return _owned(engine, table, rows["keys"], rows["values"].reshape(-1, table.dim))


def _owned(engine, table, keys, values=None):
    mask = engine.owns(table, keys)
    if mask is None:
        return keys, values
    return keys[mask], values[mask] if values is not None else None


def export(engine, tables, directory, network, example_inputs, name):
    directory = pathlib.Path(directory)
    parts = directory / ".parts"
    marks = {}

    def prepare():
        if engine.rank == 0:
            shutil.rmtree(parts, ignore_errors=True)  # of an export that was killed
            parts.mkdir(parents=True)

    def write():
        for table in tables.values():
            marks[table.name] = engine.shards[table.name].collect_delta(False)["through"]
            keys, rows = owned_rows(engine, table)
            keys.tofile(parts / f"{table.name}.{engine.rank}.key")
            rows.tofile(parts / f"{table.name}.{engine.rank}.row")

    def finish():
        if engine.rank == 0:
            for table in tables.values():
                _merge(table, engine.rank_count, parts)
            if network is not None:
                _export_network(network, example_inputs, parts / _NETWORK)
            _write_description(tables, parts, name, network is not None, example_inputs)
            _replace(tables, parts, directory)

    what = f"the export into {directory} was not written"
    for work in (prepare, write, finish):
        together(engine, work, what)
    for table in tables.values():
        engine.shards[table.name].acknowledge_delta(False, marks[table.name])


def _merge(table, rank_count, parts):
    """One sorted table of all ranks' parts."""
    folder = parts / table.name
    folder.mkdir()
    files = [(parts / f"{table.name}.{rank}.key", parts / f"{table.name}.{rank}.row")
             for rank in range(rank_count)]
    keys = np.concatenate([np.fromfile(key, np.int64) for key, _ in files])
    rows = np.concatenate([np.fromfile(row, np.float32).reshape(-1, table.dim)
                           for _, row in files])
    order = np.argsort(keys, kind="stable")
    keys[order].tofile(folder / "key")
    rows[order].tofile(folder / "emb_vector")
    for part in files:
        for path in part:
            path.unlink()


def _replace(tables, parts, directory):
    """Puts the new export in the place of one before it. Without its description, which comes last,
    a directory whose tables are of two exports is no model."""
    (directory / _DESCRIPTION).unlink(missing_ok=True)
    for name in tables:
        shutil.rmtree(directory / name, ignore_errors=True)
        os.replace(parts / name, directory / name)
    network = parts / _NETWORK
    if network.exists():
        os.replace(network, directory / _NETWORK)
    os.replace(parts / _DESCRIPTION, directory / _DESCRIPTION)
    parts.rmdir()


def _export_network(network, example_inputs, path):
    names = list(example_inputs)
    dynamic = {name: {0: "batch"} for name in [*names, "output"]}
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with warnings.catch_warnings():
            # The exporter over torch.export, which is to replace this one, does not name inputs
            # that a network takes as *args.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(network, tuple(example_inputs.values()), str(path),
                              input_names=names, output_names=["output"], dynamic_axes=dynamic,
                              opset_version=OPSET, dynamo=False)
    finally:
        for module, mode in modes:
            module.training = mode


def _write_description(tables, folder, name, has_network, example_inputs):
    lines = [f"name = {json.dumps(name)}", f"tables = {json.dumps(list(tables))}"]
    if has_network:
        lines += ["[network]", f'file = "{_NETWORK}"']
        for input_name in example_inputs:
            lines += ["[[network.input]]", f"name = {json.dumps(input_name)}"]
            if input_name in tables:
                lines += [f"table = {json.dumps(input_name)}",
                          f"pooling = {json.dumps(tables[input_name].pooling)}"]
    (folder / _DESCRIPTION).write_text("\n".join(lines) + "\n")


def publish(engine, tables, target):
    deltas = {}
    for table in tables.values():
        delta = deltas[table.name] = engine.shards[table.name].collect_delta(False)
        keys, rows = _owned(engine, table, delta["keys"],
                            delta["values"].reshape(-1, table.dim))
        erased, _ = _owned(engine, table, delta["erased"])
        if keys.size:
            target.upsert(table.name, keys, rows)
        if erased.size:
            target.delete(table.name, erased)
        delta["sent"] = (keys.size, erased.size)
    target.flush()
    for name, delta in deltas.items():
        engine.shards[name].acknowledge_delta(False, delta["through"])
    return {name: delta["sent"] for name, delta in deltas.items()}
