// How a query answers misses from level 2's memory by itself (tier/direct_rows.h).
//
// Bound: two dependent reads over the bus, 1.4 to 1.9 us each, and an address translation for each,
// of which machines were measured to do 37 M a second beyond the first GB. So this suits calls with
// few misses. Eight keys of a tile at a time: four lanes read a key's line, and the warp reads up
// to eight rows before it stores the first one. The second look at the lines travels with the rows,
// since the first one has arrived by then.
#pragma once

#include <cstdint>

#include "gpu/device_memory.cuh"
#include "l1_gpu/kernels/query_task.h"
#include "tier/direct_rows.h"

namespace hps {

inline constexpr uint32_t kDirectGroup = 8;  // keys at a time
inline constexpr uint32_t kLanesPerLine = 4;
// Looks at lines that change meanwhile, before their keys are left to the host.
inline constexpr int kDirectRounds = 4;

// What the four lanes of a group have found in their line.
struct DirectEntry {
  uint32_t entry;     // kDirectLineEntries: none
  uint32_t slot;      // of the row
  uint64_t sequence;  // of the line
};

// `part` is the lane's 16 bytes of its group's line. For all lanes of a warp.
__device__ inline DirectEntry FindDirectEntry(uint4 part, uint64_t key) {
  static_assert(kDirectSequenceOffset == 40 && kDirectSlotsOffset == 48);
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t number = lane % kLanesPerLine;
  const uint32_t first_lane = lane - number;
  const uint64_t low = static_cast<uint64_t>(part.y) << 32 | part.x;
  const uint64_t high = static_cast<uint64_t>(part.w) << 32 | part.z;
  uint32_t same = 0;
  if (number < 3 && low == key) same = 1u << 2 * number;
  if (number < 2 && high == key) same |= 2u << 2 * number;
  same |= __shfl_xor_sync(kAllLanes, same, 1);
  same |= __shfl_xor_sync(kAllLanes, same, 2);
  const uint32_t slots[3] = {__shfl_sync(kAllLanes, part.x, first_lane + 3),
                             __shfl_sync(kAllLanes, part.y, first_lane + 3),
                             __shfl_sync(kAllLanes, part.z, first_lane + 3)};
  DirectEntry found;
  found.sequence = __shfl_sync(kAllLanes, high, first_lane + 2);
  found.entry = kDirectLineEntries;
  found.slot = 0;
#pragma unroll
  for (uint32_t entry = 0; entry < kDirectLineEntries; ++entry) {
    const uint32_t slot = slots[entry / 2] >> entry % 2 * 16 & 0xffff;
    // A free entry keeps its last key.
    if ((same >> entry & 1) != 0 && slot != 0 && slot != kDirectAbsentSlot) {
      found.entry = entry;
      found.slot = slot;
    }
  }
  return found;
}

// The lane's 16 bytes of line number `line`, if wanted.
__device__ inline uint4 LoadDirectLine(const DirectRows& direct, uint32_t line, bool wanted) {
  if (!wanted) return make_uint4(0, 0, 0, 0);
  const uint32_t number = threadIdx.x % kLanesPerLine;
  return LoadOfHost(reinterpret_cast<const uint4*>(
      direct.lines + uint64_t{line} * kDirectLineBytes + number * sizeof(uint4)));
}

// Lane `number`, counted from 0, of those in `lanes`; kWarpLanes: there are fewer.
__device__ inline uint32_t LaneOf(uint32_t lanes, uint32_t number) {
  uint32_t lane = kWarpLanes;
#pragma unroll
  for (uint32_t i = 0; i < kDirectGroup; ++i) {
    if (i == number && lanes != 0) lane = __ffs(lanes) - 1;
    lanes &= lanes - 1;
  }
  return lane;
}

// Copies the rows of up to kDirectGroup lanes, the first ones of `lanes`, to their positions.
// Returns those whose rows are proved to be their keys'. For all lanes of a warp.
__device__ inline uint32_t ReadDirectGroup(const DirectRows& direct, const QueryTask& task,
                                           uint32_t lanes, uint64_t key, uint32_t position) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t owner = LaneOf(lanes, lane / kLanesPerLine);
  const bool active = owner < kWarpLanes;
  const uint64_t mine = __shfl_sync(kAllLanes, key, owner % kWarpLanes);
  const uint32_t to = __shfl_sync(kAllLanes, position, owner % kWarpLanes);
  const DirectPlace place = DirectPlaceOf(direct, static_cast<Key>(mine));
  const uint32_t first_line = place.partition * direct.line_count;
  uint32_t line = first_line + place.first;
  DirectEntry found = FindDirectEntry(LoadDirectLine(direct, line, active), mine);
  const bool goes_on = active && found.entry == kDirectLineEntries;
  if (__any_sync(kAllLanes, goes_on)) {
    const DirectEntry second =
        FindDirectEntry(LoadDirectLine(direct, first_line + place.second, goes_on), mine);
    if (goes_on) {
      line = first_line + place.second;
      found = second;
    }
  }
  const bool has_row = active && found.entry != kDirectLineEntries;
  const uint32_t with_row = __ballot_sync(kAllLanes, has_row);
  if (with_row == 0) return 0;
  const uint64_t row = uint64_t{place.partition} * direct.slot_count + found.slot - 1;
  FenceHostBehindDependency();
  __syncwarp();

