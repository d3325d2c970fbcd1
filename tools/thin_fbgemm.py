#!/usr/bin/env python3
"""Makes FBGEMM, a peer of `python -m hps.bench train`, small enough for a small disk or a copy.

    pip download fbgemm-gpu==1.6.0 --no-deps --only-binary :all: --python-version 3.12 \\
        --platform manylinux_2_28_x86_64
    pip install zstandard lz4
    tools/thin_fbgemm.py fbgemm_gpu-1.6.0-*.whl OUT_DIR [--architecture 90]
    PYTHONPATH=OUT_DIR python -m hps.bench train --device cuda

Unpacked, the wheel takes 2.4 GB: its libraries have every kernel for several architectures of GPUs.
The benchmark needs few of them, with which it takes 0.4 GB. OUT_DIR gets the files of the wheel,
and in the libraries zeros in the place of the code

- of other architectures than that of the GPU (90: H100, H200), and of PTX, from which the driver
  would compile for any;
- of backward passes with other optimizers than the benchmark's, weighted ones, and those without
  bags, and of forward passes likewise;
- of libraries for what training of tables on a GPU does not use: inference, dense gradients, ...

Nothing else of a library changes: neither its length nor where anything lies. So all of FBGEMM can
be imported, and only the launch of a kernel that is gone fails. Zeros are holes of the file, which
take no disk. Keep them as such in copies: `tar --sparse -cJf thin.tar.xz -C OUT_DIR .` has 28 MB.
"""

import argparse
import dataclasses
import pathlib
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterator

OPTIMIZERS = ["sgd", "rowwise_adagrad", "adam"]  # of hps.bench._train_cases
FATBIN_MAGIC = 0xBA55ED50
MACHINE_CODE = 2  # the kind of an entry; 1 is PTX
ZSTD, LZ4 = 0x8000, 0x2000  # flags of an entry
BLOCK, PIECE = 4096, 1 << 20
# Libraries without any kernel that the benchmark launches, by the ends of their names.
UNUSED = ("_vbe.so", "_gwd.so", "_inference.so", "_index_select.so", "_dense.so")


@dataclasses.dataclass
class Entry:
    """The code of one source for one architecture, in a fat binary."""

    kind: int
    architecture: int
    flags: int
    begin: int
    end: int  # with what fills it up
    packed_size: int
    full_size: int


def section_of(data: bytearray, name: bytes) -> tuple[int, int] | None:
    """Where a section of an ELF file of 64 bits begins and ends in the file."""
    if data[:5] != b"\x7fELF\x02":
        return None
    table, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)

    def header(number: int) -> tuple[int, int, int]:
        """Name, place and size."""
        at = table + number * size
        return struct.unpack_from("<I", data, at) + struct.unpack_from("<QQ", data, at + 24)

    texts = header(names)[1]
    for number in range(count):
        text, begin, length = header(number)
        if data.startswith(name + b"\0", texts + text):
            return begin, begin + length
    return None


def entries(data: bytearray, begin: int, end: int) -> Iterator[Entry]:
    """Of all fat binaries between two places."""
    at = begin
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            at += 8  # they are aligned
            continue
        place, stop = at + header, at + header + length
        while place < stop:
            kind, _, own_header, padded = struct.unpack_from("<HHIQ", data, place)
            packed_size, = struct.unpack_from("<I", data, place + 0x10)
            architecture, = struct.unpack_from("<I", data, place + 0x1C)
            flags, = struct.unpack_from("<Q", data, place + 0x28)
            full_size, = struct.unpack_from("<Q", data, place + 0x38)
            body = place + own_header
            yield Entry(kind, architecture, flags, body, body + padded, packed_size or padded,
                        full_size)
            place = body + padded
        at = stop


def code_of(data: bytearray, entry: Entry) -> bytes:
    packed = bytes(data[entry.begin:entry.begin + entry.packed_size])
    if entry.flags & ZSTD:
        import zstandard
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=entry.full_size)
    if entry.flags & LZ4:
        import lz4.block
        return lz4.block.decompress(packed, uncompressed_size=entry.full_size)
    return packed


def needed(library: str) -> list[bytes] | None:
    """Names of kernels. Code that has none of these names is removed; None: no code is."""
    if library.endswith("tbe_training_backward.so"):
        return [b"split_embedding_backward_codegen_%b_unweighted_kernel" % optimizer.encode()
                for optimizer in OPTIMIZERS] + [b"find_long_segments", b"grad_mean",
                                                b"count_unique"]
    if library.endswith("tbe_training_forward.so"):
        return [b"split_embedding_codegen_forward_unweighted"]
    return [] if library.endswith(UNUSED) else None


def thin(data: bytearray, library: str, architecture: int) -> tuple[int, int]:
    """Overwrites unneeded code with zeros. Returns the bytes of all code, and of the code kept."""
    section, names = section_of(data, b".nv_fatbin"), needed(library)
    total = kept = 0
    for entry in entries(data, *section) if section else ():
        size = entry.end - entry.begin
        total += size
        is_needed = entry.kind == MACHINE_CODE and entry.architecture == architecture
        if is_needed and names is not None:
            code = code_of(data, entry) if names else b""
            is_needed = any(name in code for name in names)
        if is_needed:
            kept += size
        else:
            data[entry.begin:entry.end] = bytes(size)
    return total, kept


def write_sparse(path: pathlib.Path, data: bytearray) -> None:
    """Leaves holes in the place of blocks of zeros."""
    zeros, view = bytes(BLOCK), memoryview(data)
    with path.open("wb") as file:
        for begin in range(0, len(data), BLOCK):
            block = view[begin:begin + BLOCK]
            if block != zeros[:len(block)]:
                file.seek(begin)
                file.write(block)
        file.truncate(len(data))


def read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytearray:
    """In pieces, because a library has a gigabyte."""
    data = bytearray(member.file_size)
    view, begin = memoryview(data), 0
    with archive.open(member) as source:
        while begin < len(data) and (piece := source.read(PIECE)):
            view[begin:begin + len(piece)] = piece
            begin += len(piece)
    view.release()
    return data


def unpack(wheel: pathlib.Path, out: pathlib.Path, architecture: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = out / member.filename
            if member.is_dir():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".so":
                with archive.open(member) as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
                continue
            data = read(archive, member)
            total, kept = thin(data, path.name, architecture)
            write_sparse(path, data)
            print(f"{path.name:50} {total / 1e6:8.1f} MB of code, {kept / 1e6:6.1f} kept",
                  flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("--architecture", type=int, default=90,
                        help="of the GPU: ten times its compute capability (default 90)")
    arguments = parser.parse_args()
    if arguments.out_dir.exists():
        print(f"thin_fbgemm: {arguments.out_dir} is there already", file=sys.stderr)
        return 1
    unpack(arguments.wheel, arguments.out_dir, arguments.architecture)
    on_disk = sum(path.stat().st_blocks * 512 for path in arguments.out_dir.rglob("*"))
    print(f"{arguments.out_dir}: {on_disk / 1e6:.0f} MB on the disk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
