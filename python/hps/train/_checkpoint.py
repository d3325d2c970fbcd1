"""Checkpoints: rows with their optimizer's state, readable by any number of ranks.

    DIR/manifest.json            written last: the name of the folder that counts, and for each file
                                 its size and CRC-32
    DIR/<number>/TABLE.RANK      a line of JSON (the arrays: name, dtype, length), then the arrays

A save writes a new folder beside the one that counts and removes that one at the end, so that the
last whole checkpoint survives a save that fails.
"""

import json
import os
import pathlib
import shutil
import zlib

import numpy as np

_VERSION = 1
_ARRAYS = {"keys": "<i8", "values": "<f4", "last_seen": "<u4", "update_counts": "<u4",
           "pending_keys": "<i8", "pending_counts": "<u4"}


def _describe(table):
    """What must be the same when a checkpoint is loaded."""
    return {"dim": table.dim, "optimizer": type(table.optimizer).__name__,
            "states": table.optimizer.states}


def _write_table(path, rows):
    """Returns the file's size and checksum."""
    header = {"step": rows["step"],
              "arrays": [[name, dtype, int(rows[name].size)] for name, dtype in _ARRAYS.items()]}
    checksum = size = 0
    with open(path, "wb") as file:
        line = json.dumps(header).encode() + b"\n"
        for piece in [line, *(np.ascontiguousarray(rows[name], dtype).view(np.uint8)
                              for name, dtype in _ARRAYS.items())]:
            file.write(piece)
            checksum = zlib.crc32(piece, checksum)
            size += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "crc32": checksum}


def _read_table(path, expected):
    content = path.read_bytes()
    if len(content) != expected["bytes"] or zlib.crc32(content) != expected["crc32"]:
        raise ValueError(f"checkpoint: {path} is damaged: its {len(content)} bytes are not those "
                         "that were written")
    end = content.index(b"\n") + 1
    header = json.loads(content[:end])
    rows = {"step": header["step"]}
    for name, dtype, length in header["arrays"]:
        rows[name] = np.frombuffer(content, dtype, length, end)
        end += rows[name].nbytes
    return rows


def _sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(directory):
    path = directory / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else None


def save(engine, tables, directory):
    directory = pathlib.Path(directory)
    last = _manifest(directory)
    number = last["number"] + 1 if last else 1
    folder = directory / str(number)
    engine.barrier()  # all have read the manifest
    if engine.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    engine.barrier()
    written = {}
    for table in tables.values():
        rows = owned_state(engine, table)
        name = f"{table.name}.{engine.rank}"
        written[name] = _write_table(folder / name, rows)
    (folder / f"files.{engine.rank}").write_text(json.dumps(written))
    engine.barrier()
    if engine.rank == 0:
        files = {}
        for rank in range(engine.rank_count):
            part = folder / f"files.{rank}"
            files |= json.loads(part.read_text())
            part.unlink()
        _sync_folder(folder)
        manifest = {"version": _VERSION, "number": number, "ranks": engine.rank_count,
                    "tables": {table.name: _describe(table) for table in tables.values()},
                    "files": files}
        pending = directory / "manifest.json.pending"
        with open(pending, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(pending, directory / "manifest.json")
        _sync_folder(directory)
        if last:
            shutil.rmtree(directory / str(last["number"]), ignore_errors=True)
    engine.barrier()


def owned_state(engine, table):
    """Rows with state that this rank saves."""
    rows = engine.shards[table.name].read_rows(True)
    return pick(rows, engine.owns(table, rows["keys"]), engine.owns(table, rows["pending_keys"]))


def pick(rows, keys_mask, pending_mask):
    """Some of the rows; None: all."""
    if keys_mask is None:
        return rows
    width = rows["values"].size // max(1, rows["keys"].size)
    picked = {name: rows[name][keys_mask] for name in ("keys", "last_seen", "update_counts")}
    picked["values"] = rows["values"].reshape(rows["keys"].size, width)[keys_mask].reshape(-1)
    picked["pending_keys"] = rows["pending_keys"][pending_mask]
    picked["pending_counts"] = rows["pending_counts"][pending_mask]
    picked["step"] = rows["step"]
    return picked


def load(engine, tables, directory):
    directory = pathlib.Path(directory)
    manifest = _manifest(directory)
    if manifest is None:
        raise FileNotFoundError(f"checkpoint: {directory} has no manifest.json")
    if manifest["version"] != _VERSION:
        raise ValueError(f"checkpoint: {directory} has version {manifest['version']}, "
                         f"not {_VERSION}")
    for table in tables.values():
        saved = manifest["tables"].get(table.name)
        if saved != _describe(table):
            raise ValueError(f"checkpoint: table {table.name!r} is {saved} there, "
                             f"but {_describe(table)} here")
        if engine.shards[table.name].statistics()["rows"]:
            raise ValueError(f"checkpoint: table {table.name!r} has rows already")
    folder = directory / str(manifest["number"])
    parts = {table.name: [_read_table(folder / f"{table.name}.{rank}",
                                      manifest["files"][f"{table.name}.{rank}"])
                          for rank in range(manifest["ranks"])] for table in tables.values()}
    for table in tables.values():
        for rows in parts[table.name]:
            engine.shards[table.name].write_rows(
                pick(rows, engine.loads(table, rows["keys"]),
                     engine.loads(table, rows["pending_keys"])))
