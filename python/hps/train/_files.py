"""Writes files, and returns when the disk has them: a crash afterwards does not lose them."""

import os


def write_file(path, pieces):
    """Writes `pieces`, bytes or arrays, one after the other, and syncs the file. Raises OSError if
    the disk is full; ndarray.tofile would not."""
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path):
    """Syncs a folder, so that files made or renamed in it keep their names after a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
