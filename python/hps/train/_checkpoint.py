"""Checkpoints: rows with their optimizer's state, readable by any number of ranks.

    DIR/manifest.json            written last: the saves that count, in their order, and for each of
                                 their files its size and CRC-32
    DIR/hps-save-N/TABLE.RANK    a line of JSON (the arrays: name, dtype, length), then the arrays
    DIR/hps-save-N/dense.pt      the dense part: torch.save of tensors, numbers and strings

A full save has all rows; incremental ones follow it, with the rows that changed and the keys that
were erased since the one before. A save writes a new folder and then replaces the manifest, so that
the last whole checkpoint survives a save that fails. Folders hps-save-N that the manifest does not
name are removed.
"""

import contextlib
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import zlib

import numpy as np
import torch

from hps.train._files import sync_folder
from hps.train._together import agreed, together

_VERSION = 3
_DENSE = "dense.pt"
_PENDING = "manifest.json.pending"
_CHUNK_BYTES = 1 << 20
_ARRAYS = {"keys": "<i8", "values": "<f4", "last_seen": "<u4", "update_counts": "<u4",
           "pending_keys": "<i8", "pending_counts": "<u4", "erased": "<i8"}


def _describe(table):
    """What must be the same when a checkpoint is loaded."""
    return {"dim": table.dim} | table.optimizer.state()


class _CheckedFile:
    """Writes a file to disk, and counts its size and checksum."""

    def __init__(self, path):
        self._file = open(path, "wb")
        self.size = self.checksum = 0

    def write(self, piece):
        self._file.write(piece)
        self.checksum = zlib.crc32(piece, self.checksum)
        self.size += memoryview(piece).nbytes
        return memoryview(piece).nbytes

    def flush(self):
        self._file.flush()

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        try:
            if error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def description(self):
        return {"bytes": self.size, "crc32": self.checksum}


def _write_table(path, rows):
    header = {"step": rows["step"], "table_updates": rows["table_updates"],
              "arrays": [[name, dtype, int(rows[name].size)] for name, dtype in _ARRAYS.items()]}
    with _CheckedFile(path) as file:
        file.write(json.dumps(header).encode() + b"\n")
        for name, dtype in _ARRAYS.items():
            file.write(np.ascontiguousarray(rows[name], dtype).view(np.uint8))
    return file.description()


class _TableFile:
    """Reads one array at a time, so that a large file need not fit into memory."""

    def __init__(self, path):
        self._path = path
        with open(path, "rb") as file:
            line = file.readline()
        header = json.loads(line)
        self.step = header["step"]
        # Earlier files have none, and no optimizer that asks for it.
        self.table_updates = header.get("table_updates", self.step)
        self._arrays = {}
        offset = len(line)
        for name, dtype, length in header["arrays"]:
            self._arrays[name] = (dtype, length, offset)
            offset += length * np.dtype(dtype).itemsize

    def read(self, name):
        dtype, length, offset = self._arrays[name]
        return np.fromfile(self._path, dtype, length, offset=offset)

    def rows(self):
        return {"step": self.step, "table_updates": self.table_updates} | {
            name: self.read(name) for name in _ARRAYS if name != "erased"}


def _verify(path, expected):
    if not path.exists():
        raise ValueError(f"checkpoint: {path} is missing, though the manifest names it")
    size = checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
            size += len(chunk)
    if size != expected["bytes"] or checksum != expected["crc32"]:
        raise ValueError(f"checkpoint: {path} is damaged: its {size} bytes are not the "
                         f"{expected['bytes']} that were written; use another checkpoint")


def _read_manifest(directory):
    path = directory / "manifest.json"
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["version"]
    except (ValueError, TypeError, LookupError):
        raise ValueError(f"checkpoint: {path} is damaged, or of another program") from None
    if version != _VERSION:
        raise ValueError(f"checkpoint: {directory} has version {version}, not {_VERSION}")
    return manifest


