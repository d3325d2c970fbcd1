"""Rows on their way into serving: a model's directory, and changes."""

import json
import os
import pathlib
import shutil
import warnings

import numpy as np
import torch

from hps.train._files import sync_folder, write_file
from hps.train._together import together

OPSET = 17
_DESCRIPTION = "model.toml"
_NETWORK = "dense.onnx"
_FILES = ("key", "emb_vector")
_CHUNK_ROWS = 1 << 16


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
            if network is not None:  # first, because most errors of users are here
                _export_network(network, example_inputs, parts / _NETWORK)

    def write():
        for table in tables.values():
            marks[table.name] = engine.shards[table.name].collect_delta(False)["through"]
            _write_part(engine, table, parts)

    def finish():
        if engine.rank == 0:
            for table in tables.values():
                _merge(table, engine.rank_count, parts)
            _write_description(tables, parts, name, network is not None, example_inputs)
            _replace(tables, parts, directory)

    what = f"the export into {directory} was not written"
    try:
        for work in (prepare, write, finish):
            together(engine, work, what)
    except (OSError, RuntimeError):
        if engine.rank == 0:
            shutil.rmtree(parts, ignore_errors=True)  # the room is needed
        raise
    for table in tables.values():
        engine.shards[table.name].acknowledge_delta(False, marks[table.name])


def _part(table, rank, parts):
    """The files of keys and of rows of one rank."""
    return parts / f"{table.name}.{rank}.key", parts / f"{table.name}.{rank}.row"


def _write_part(engine, table, parts):
    for path, array in zip(_part(table, engine.rank, parts), owned_rows(engine, table)):
        write_file(path, [array])


def _merge(table, rank_count, parts):
    """One sorted table of all ranks' parts, whose rows need not fit into memory."""
    folder = parts / table.name
    folder.mkdir()
    files = [_part(table, rank, parts) for rank in range(rank_count)]
    keys = np.concatenate([np.fromfile(key, np.int64) for key, _ in files])
    if not keys.size:  # HugeCTR's files would not tell the width
        np.save(folder / "keys.npy", keys)
        np.save(folder / "rows.npy", np.empty((0, table.dim), np.float32))
    elif rank_count == 1:
        for path, merged in zip(files[0], _FILES):
            os.replace(path, folder / merged)
    else:
        order = np.argsort(keys, kind="stable")
        rows = _Rows([row for _, row in files], table.dim)
        chunks = np.array_split(order, -(-keys.size // _CHUNK_ROWS))
        write_file(folder / _FILES[0], (keys[chunk] for chunk in chunks))
        write_file(folder / _FILES[1], (rows.take(chunk) for chunk in chunks))
    for part in files:
        for path in part:
            path.unlink(missing_ok=True)


class _Rows:
    """The rows of several files, in one numbering."""

    def __init__(self, paths, dim):
        self._dim = dim
        self._files = [np.memmap(path, np.float32, "r").reshape(-1, dim) for path in paths
                       if path.stat().st_size]  # an empty file cannot be mapped
        self._ends = np.cumsum([len(file) for file in self._files])

    def take(self, places):
        rows = np.empty((len(places), self._dim), np.float32)
        sources = np.searchsorted(self._ends, places, side="right")
        for source, (file, end) in enumerate(zip(self._files, self._ends)):
            mask = sources == source
            rows[mask] = file[places[mask] - (end - len(file))]
        return rows


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
    sync_folder(directory)
    os.replace(parts / _DESCRIPTION, directory / _DESCRIPTION)
    parts.rmdir()


def _unwrapped(network):
    """Without what DistributedDataParallel and torch.compile have put around it: neither can be
    traced."""
    while True:
        if isinstance(network, torch.nn.parallel.DistributedDataParallel):
            network = network.module
        elif hasattr(network, "_orig_mod"):
            network = network._orig_mod
        else:
            return network


def _export_network(network, example_inputs, path):
    if example_inputs is None:
        raise ValueError("a network needs example_inputs, {input: tensor}")
    network = _unwrapped(network)
    # A network on a GPU is traced there.
    place = next((each.device for each in network.parameters()), torch.device("cpu"))
    inputs = tuple(each.to(place) for each in example_inputs.values())
    names = list(example_inputs)
    dynamic = {name: {0: "batch"} for name in [*names, "output"]}
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with warnings.catch_warnings():
            # The exporter over torch.export, which is to replace this one, does not name inputs
            # that a network takes as *args.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(network, inputs, str(path),
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
    write_file(folder / _DESCRIPTION, ["\n".join([*lines, ""]).encode()])


def publish(engine, tables, target):
    sent, marks = {}, {}
    for table in tables.values():
        sent[table.name], marks[table.name] = _publish_table(engine, table, target)
    target.flush()
    for name, mark in marks.items():
        engine.shards[name].acknowledge_delta(False, mark)
    return sent


def _publish_table(engine, table, target):
    """Returns (rows sent, keys deleted), and the mark of the changes. The rows are gone then,
    before those of the next table come into memory."""
    delta = engine.shards[table.name].collect_delta(False)
    keys, rows = _owned(engine, table, delta["keys"], delta["values"].reshape(-1, table.dim))
    erased, _ = _owned(engine, table, delta["erased"])
    if keys.size:
        target.upsert(table.name, keys, rows)
    if erased.size:
        target.delete(table.name, erased)
    return (keys.size, erased.size), delta["through"]
