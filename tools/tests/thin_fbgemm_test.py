"""tools/thin_fbgemm.py: what it overwrites in a library, and that the rest stays."""

import pathlib
import re
import struct
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import thin_fbgemm  # noqa: E402

PTX = 1
ENTRY_HEADER = 64
FORWARD = b"split_embedding_codegen_forward_unweighted_kernel"


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    code = code.ljust(-(-len(code) // 8) * 8, b"\0")
    head = bytearray(ENTRY_HEADER)
    struct.pack_into("<HHIQ", head, 0, kind, 0, ENTRY_HEADER, len(code))
    struct.pack_into("<I", head, 0x1C, architecture)
    return bytes(head) + code


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", thin_fbgemm.FATBIN_MAGIC, 1, 16, len(body)) + body


def library(*fat_binaries: bytes) -> bytes:
    """An ELF file with the sections "", ".nv_fatbin" and ".shstrtab"."""
    section = b"\0" * 8 + b"".join(fat_binaries)  # what fills up is stepped over
    names = b"\0.nv_fatbin\0.shstrtab\0"
    begin = 64
    table = begin + len(section) + len(names)
    head = bytearray(begin)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", head, 40, table)
    struct.pack_into("<HHH", head, 58, 64, 3, 2)
    headers = bytearray(3 * 64)
    for number, (name, at, size) in enumerate(((0, 0, 0), (1, begin, len(section)),
                                               (12, begin + len(section), len(names)))):
        struct.pack_into("<I", headers, number * 64, name)
        struct.pack_into("<QQ", headers, number * 64 + 24, at, size)
    return bytes(head) + section + names + bytes(headers)


class ThinFbgemmTest(unittest.TestCase):

    def thinned(self, data: bytes, name: str) -> bytes:
        changed = bytearray(data)
        thin_fbgemm.thin(changed, name, 90)
        self.assertEqual(len(changed), len(data))
        return bytes(changed)

    def test_other_architectures_and_ptx_go(self) -> None:
        data = library(fat_binary(entry(2, 80, b"old" * 20), entry(2, 90, b"kept" * 20)),
                       fat_binary(entry(PTX, 90, b"text" * 20), entry(2, 90, b"more" * 20)))
        wanted = data.replace(b"old" * 20, bytes(60)).replace(b"text" * 20, bytes(80))
        self.assertEqual(self.thinned(data, "fbgemm_gpu_py.so"), wanted)

    def test_kernels_that_the_benchmark_does_not_launch_go(self) -> None:
        data = library(fat_binary(entry(2, 90, b"xx" + FORWARD), entry(2, 90, b"weighted" * 9)))
        wanted = data.replace(b"weighted" * 9, bytes(72))
        self.assertEqual(self.thinned(data, "fbgemm_gpu_tbe_training_forward.so"), wanted)
        self.assertEqual(self.thinned(data, "fbgemm_gpu_tbe_inference.so"),
                         wanted.replace(b"xx" + FORWARD, bytes(2 + len(FORWARD))))

    def test_optimizers_are_those_of_the_benchmark(self) -> None:
        cases = pathlib.Path(__file__).parents[2] / "python" / "hps" / "bench" / "_train_cases.py"
        names = set(re.findall(r'"(EXACT_ROWWISE_ADAGRAD|EXACT_\w+|ADAM\w*)"', cases.read_text()))
        self.assertEqual({name.removeprefix("EXACT_").lower() for name in names},
                         set(thin_fbgemm.OPTIMIZERS))

    def test_files_of_a_wheel(self) -> None:
        data = library(fat_binary(entry(2, 80, b"x" * 100_000), entry(2, 90, b"kept" * 20)))
        with tempfile.TemporaryDirectory() as scratch:
            wheel, out = pathlib.Path(scratch) / "f.whl", pathlib.Path(scratch) / "out"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("fbgemm_gpu/a.so", data)
                archive.writestr("fbgemm_gpu/b.so", b"no ELF file")
                archive.writestr("fbgemm_gpu/c.py", "text")
            thin_fbgemm.unpack(wheel, out, 90)
            found = (out / "fbgemm_gpu" / "a.so").read_bytes()
            self.assertEqual(found, data.replace(b"x" * 100_000, bytes(100_000)))
            self.assertEqual((out / "fbgemm_gpu" / "b.so").read_bytes(), b"no ELF file")
            self.assertEqual((out / "fbgemm_gpu" / "c.py").read_text(), "text")


if __name__ == "__main__":
    unittest.main()
