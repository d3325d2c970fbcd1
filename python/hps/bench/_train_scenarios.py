"""What a GPU's tables cost when rows come: steps with new keys, insertion, growth, memory.

Scenarios of hps alone, with row-wise AdaGrad. A table has grown in a call if the GPU has less free
memory after it than before: PyTorch keeps the memory of the calls before it, and nothing else may
use the GPU.
"""

import gc
import statistics
import time
from collections.abc import Callable

import torch

import hps.train as ht
from hps.bench import _train_peers
from hps.bench._train_cases import DIM, LARGE, NONE, ROWWISE
from hps.bench._train_peers import BATCHES, FILL, GRADIENT, Data, HpsPeer, gradient_of, hashed

FIRST_NEW = 1 << 40  # numbers from here on are of no row of `Data`

NEW_PART, NEW_ROUNDS_MAX = 10, 30  # one of so many keys is new
NEW_RUNS = 5

INSERTED = 24 * FILL  # 50 M

GROWN_DIM, GROWN_FROM = 8, 1 << 25
GROWN_KEYS = 1 << 16  # of a step, all new

MEMORY_FILL = 1 << 16  # keys of a call
FLOAT_BYTES, ROWWISE_STATE_BYTES = 4, 4

TARGETS = {"new keys": ">= 0.8", "insertion": ">= 1200000000", "growth": "<= 10", "memory": "<= 64"}


def new_keys(begin: int, count: int, device: torch.device) -> torch.Tensor:
    return hashed(torch.arange(FIRST_NEW + begin, FIRST_NEW + begin + count, device=device))


def timed_with_growth(work: Callable, device: torch.device) -> tuple[float, bool]:
    """Seconds, and whether a table has grown."""
    before = _train_peers.free_bytes(device)
    seconds = _train_peers.timed(work)
    return seconds, _train_peers.free_bytes(device) < before


class _Mixture:
    """Batches of known keys, and the same with a part that was never seen."""

    def __init__(self, data: Data) -> None:
        self._known = [data.keys(data.draw(LARGE, seed)) for seed in range(BATCHES)]
        self._next = 0

    def known(self) -> list[torch.Tensor]:
        return self._known

    def mixed(self) -> list[torch.Tensor]:
        return [self._with_new(keys) for keys in self._known]

    def _with_new(self, keys: torch.Tensor) -> torch.Tensor:
        mixed = keys.clone()
        replaced = mixed[:, ::NEW_PART]
        replaced.copy_(new_keys(self._next, replaced.numel(), keys.device).view(replaced.shape))
        self._next += replaced.numel()
        return mixed


