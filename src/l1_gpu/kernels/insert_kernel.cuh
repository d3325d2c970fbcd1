// Inserts keys that are not held.
//
// Bound with eviction: per key it reads the key, two slabs of 64 bytes and the new row, and writes
// the row and sectors of two slabs.
//
// A warp works in rounds: it looks at both slabs of each key; held keys are done; for the others it
// tries to lock the slabs they need. With the locks it looks again, takes a slot, writes and
// unlocks. An insertion always locks the key's first slab, so of two insertions of the same key the
// second one sees the first.
#pragma once

#include <cstdint>

#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {

// A key of a tile during its insertion; lane i has key i.
struct Insertion {
  uint64_t key;
  SlabPair pair;
  bool pending;
  bool locks_second;  // otherwise the first slab alone
  Probe first;
  Probe second;
  uint32_t slab;  // the slab that receives the key
  uint32_t slot;  // in the slab; kNoSlot: no slot in this round
};

struct InsertionCounts {
  uint32_t insertions = 0;
  uint32_t evictions = 0;
  uint32_t left_out = 0;
};

// Looks without a lock, which suffices to see which keys are held and whether a key needs one slab
// or two.
template <int kTileKeys>
__device__ inline void LookBeforeLocks(const TableView& table, Insertion& mine) {
  ProbeSlabs<kTileKeys>(table.slabs, mine.pair.first, mine.key,
                        __ballot_sync(kAllLanes, mine.pending), mine.first);
  mine.locks_second =
      mine.pending && mine.first.matches == 0 &&
      (IsFull(mine.first.control) || (mine.first.control & kControlOverflowed) != 0);
  const uint32_t going_on = __ballot_sync(kAllLanes, mine.locks_second);
  if (going_on != 0)
    ProbeSlabs<kTileKeys>(table.slabs, mine.pair.second, mine.key, going_on, mine.second);
  if (mine.first.matches != 0 || (mine.locks_second && mine.second.matches != 0))
    mine.pending = false;
}

// Tries to lock the slabs that the key needs, the lower one first. All or none.
__device__ inline bool TryLocks(const TableView& table, const Insertion& mine) {
  Slab* const first = table.slabs + mine.pair.first;
  Slab* const second = table.slabs + mine.pair.second;
  if (!mine.locks_second) return TryLock(first);
  Slab* const lower = first < second ? first : second;
  Slab* const higher = first < second ? second : first;
  if (!TryLock(lower)) return false;
  if (TryLock(higher)) return true;
  // Nothing was changed: the word is the same except for the lock bit, which only the holder
  // clears.
  atomicAnd(&lower->control, ~kControlLocked);
  return false;
}

// Frees a slot in the key's first slab, which `lane` has locked: moves a resident whose first slab
// it is to the resident's second slab. Returns the freed slot, or kNoSlot. `contended` reports that
// a slab which might have had room was locked. For all lanes of a warp.
__device__ __noinline__ uint32_t MoveOneOut(const WriteLaunch& launch, uint32_t slab_number,
                                            uint32_t stamps, uint32_t taken, bool& contended) {
  const TableView& table = launch.view.table;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t slot = lane < kSlabSlots ? lane : 0;
  Slab* const slab = table.slabs + slab_number;
  const uint64_t resident = LoadRelaxed(KeyOfSlot(slab, slot));
  const SlabPair pair = SlabsOf(resident, table.slab_count);
  const bool dump_allows =
      (slab_number < launch.dumped_slab_count) == (pair.second < launch.dumped_slab_count);
  const bool movable =
      lane < kSlabSlots && pair.first == slab_number && pair.second != taken && dump_allows;
  Slab* const target = table.slabs + pair.second;
  uint32_t control = kControlValidMask << kControlValidShift;
  if (movable) control = LoadRelaxed(&target->control);
  uint32_t candidates = __ballot_sync(kAllLanes, movable && !IsFull(control));
  for (; candidates != 0; candidates &= candidates - 1) {
    const uint32_t mover = __ffs(candidates) - 1;
    control = kControlLocked;
    if (lane == mover) control = atomicOr(&target->control, kControlLocked);
    control = __shfl_sync(kAllLanes, control, mover);
    if ((control & kControlLocked) != 0) {
      contended = true;
      continue;
    }
    if (IsFull(control)) {
      if (lane == mover) Unlock(target, control);
      continue;
    }
    FenceGpu();
    __syncwarp();
    const uint32_t to = FreeSlot(control);
    const uint32_t target_number = __shfl_sync(kAllLanes, pair.second, mover);
    const std::byte* const from_row =
        table.rows +
        (static_cast<uint64_t>(slab_number) * kSlabSlots + mover) * table.row_stride_bytes;
    std::byte* const to_row =
        table.rows +
        (static_cast<uint64_t>(target_number) * kSlabSlots + to) * table.row_stride_bytes;
    for (uint32_t i = lane; i < table.row_stride_bytes / sizeof(uint4); i += kWarpLanes) {
      StoreRelaxed(reinterpret_cast<uint4*>(to_row) + i,
                   LoadRelaxed(reinterpret_cast<const uint4*>(from_row) + i));
    }
    if (lane == mover) {
      StoreRelaxed(KeyOfSlot(target, to), resident);
      const uint32_t targets_stamps = LoadRelaxed(&target->stamps);
      StoreRelaxed(&target->stamps, WithStamp(targets_stamps, to, StampOfSlot(stamps, mover)));
    }
    FenceGpu();
    __syncwarp();
    if (lane == mover) Unlock(target, WithSlot(control, to) + kControlVersionStep);
    return mover;
  }
  return kNoSlot;
}

