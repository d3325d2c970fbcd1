"""Lookups from Python: arrays of all kinds in and out, options, threads, bad input."""

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import support

import hps


class LookupTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.session = self.store.session(support.MODEL)

    def test_one_table(self) -> None:
        keys = self.random.integers(-100, support.ROWS + 100, 1000)
        self.expect_rows("user", keys)

    def expect_rows(self, table: str, keys: np.ndarray) -> None:
        rows, status = self.session.lookup(table, keys, status=True)
        self.assert_rows(table, keys, rows)
        present = (keys >= 0) & (keys < support.ROWS)
        self.assertEqual(status.dtype, np.uint8)
        np.testing.assert_array_equal(status == hps.Status.ABSENT, ~present)

    def test_every_size_and_shape(self) -> None:
        for shape in ((), (0,), (1,), (31,), (32,), (33,), (2, 3), (4, 0), (2, 3, 5)):
            with self.subTest(shape=shape):
                self.expect_rows("item", self.random.integers(0, support.ROWS, shape))

    def test_several_tables(self) -> None:
        asked = {"item": self.random.integers(0, 100, (5, 3)),
                 "user": self.random.integers(-5, 100, 17),
                 f"{support.MODEL}/user": np.empty(0, np.int64)}
        rows, status = self.session.lookup(asked, status=True)
        self.assertEqual(list(rows), list(asked))
        for name, keys in asked.items():
            self.assert_rows(name.rpartition("/")[2], keys, rows[name])
            self.assertEqual(status[name].shape, keys.shape)
        self.assertEqual(self.session.lookup({}), {})

    def test_types_of_keys(self) -> None:
        keys = np.array([1, 5, 1999, 3])
        for dtype in (np.int64, np.uint64, np.int32, np.uint32, np.int16, np.uint16):
            self.assert_rows("user", keys, self.session.lookup("user", keys.astype(dtype)))
        for dtype in (np.int8, np.uint8):
            self.assert_rows("user", keys[[0, 1, 3]],
                             self.session.lookup("user", keys[[0, 1, 3]].astype(dtype)))
        self.assert_rows("user", keys, self.session.lookup("user", list(map(int, keys))))
        self.assert_rows("user", keys[0], self.session.lookup("user", int(keys[0])))
        self.assert_rows("user", keys[:0], self.session.lookup("user", []))
        minus_one = np.array([2**64 - 1], np.uint64)
        self.assertEqual(self.session.lookup("user", minus_one, status=True)[1][0],
                         hps.Status.ABSENT)

    def test_memory_of_the_caller(self) -> None:
        keys = {"user": np.arange(10), "item": np.arange(5)}
        out = {"item": np.empty((5, 16), np.float32), "user": np.empty((10, 8), np.float32)}
        rows = self.session.lookup(keys, out=out)
        self.assertIs(rows["user"], out["user"])
        for name in keys:
            self.assert_rows(name, keys[name], out[name])
        one = np.empty((10, 8), np.float32)
        self.assertIs(self.session.lookup("user", keys["user"], out=one), one)
        self.assert_rows("user", keys["user"], one)

    def test_an_answer_is_the_callers(self) -> None:
        """Memory is used again only when no array of the answer is left."""
        keys = np.arange(support.ROWS)
        both = {"user": keys, "item": keys}
        first = self.session.lookup(both)
        kept = first["item"][5:10, ::2]
        expected = kept.copy()
        through_dlpack = np.from_dlpack(first["user"])
        addresses = set()
        del first
        for shift in range(1, 6):
            rows = self.session.lookup({"user": (keys + shift) % 100, "item": keys * 0})
            addresses.add(rows["user"].ctypes.data)
            np.testing.assert_array_equal(kept, expected)
            np.testing.assert_array_equal(through_dlpack, support.row_of("user", keys))
            rows["user"][:] = 7
            del rows
        self.assertEqual(len(addresses), 1)  # these were dropped

    def test_read_only_keys(self) -> None:
        keys = np.arange(10)
        keys.flags.writeable = False
        self.assert_rows("user", keys, self.session.lookup("user", keys))

    def test_no_wait_gives_flagged_defaults(self) -> None:
        keys = np.arange(500)
        rows, status = self.session.lookup("user", keys, status=True, timeout=0)
        self.assertTrue((status == hps.Status.DEFAULT_DEGRADED).any())
        np.testing.assert_array_equal(rows[status == hps.Status.DEFAULT_DEGRADED], support.DEFAULT)
        _, status = self.session.lookup("item", keys, status=True, hit_rate_threshold=0.0)
        self.assertTrue((status == hps.Status.DEFAULT_PENDING).all())

    def test_promoted_rows_come_from_level_2(self) -> None:
        keys = np.arange(100)
        self.session.lookup("user", keys)
        self.store.drain()
        rows, status = self.session.lookup("user", keys, status=True, timeout=5)
        self.assert_rows("user", keys, rows)
        self.assertTrue((status == hps.Status.HIT_L2).all())
        counted = self.store.statistics()
        self.assertEqual(counted["lookups"], 2)
        self.assertEqual(counted["tables"][0]["keys"]["hit_l2"], 100)

    def test_any_thread_may_call(self) -> None:
        wrong = []

        def look_up(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(50):
                keys = random.integers(0, support.ROWS, 200)
                rows = self.session.lookup({"user": keys, "item": keys})
                if any((rows[name] != support.row_of(name, keys)).any() for name in rows):
                    wrong.append(seed)

        threads = [threading.Thread(target=look_up, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


def is_found(status: np.ndarray) -> np.ndarray:
    return np.isin(status, (hps.Status.HIT_L1, hps.Status.HIT_L2, hps.Status.HIT_L3))


class BadInputTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.session = self.store.session(support.MODEL)

    def expect(self, kind: type, part: str, *arguments, **options) -> None:
        with self.assertRaises(kind) as caught:
            self.session.lookup(*arguments, **options)
        self.assertRegex(str(caught.exception), part)

    def test_keys(self) -> None:
        wrong = hps.InvalidArgumentError
        self.expect(wrong, "keys of table 'ctr/user'", "user", np.arange(3.0))
        self.expect(wrong, "keys of table 'ctr/user'", "user", np.array([True]))
        self.expect(wrong, "keys of table 'user'", "user", [1.5])
        self.expect(wrong, "keys of table 'user'", "user", [[1], [2, 3]])
        self.expect(TypeError, "keys of table 'user'", "user", "text")
        self.expect(TypeError, "keys of table 'user'", "user")
        self.expect(TypeError, "keys", {"user": np.arange(3)}, np.arange(3))
        for table in (7, None, b"user", ["user"]):
            self.expect(TypeError, "table: .*" + type(table).__name__, table, np.arange(3))
        self.expect(hps.NotFoundError, "did you mean 'user'", "usr", np.arange(3))

    def test_more_keys_than_keys_max(self) -> None:
        few = self.store.session(support.MODEL, keys_max=10)
        keys = np.arange(35)
        self.assert_rows("user", keys, few.lookup("user", keys))
        rows, status = few.lookup({"user": keys, "item": keys[:12]}, status=True)
        for table in ("user", "item"):
            expected = self.session.lookup(table, keys[:len(rows[table])], status=True)
            np.testing.assert_array_equal(rows[table], expected[0])
            # The first lookup may have moved a row to level 2 already, so the levels may differ.
            np.testing.assert_array_equal(is_found(status[table]), is_found(expected[1]))

    def test_out(self) -> None:
        wrong, keys = hps.InvalidArgumentError, np.arange(4)
        good = np.empty((4, 8), np.float32)
        self.expect(wrong, "out of table 'ctr/user'", "user", keys, out=good.astype(np.float64))
        self.expect(wrong, "out of table 'user'", "user", keys, out=good[:3])
        self.expect(wrong, "out of table 'user'", "user", keys, out=good.reshape(8, 4))
        strided = np.empty((4, 16), np.float32)[:, ::2]
        self.expect(wrong, "not contiguous", "user", keys, out=strided)
        good.flags.writeable = False
        self.expect(wrong, "read-only", "user", keys, out=good)
        self.expect(TypeError, "out of table 'user'", "user", keys, out=[1])
        self.expect(wrong, "out", {"user": keys}, out={"item": good})

    def test_out_that_shares_memory(self) -> None:
        wrong, keys = hps.InvalidArgumentError, np.arange(4)
        asked = {"ctr/user": keys, "user": keys}
        block = np.zeros((2, 4, 8), np.float32)
        self.session.lookup(asked, out={"ctr/user": block[1], "user": block[0]})
        for rows in block:
            self.assert_rows("user", keys, rows)
        shared = np.zeros((6, 8), np.float32)
        for first in (shared[2:], shared[:4]):
            self.expect(wrong, "out: the memory of two tables overlaps: 'ctr/user' and 'ctr/user'",
                        asked, out={"ctr/user": first, "user": shared[:4]})
        np.testing.assert_array_equal(shared, 0)
        none = self.session.lookup({"ctr/user": keys, "user": keys[:0]},
                                   out={"ctr/user": shared[:4], "user": shared[2:2]})
        self.assert_rows("user", keys, none["ctr/user"])

    def test_memory_that_can_not_be_used(self) -> None:
        wrong, block = hps.InvalidArgumentError, np.zeros((4, 8), np.float32)
        odd = np.frombuffer(bytearray(4 * 32 + 1), np.float32, offset=1).reshape(4, 8)
        self.expect(wrong, "out of table 'ctr/user': not aligned", "user", np.arange(4), out=odd)
        for begin in (0, 8, 24):
            keys = block.reshape(-1)[begin:begin + 8].view(np.int64)
            self.expect(wrong, "out of table 'ctr/user': overlaps", "user", keys, out=block)
            narrow = keys.view(np.int32)[:4]
            self.expect(wrong, "out of table 'ctr/user': overlaps", "user", narrow, out=block)
            self.expect(wrong, "out of table 'ctr/user': overlaps",
                        {"item": keys, "user": np.arange(4)},
                        out={"item": np.zeros((4, 16), np.float32), "user": block})
        np.testing.assert_array_equal(block, 0)
        both = np.zeros(8 + 32 + 8, np.float32)  # keys before and behind the rows
        for keys in (both[:8].view(np.int64), both[40:].view(np.int64)):
            self.session.lookup("user", keys, out=both[8:40].reshape(4, 8))
            self.assert_rows("user", keys, both[8:40].reshape(4, 8))

    def test_options(self) -> None:
        keys = np.arange(4)
        self.expect(hps.InvalidArgumentError, "timeout", "user", keys, timeout=-1)
        self.expect(hps.InvalidArgumentError, "timeout", "user", keys, timeout=float("nan"))
        self.expect(TypeError, "timeout: .*str", "user", keys, timeout="1")
        self.expect(TypeError, "timeout: .*str", {"user": keys}, timeout="1")
        for threshold in (2, -1, float("nan")):
            self.expect(hps.InvalidArgumentError, "hit_rate_threshold", "user", keys,
                        hit_rate_threshold=threshold)
        self.expect(TypeError, "hit_rate_threshold", "user", keys, hit_rate_threshold="x")
        for timeout in (float("inf"), 1e300, 2**2000, np.float32(5)):
            self.assert_rows("user", keys, self.session.lookup("user", keys, timeout=timeout))
        for device in ("gpu", -1, "cuda:x"):
            with self.assertRaisesRegex(hps.InvalidArgumentError, "device"):
                self.store.session(support.MODEL, device)
        with self.assertRaises(hps.NotFoundError):
            self.store.session("crt")

    def test_a_closed_store(self) -> None:
        self.store.close()
        self.store.close()
        self.expect(hps.FailedPreconditionError, "closed", "user", np.arange(3))
        for call in (self.store.tables, self.store.statistics, self.store.load,
                     lambda: self.store.session(support.MODEL)):
            with self.assertRaisesRegex(hps.FailedPreconditionError, "closed"):
                call()
        hps.open(self.path).close()

    def test_lies_about_memory(self) -> None:
        class Liar:
            def __dlpack__(self, **_):
                return "no capsule"

            def __dlpack_device__(self):
                return 1, 0

        with self.assertRaises((TypeError, ValueError)):
            self.session.lookup("user", Liar())

    def test_a_forked_process_is_refused(self) -> None:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.session.lookup("user", np.arange(3))
                answer = b"answered"
            except hps.FailedPreconditionError as error:
                answer = str(error).encode()
            self.store.close()
            os.write(write, answer)
            os._exit(0)
        os.close(write)
        answer = os.read(read, 1000).decode()
        os.close(read)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertIn("fork", answer)
        self.assert_rows("user", np.arange(3), self.session.lookup("user", np.arange(3)))

    def test_no_memory_is_lost(self) -> None:
        keys, out = np.arange(100), np.empty((100, 8), np.float64)

        def work(rounds: int) -> None:
            for _ in range(rounds):
                self.session.lookup({"user": keys, "item": keys}, status=True)
                for bad in ({"keys": keys[::2]}, {"keys": keys, "out": out}, {"keys": None}):
                    try:
                        self.session.lookup("user", **bad)
                    except (TypeError, hps.Error):
                        pass
            gc.collect()

        work(500)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work(3000)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 2048)  # KiB


INTERRUPTED = """
import signal, sys, numpy, hps
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
store = hps.open(sys.argv[1])
session = store.session("ctr")
try:
    print("ready", flush=True)
    while True:
        session.lookup("user", numpy.arange(1000), timeout=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


INTERRUPTED_DRAIN = """
import signal, sys, time, hps
signal.signal(signal.SIGINT, signal.default_int_handler)
store = hps.open(sys.argv[1])
class Busy:  # promotions that do not end
    def drain(self, seconds):
        time.sleep(seconds)
        raise hps.DeadlineExceededError("promotions are left")
real, store._store = store._store, Busy()
try:
    store.drain(0.5)
    sys.exit("the drain ended")
except hps.DeadlineExceededError:
    pass
try:
    print("ready", flush=True)
    store.drain(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
store._store = real
"""


class InterruptTest(support.StoreTestCase):
    def test_control_c_ends_lookups(self) -> None:
        self.expect_interrupt(INTERRUPTED)

    def test_control_c_ends_a_drain(self) -> None:
        self.expect_interrupt(INTERRUPTED_DRAIN)

    def expect_interrupt(self, script: str) -> None:
        self.make_store()
        with subprocess.Popen([sys.executable, "-c", script, str(self.path)],
                              stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            time.sleep(0.2)  # into the calls
            process.send_signal(signal.SIGINT)
            try:
                output, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        self.assertEqual(output, "interrupted\n")
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