def steps_with_new_keys(data: Data) -> list[dict]:
    """Steps in which a tenth of the keys are new, against the same steps without. The two take
    turns, and rounds count in which no table grew: the others show in params."""
    peer, batches = HpsPeer(data, ROWWISE), _Mixture(data)
    gradient = gradient_of(LARGE, ROWWISE, data.device)

    def seconds(parts: list[torch.Tensor]) -> tuple[float, bool]:
        keys = [ht.Keys(peer.names, part.view(-1)) for part in parts]
        whole, has_grown = timed_with_growth(
            lambda: [peer.step(each, gradient) for each in keys], data.device)
        return whole / BATCHES, has_grown

    for _ in range(2):
        seconds(batches.known())
        seconds(batches.mixed())
    mixed: list[float] = []
    known, grown = [], []
    while len(mixed) < NEW_RUNS and len(mixed) + len(grown) < NEW_ROUNDS_MAX:
        without, _ = seconds(batches.known())
        step, has_grown = seconds(batches.mixed())
        if has_grown:
            grown.append(step)
            continue
        known.append(without)
        mixed.append(step)
    name = "a tenth of the keys new, over the step without, " + str(LARGE)
    target = TARGETS["new keys"]
    params = LARGE.params() | {"new_keys_a_step": len(data.sizes) * -(-LARGE.batch // NEW_PART),
                               "rounds_with_growth": len(grown)}
    if not mixed:
        return [{"name": name, "params": params, "unit": "keys/s", "target": target,
                 "skipped": "a table grew in every round"}]
    figure, bound = statistics.median(mixed), statistics.median(known)
    params |= {"step_us": figure * 1e6, "bound_us": bound * 1e6}
    if grown:
        params["step_with_growth_us"] = statistics.median(grown) * 1e6
    return [{"name": name, "params": params, "unit": "keys/s", "figure": LARGE.keys / figure,
             "bound": LARGE.keys / bound, "ratio": bound / figure, "target": target,
             "runs": len(mixed), "range": [LARGE.keys / max(mixed), LARGE.keys / min(mixed)]}]


def insertion(data: Data) -> list[dict]:
    """Training forwards over new keys of one table, until it has INSERTED rows: all of them, and
    those in which the table had room."""
    embed = ht.EmbeddingCollection([ht.Table("t", DIM, optimizer=ROWWISE.own())],
                                   device=data.device)
    every, steady = [], []
    for begin in range(0, INSERTED, FILL):
        keys = {"t": new_keys(begin, FILL, data.device)}
        seconds, has_grown = timed_with_growth(lambda: embed(keys), data.device)
        every.append(seconds)
        if begin and not has_grown:
            steady.append(seconds)
    rows = embed.statistics()["t"]["rows"]
    params = {"tables": 1, "dim": DIM, "keys_a_call": FILL, "rows": rows}
    found = [{"name": "insertion of new rows, with all growth", "params": params, "unit": "rows/s",
              "figure": rows / sum(every), "target": NONE, "runs": len(every),
              "range": [FILL / max(every), FILL / min(every)]}]
    name = "insertion of new rows, calls without growth"
    common = {"name": name, "params": params, "unit": "rows/s", "target": TARGETS["insertion"]}
    if not steady:
        return [*found, common | {"skipped": "the table grew in every call"}]
    return [*found, common | {"figure": FILL / statistics.median(steady), "runs": len(steady),
                              "range": [FILL / max(steady), FILL / min(steady)]}]


def growth(data: Data) -> list[dict]:
    """The longest step, forward to update, while a table doubles its rows. The program waits for
    the GPU before and after each step. The rows are narrow: what moves is the index alone."""
    device = data.device
    embed = ht.EmbeddingCollection([ht.Table("t", GROWN_DIM, optimizer=ROWWISE.own())],
                                   device=device)
    for begin in range(0, GROWN_FROM, FILL):
        embed({"t": new_keys(begin, min(FILL, GROWN_FROM - begin), device)})
    gradient = torch.full((GROWN_KEYS, GROWN_DIM), GRADIENT, device=device)

    def step(begin: int) -> tuple[float, bool]:
        keys = {"t": new_keys(begin, GROWN_KEYS, device)}
        free = _train_peers.free_bytes(device)
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        embed(keys).tensor.backward(gradient)
        torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
        return seconds, _train_peers.free_bytes(device) < free

    for _ in range(3):
        step(0)  # keys that have rows
    gc.collect()  # not within a step
    steps = [step(begin) for begin in range(GROWN_FROM, 2 * GROWN_FROM, GROWN_KEYS)]
    times = [seconds * 1e3 for seconds, _ in steps]
    return [{"name": f"longest step while a table grows from {GROWN_FROM} to {2 * GROWN_FROM} rows",
             "params": {"tables": 1, "dim": GROWN_DIM, "new_keys_a_step": GROWN_KEYS,
                        "rows": embed.statistics()["t"]["rows"],
                        "median_ms": statistics.median(times),
                        "steps_with_growth": sum(has_grown for _, has_grown in steps)},
             "unit": "ms", "figure": max(times), "target": TARGETS["growth"], "runs": len(times),
             "range": [min(times), max(times)]}]


def memory(data: Data) -> list[dict]:
    """The GPU's memory that tables have taken for a row, beside its vector and state. That is more
    than the rows need: tables keep room for the keys of some steps."""
    HpsPeer(Data(data.device, [1]), ROWWISE)  # loads kernels, which take memory, too
    _release(data.device)
    before = _train_peers.free_bytes(data.device)
    peer = HpsPeer(data, ROWWISE, MEMORY_FILL)
    _release(data.device)
    taken = before - _train_peers.free_bytes(data.device)
    counted = peer.embed.statistics().values()
    rows = sum(each["rows"] for each in counted)
    vector = DIM * FLOAT_BYTES
    needed = vector + ROWWISE_STATE_BYTES
    return [{"name": "memory of a row, beside its vector and state",
             "params": {"tables": len(data.sizes), "dim": DIM, "rows": rows,
                        "keys_a_call": MEMORY_FILL, "vector_bytes": vector,
                        "state_bytes": ROWWISE_STATE_BYTES, "taken_bytes": taken,
                        "without_room_bytes": sum(each["bytes"] for each in counted) / rows -
                        needed},
             "unit": "bytes/row", "figure": taken / rows - needed, "target": TARGETS["memory"],
             "runs": 1}]


def _release(device: torch.device) -> None:
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()


SCENARIOS: dict[str, Callable[[Data], list[dict]]] = {
    "new keys": steps_with_new_keys, "insertion": insertion, "growth": growth, "memory": memory}