  uint4 again = make_uint4(0, 0, 0, 0);
  for (uint32_t begin = 0; begin < task.row_bytes; begin += kWarpLanes * sizeof(uint4)) {
    const uint32_t offset = begin + lane * static_cast<uint32_t>(sizeof(uint4));
    uint4 values[kDirectGroup];
#pragma unroll
    for (uint32_t i = 0; i < kDirectGroup; ++i) {
      const uint64_t from = __shfl_sync(kAllLanes, row, i * kLanesPerLine);
      if ((with_row >> i * kLanesPerLine & 1) != 0 && offset < task.row_bytes)
        values[i] = LoadOfHost(
            reinterpret_cast<const uint4*>(direct.rows + from * direct.stride_bytes + offset));
    }
    if (begin == 0) again = LoadDirectLine(direct, line, has_row);
#pragma unroll
    for (uint32_t i = 0; i < kDirectGroup; ++i) {
      const uint32_t at = __shfl_sync(kAllLanes, to, i * kLanesPerLine);
      if ((with_row >> i * kLanesPerLine & 1) != 0 && offset < task.row_bytes)
        StoreStreamed(reinterpret_cast<uint4*>(task.rows + at * task.row_stride_bytes + offset),
                      values[i]);
    }
  }
  const DirectEntry proof = FindDirectEntry(again, mine);
  const bool proved = has_row && proof.entry == found.entry && proof.slot == found.slot &&
                      proof.sequence == found.sequence;
  const uint32_t groups = __ballot_sync(kAllLanes, proved);
  uint32_t answered = 0;
#pragma unroll
  for (uint32_t i = 0; i < kDirectGroup; ++i) {
    if ((groups >> i * kLanesPerLine & 1) != 0) answered |= 1u << LaneOf(lanes, i);
  }
  return answered;
}

// Writes the rows of a tile's misses, in `lanes`, that level 2 holds. Returns the lanes whose rows
// it has written. For all lanes of a warp, at least one of them missing. A function of its own, so
// that its registers do not count for the others.
static __device__ __noinline__ uint32_t ReadDirectRows(const DirectRows& direct,
                                                       const QueryTask& task, uint32_t lanes,
                                                       uint64_t key, uint32_t position) {
  uint32_t answered = 0;
  for (uint32_t rest = lanes; rest != 0;) {
    uint32_t group = 0;
    for (uint32_t i = 0; i < kDirectGroup && rest != 0; ++i, rest &= rest - 1)
      group |= rest & (0 - rest);
    uint32_t open = group;
    for (int round = 0; round < kDirectRounds && open != 0; ++round) {
      const uint32_t done = ReadDirectGroup(direct, task, open, key, position);
      if (done == 0) break;  // level 2 lacks them, or they are changing
      open &= ~done;
    }
    answered |= group & ~open;
  }
  return answered;
}

}  // namespace hps
