"""Files that are on disk when they have been written."""

import os


def write_file(path, pieces):
    """Of bytes or arrays. Unlike ndarray.tofile, it says so when the disk is full."""
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path):
    """Puts the names in a folder on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