// The slot of the least recently used key of both slabs.
__device__ inline void TakeOldestSlot(const TableView& table, Insertion& mine) {
  uint32_t oldest = 0;
  mine.slab = mine.pair.first;
  mine.slot = 0;
#pragma unroll
  for (uint32_t i = 0; i < 2 * kSlabSlots; ++i) {
    const uint32_t slot = i % kSlabSlots;
    const uint32_t stamps = i < kSlabSlots ? mine.first.stamps : mine.second.stamps;
    const uint32_t age = (table.stamp_epoch - StampOfSlot(stamps, slot)) % kStampEpochs;
    if (age <= oldest) continue;
    oldest = age;
    mine.slab = i < kSlabSlots ? mine.pair.first : mine.pair.second;
    mine.slot = slot;
  }
}

// Finds a slot for each lane that holds its locks. Returns whether there is none unless another key
// is evicted. For all lanes of a warp.
__device__ inline bool TakeSlot(const WriteLaunch& launch, bool locked, bool may_move,
                                Insertion& mine) {
  mine.slot = kNoSlot;
  bool full = false;
  if (locked) {
    const bool held = mine.first.matches != 0 || (mine.locks_second && mine.second.matches != 0);
    if (held) {
      mine.pending = false;
    } else if (!mine.locks_second) {
      // The slab may have become full, or overflowed, since it was looked at: then both are needed.
      const bool is_enough =
          !IsFull(mine.first.control) && (mine.first.control & kControlOverflowed) == 0;
      if (is_enough) mine.slot = FreeSlot(mine.first.control);
      mine.slab = mine.pair.first;
    } else if (!IsFull(mine.first.control)) {
      mine.slot = FreeSlot(mine.first.control);
      mine.slab = mine.pair.first;
    } else if (!IsFull(mine.second.control)) {
      mine.slot = FreeSlot(mine.second.control);
      mine.slab = mine.pair.second;
    } else {
      full = true;
    }
  }
  bool contended = false;
  uint32_t movers = may_move ? __ballot_sync(kAllLanes, full) : 0;
  for (; movers != 0; movers &= movers - 1) {
    const uint32_t lane = __ffs(movers) - 1;
    bool contends = false;
    const uint32_t slot = MoveOneOut(launch, __shfl_sync(kAllLanes, mine.pair.first, lane),
                                     __shfl_sync(kAllLanes, mine.first.stamps, lane),
                                     __shfl_sync(kAllLanes, mine.pair.second, lane), contends);
    if (threadIdx.x % kWarpLanes != lane) continue;
    contended = contends && slot == kNoSlot;
    if (slot == kNoSlot) continue;
    mine.slab = mine.pair.first;
    mine.slot = slot;
    mine.first.control |= kControlOverflowed;
  }
  return full && mine.slot == kNoSlot && !contended;
}

// Whether another key is evicted for the key of a lane that is `full`. Counts such keys in the
// sketch. Several warps may change a word of it at once: a lost count makes an estimate worse, and
// no answer. For all lanes of a warp.
__device__ inline bool MayEvict(const WriteView& write, bool full, uint64_t key) {
  if (write.admission != Admission::kFrequent) return full && write.admission == Admission::kAlways;
  const uint32_t counted = __ballot_sync(kAllLanes, full);
  if (counted == 0) return false;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t leader = __ffs(counted) - 1;
  unsigned long long number = 0;
  if (lane == leader) {
    number = atomicAdd(reinterpret_cast<unsigned long long*>(&write.table.counters->sketched),
                       static_cast<unsigned long long>(__popc(counted)));
  }
  number = __shfl_sync(kAllLanes, number, leader) + __popc(counted & ((1u << lane) - 1));
  if (!full) return false;
  const uint32_t word_count = write.table.slab_count * kFrequencyWordsPerSlab;
  if (number % kKeysPerAgedWord == 0) {
    FrequencyWord* const oldest = write.frequencies + number / kKeysPerAgedWord % word_count;
    StoreRelaxed(oldest, AgedFrequencies(LoadRelaxed(oldest)));
  }
  const uint64_t hash = FrequencyHash(static_cast<Key>(key));
  FrequencyWord* const word = write.frequencies + FrequencyWordOf(hash, word_count);
  const FrequencyUpdate update = CountFrequency(LoadRelaxed(word), hash);
  StoreRelaxed(word, update.word);
  return update.count >= kFrequentCount;
}