def _write_manifest(directory, manifest):
    pending = directory / _PENDING
    with open(pending, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(pending, directory / "manifest.json")
    sync_folder(directory)


def _folder(directory, number):
    return directory / f"hps-save-{number}"


def _remove_unnamed(directory):
    """Removes the folders of saves that the manifest does not name, and a manifest that was not
    completed."""
    manifest = _read_manifest(directory)
    named = {_folder(directory, save["number"]) for save in manifest["saves"]} if manifest else ()
    for folder in directory.iterdir():
        if re.fullmatch(r"hps-save-\d+", folder.name) and folder not in named:
            shutil.rmtree(folder, ignore_errors=True)
    (directory / _PENDING).unlink(missing_ok=True)


def _serialized(state):
    """The bytes of the dense part, in memory: a disk that is full is then an OSError."""
    content = io.BytesIO()
    torch.save(state, content)
    content.seek(0)
    try:
        torch.load(content, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError("state has a " + (found[1] if found else "value") + ", which "
                         "torch.load(weights_only=True) does not read; it reads tensors, numbers, "
                         "strings, and dicts and lists of them") from error
    return content.getbuffer()


def save(engine, tables, directory, incremental, state):
    directory = pathlib.Path(directory)
    last = agreed(engine, lambda: _read_manifest(directory) if directory.exists() else None,
                  f"a rank cannot read the checkpoint in {directory}")
    newest = last["saves"][-1] if last else None
    number = newest["number"] + 1 if newest else 1
    place = str(directory.resolve())
    # Another collection's save may have the same number, but not the same checksums.
    incremental = all(engine.gather(incremental and engine.saved == (place, newest)))
    folder = _folder(directory, number)
    if not incremental:
        engine.saved = None
        for shard in engine.shards.values():
            shard.acknowledge_delta(True, (0, 0))
    marks = {}
    dense = None

    def prepare():
        nonlocal dense
        if engine.rank == 0:
            dense = None if state is None else _serialized(state)
            directory.mkdir(parents=True, exist_ok=True)
            _remove_unnamed(directory)
            folder.mkdir()

    def write():
        files = {}
        for table in tables.values():
            name = f"{table.name}.{engine.rank}"
            files[name], marks[table.name] = _save_table(engine, table, folder / name)
        if dense is not None:
            files[_DENSE] = _write_dense(folder / _DENSE, dense)
        return files

    def finish():
        if engine.rank == 0:
            sync_folder(folder)
            saves = [*last["saves"], found] if incremental else [found]
            _write_manifest(directory, {
                "version": _VERSION, "plans": engine.plans, "saves": saves,
                "tables": {table.name: _describe(table) for table in tables.values()}})
            _remove_unnamed(directory)

    message = (f"the checkpoint in {directory} was not written",
               "; the one before it, if there is one, is whole")
    try:
        together(engine, prepare, *message)
        parts = together(engine, write, *message)
        found = {"number": number, "ranks": engine.rank_count, "run": engine.run,
                 "steps": engine.steps,
                 "files": {name: file for part in parts for name, file in part.items()}}
        together(engine, finish, *message)
    except (OSError, RuntimeError):
        if engine.rank == 0:
            with contextlib.suppress(OSError):
                _remove_unnamed(directory)  # the room is needed
        raise
    for name, mark in marks.items():
        engine.shards[name].acknowledge_delta(True, mark)
    engine.saved = (place, found)


def _write_dense(path, content):
    with _CheckedFile(path) as file:
        file.write(content)
    return file.description()


def _save_table(engine, table, path):
    """Writes what changed since the last save. Returns the file's description, and the mark of the
    changes. The rows are gone then, before those of the next table come into memory."""
    rows, mark = _owned_delta(engine, table)
    return _write_table(path, rows), mark


def _owned_delta(engine, table):
    """What changed since the last save of the rows that this rank saves, and the mark of it."""
    delta = engine.shards[table.name].collect_delta(True)
    rows = pick(delta, engine.owns(table, delta["keys"]),
                engine.owns(table, delta["pending_keys"]))
    erased_mask = engine.owns(table, delta["erased"])
    rows["erased"] = delta["erased"] if erased_mask is None else delta["erased"][erased_mask]
    return rows, delta["through"]


def pick(rows, keys_mask, pending_mask):
    """Some of the rows; None: all."""
    if keys_mask is None:
        return rows
    width = rows["values"].size // max(1, rows["keys"].size)
    picked = {name: rows[name][keys_mask] for name in ("keys", "last_seen", "update_counts")}
    picked["values"] = rows["values"].reshape(rows["keys"].size, width)[keys_mask].reshape(-1)
    picked["pending_keys"] = rows["pending_keys"][pending_mask]
    picked["pending_counts"] = rows["pending_counts"][pending_mask]
    picked["step"], picked["table_updates"] = rows["step"], rows["table_updates"]
    return picked


def load(engine, tables, directory):
    """Returns the dense part."""
    directory = pathlib.Path(directory)
    manifest, state = agreed(engine, lambda: _checked(engine, tables, directory),
                             f"no rank has loaded the checkpoint in {directory}")
    engine.begin_load(manifest["plans"])
    together(engine, lambda: _load_tables(engine, tables, directory, manifest["saves"]),
             f"the checkpoint in {directory} was not loaded", "; tables may have a part of it")
    newest = manifest["saves"][-1]
    engine.steps = newest.get("steps", 0)  # a save of hps 0.1 does not tell
    engine.loaded = (newest["run"], engine.steps) if "run" in newest else None
    return state


def _checked(engine, tables, directory):
    """The manifest and the dense part of a checkpoint that can be loaded."""
    manifest = _read_manifest(directory)
    if manifest is None:
        raise FileNotFoundError(f"checkpoint: {directory} has no manifest.json")
    for table in tables.values():
        saved = manifest["tables"].get(table.name)
        if saved is None:
            raise ValueError(f"checkpoint: {directory} has no table {table.name!r}; it has "
                             f"{sorted(manifest['tables'])}")
        if saved != _describe(table):
            raise ValueError(f"checkpoint: table {table.name!r} is {saved} there, "
                             f"but {_describe(table)} here")
        present = engine.shards[table.name].statistics()
        if present["rows"] or present["pending"]:
            raise ValueError(f"checkpoint: table {table.name!r} has rows already, or keys that "
                             "wait for one")
    for found in manifest["saves"]:
        for name, expected in found["files"].items():
            _verify(_folder(directory, found["number"]) / name, expected)
    return manifest, _newest_state(directory, manifest["saves"])


def _load_tables(engine, tables, directory, saves):
    for found in saves:
        folder = _folder(directory, found["number"])
        is_last = found is saves[-1]
        for table in tables.values():
            _load_table(engine, table, is_last,
                        [folder / f"{table.name}.{rank}" for rank in range(found["ranks"])])


def _newest_state(directory, saves):
    for found in reversed(saves):
        if _DENSE in found["files"]:
            return torch.load(_folder(directory, found["number"]) / _DENSE, weights_only=True,
                              map_location="cpu")  # not all ranks on the device of rank 0
    return None


def _load_table(engine, table, is_last, paths):
    """One save of a table. A row may have moved to another rank, which saves it then: what was
    erased goes first."""
    shard = engine.shards[table.name]
    files = [_TableFile(path) for path in paths]
    for file in files:
        shard.erase_rows(file.read("erased"))
    for file in files:
        rows = file.rows()
        # The last list of keys that wait for admission counts, if keys have to wait now.
        if not is_last or table.admit_after == 1:
            rows["pending_keys"] = rows["pending_keys"][:0]
            rows["pending_counts"] = rows["pending_counts"][:0]
        shard.write_rows(pick(rows, engine.loads(table, rows["keys"]),
                              engine.loads(table, rows["pending_keys"])))