// Writes key and stamp of the slot that was taken.
__device__ inline void WriteSlot(const TableView& table, const Insertion& mine) {
  Slab* const slab = table.slabs + mine.slab;
  const uint32_t stamps = mine.slab == mine.pair.first ? mine.first.stamps : mine.second.stamps;
  StoreRelaxed(KeyOfSlot(slab, mine.slot), mine.key);
  StoreRelaxed(&slab->stamps, WithStamp(stamps, mine.slot, table.stamp_epoch));
}

// Releases the locks. A changed slab gets a new version. If only the second slab was filled, the
// first one gets one too, because its overflow bit changes.
__device__ inline void UnlockBoth(const TableView& table, const Insertion& mine) {
  uint32_t first = mine.first.control;
  uint32_t second = mine.second.control;
  if (mine.slot != kNoSlot && mine.slab == mine.pair.first)
    first = WithSlot(first, mine.slot) + kControlVersionStep;
  if (mine.slot != kNoSlot && mine.slab != mine.pair.first) {
    second = WithSlot(second, mine.slot) + kControlVersionStep;
    first = (first | kControlOverflowed) + kControlVersionStep;
  }
  if (mine.locks_second) Unlock(table.slabs + mine.pair.second, second);
  Unlock(table.slabs + mine.pair.first, first);
}

// A contended slab is tried this often before a key is evicted instead.
inline constexpr int kMoveRounds = 8;

template <typename Rows>
__device__ inline void InsertTile(const WriteLaunch& launch, uint32_t first, bool may_move,
                                  InsertionCounts& counts) {
  const TableView& table = launch.view.table;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  Insertion mine = {};
  mine.pending = lane < Rows::kTileKeys && first + lane < launch.view.key_count;
  if (mine.pending)
    mine.key = LoadNonCoherent(reinterpret_cast<const uint64_t*>(launch.view.keys) + first + lane);
  mine.pair = SlabsOf(mine.key, table.slab_count);
  for (int round = 0; __any_sync(kAllLanes, mine.pending); ++round) {
    LookBeforeLocks<Rows::kTileKeys>(table, mine);
    const bool locked = mine.pending && TryLocks(table, mine);
    FenceGpu();
    __syncwarp();
    ProbeSlabs<Rows::kTileKeys>(table.slabs, mine.pair.first, mine.key,
                                __ballot_sync(kAllLanes, locked), mine.first);
    const uint32_t both = __ballot_sync(kAllLanes, locked && mine.locks_second);
    if (both != 0)
      ProbeSlabs<Rows::kTileKeys>(table.slabs, mine.pair.second, mine.key, both, mine.second);
    const bool full = TakeSlot(launch, locked, may_move && round < kMoveRounds, mine);
    const bool evicts = MayEvict(launch.view, full, mine.key);
    if (evicts) TakeOldestSlot(table, mine);
    if (full && !evicts) mine.pending = false;
    const bool placed = locked && mine.slot != kNoSlot;
    if (placed) WriteSlot(table, mine);
    Rows::template Copy<CopyTo::kTable>(PlacesOfTile(launch, first), table.row_bytes,
                                        placed ? mine.slab * kSlabSlots + mine.slot : kNoSlot,
                                        launch.kind);
    FenceGpu();
    __syncwarp();
    if (locked) UnlockBoth(table, mine);
    if (placed) mine.pending = false;
    counts.insertions += placed ? 1 : 0;
    counts.evictions += evicts ? 1 : 0;
    counts.left_out += full && !evicts ? 1 : 0;
  }
}

// Moving pays while there is room; in a full table the search would end in an eviction anyway.
__device__ inline bool HasRoomForMoves(const TableView& table) {
  const auto read = [](const uint64_t& counter) { return LoadRelaxed(&counter); };
  const TableCounters& counters = *table.counters;
  const uint64_t held = read(counters.insertions) - read(counters.evictions) -
                        read(counters.erased) - read(counters.cleared);
  return held < uint64_t{table.slab_count} * kSlabSlots / 16 * 15;
}

template <typename Rows, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    InsertKernel(const __grid_constant__ WriteLaunch launch) {
  InsertionCounts counts;
  const bool may_move = __all_sync(kAllLanes, HasRoomForMoves(launch.view.table));
  WriteTiles<Rows::kTileKeys>(launch, &SequenceWords::slabs, [&](uint32_t first) {
    InsertTile<Rows>(launch, first, may_move, counts);
  });
  AddToCounter(&launch.view.table.counters->insertions, counts.insertions);
  AddToCounter(&launch.view.table.counters->evictions, counts.evictions);
  TableCounters* const counters = launch.view.table.counters;
  AddToCounter(
      launch.view.admission == Admission::kIfRoom ? &counters->dropped : &counters->not_admitted,
      counts.left_out);
}

}  // namespace hps
