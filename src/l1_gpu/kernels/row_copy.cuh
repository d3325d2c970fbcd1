// Row copies by a warp between a table and a packed or strided array: up to 32 rows of any width
// and alignment, row i of the array from or to its own slot.
//
// The work of a warp is rows x units. A unit is the largest of 16, 4 and 1 bytes that divides every
// address; consecutive lanes take consecutive units. Several loads are in flight before the first
// store. A width that is a power of two up to 32 units of 16 bytes is a compile-time constant
// (RowsOfUnits); other widths divide at run time (RowsOfWidth).
#pragma once

#include <cstdint>

#include "gpu/device_memory.cuh"
#include "l1_gpu/kernels/query_task.h"

namespace hps {

inline constexpr uint32_t kNoSlot = 0xffffffff;

enum class CopyTo {
  kArray,
  kArrayOfQuiescent,  // rows that count only without a writer: see Concurrency::kQuiescent
  kTable,
};

struct RowPlaces {
  std::byte* table;
  uint64_t table_stride_bytes;
  std::byte* array;  // row 0 of the tile
  uint64_t array_stride_bytes;
};

template <typename Unit>
__device__ inline Unit* UnitAt(std::byte* rows, uint64_t stride_bytes, uint32_t row,
                               uint32_t offset) {
  return reinterpret_cast<Unit*>(rows + row * stride_bytes + offset);
}

// Other kernels may access rows of a table concurrently; the array belongs to the caller alone.
template <CopyTo kTo, typename Unit>
__device__ inline Unit LoadUnit(const Unit* from) {
  if constexpr (kTo == CopyTo::kTable) {
    return LoadNonCoherent(from);
  } else {
    return kTo == CopyTo::kArrayOfQuiescent ? LoadRelaxedCta(from) : LoadRelaxed(from);
  }
}
template <CopyTo kTo, bool kStreamed = false, typename Unit>
__device__ inline void StoreUnit(Unit* to, Unit value) {
  if constexpr (kTo == CopyTo::kTable) {
    StoreRelaxed(to, value);
  } else if constexpr (kStreamed) {
    StoreStreamed(to, value);
  } else {
    *to = value;
  }
}

// Source and destination of a unit.
template <CopyTo kTo, typename Unit>
struct UnitMove {
  __device__ UnitMove(const RowPlaces& places, uint32_t row, uint32_t slot, uint32_t offset) {
    Unit* const in_table = UnitAt<Unit>(places.table, places.table_stride_bytes, slot, offset);
    Unit* const in_array = UnitAt<Unit>(places.array, places.array_stride_bytes, row, offset);
    from = kTo == CopyTo::kTable ? in_array : in_table;
    to = kTo == CopyTo::kTable ? in_table : in_array;
  }
  Unit* from;
  Unit* to;
};

// Rows of kUnits x 16 bytes, kUnits a power of two up to 32. kStreamed: for an array that is large
// compared with L2, so that L2 keeps the table's rows, some of which are reused.
template <int kUnits, int kKeys, int kInFlight, bool kStreamed = false>
struct RowsOfUnits {
  static constexpr int kTileKeys = kKeys;

  // Copies row i of the array, for lanes i < kKeys that have a slot.
  template <CopyTo kTo>
  __device__ static void Copy(const RowPlaces& places, uint32_t, uint32_t slot, CopyKind) {
    constexpr int kRowsPerStep = kWarpLanes / kUnits;
    constexpr int kSteps = (kKeys + kRowsPerStep - 1) / kRowsPerStep;
    constexpr int kBurst = kSteps < kInFlight ? kSteps : kInFlight;
    const uint32_t lane = threadIdx.x % kWarpLanes;
    const uint32_t offset = lane % kUnits * 16;
#pragma unroll
    for (int first = 0; first < kSteps; first += kBurst) {
      uint4 values[kBurst];
      uint32_t slots[kBurst];
#pragma unroll
      for (int i = 0; i < kBurst; ++i) {
        const uint32_t row = (first + i) * kRowsPerStep + lane / kUnits;
        slots[i] = __shfl_sync(kAllLanes, slot, row % kWarpLanes);
        if (row >= kKeys) slots[i] = kNoSlot;
        // The address is computed unconditionally, so that the accesses do not become branches.
        const UnitMove<kTo, uint4> move(places, row, slots[i], offset);
        if (slots[i] != kNoSlot) values[i] = LoadUnit<kTo>(move.from);
      }
#pragma unroll
      for (int i = 0; i < kBurst; ++i) {
        const uint32_t row = (first + i) * kRowsPerStep + lane / kUnits;
        const UnitMove<kTo, uint4> move(places, row, slots[i], offset);
        if (slots[i] != kNoSlot) StoreUnit<kTo, kStreamed>(move.to, values[i]);
      }
    }
  }
};

// As RowsOfUnits, to the table: the rows are loaded into shared memory while their slots are still
// being found. For blocks of kThreads.
template <int kUnits, int kKeys, int kThreads>
struct StagedRowsOfUnits {
  static constexpr int kTileKeys = kKeys;

  // Starts to read the first `row_count` rows of the array.
  __device__ static void Stage(const RowPlaces& places, uint32_t row_count) {
    // The previous tile may not have used its rows: their loads must not overwrite this tile's.
    asm volatile("cp.async.wait_all;" : : : "memory");
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (Row(step) >= kKeys || Row(step) >= row_count) continue;
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(Staged(step)));
      const uint4* const from =
          UnitAt<uint4>(places.array, places.array_stride_bytes, Row(step), Offset());
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  }

  template <CopyTo kTo>
  __device__ static void Copy(const RowPlaces& places, uint32_t, uint32_t slot, CopyKind) {
    static_assert(kTo == CopyTo::kTable);
    asm volatile("cp.async.wait_all;" : : : "memory");
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t rows_slot = __shfl_sync(kAllLanes, slot, Row(step) % kWarpLanes);
      if (Row(step) >= kKeys) rows_slot = kNoSlot;
      if (rows_slot == kNoSlot) continue;
      StoreRelaxed(UnitAt<uint4>(places.table, places.table_stride_bytes, rows_slot, Offset()),
                   *Staged(step));
    }
  }

 private:
  static constexpr int kRowsPerStep = kWarpLanes / kUnits;
  static constexpr int kSteps = (kKeys + kRowsPerStep - 1) / kRowsPerStep;

  __device__ static uint32_t Row(int step) {
    return step * kRowsPerStep + threadIdx.x % kWarpLanes / kUnits;
  }
  __device__ static uint32_t Offset() { return threadIdx.x % kUnits * 16; }
  // Each lane reads what it staged itself.
  __device__ static uint4* Staged(int step) {
    __shared__ uint4 staged[kSteps * kThreads];
    return staged + step * kThreads + threadIdx.x;
  }
};

// Rows of any number of units of type Unit.
template <typename Unit, int kKeys, int kInFlight>
struct RowsOfWidth {
  static constexpr int kTileKeys = kKeys;
  static_assert(kKeys <= 16, "the reciprocal below is exact up to 16 rows of 16 KiB");

  template <CopyTo kTo>
  __device__ static void Copy(const RowPlaces& places, uint32_t row_bytes, uint32_t slot,
                              CopyKind) {
    const uint32_t lane = threadIdx.x % kWarpLanes;
    const uint32_t units = row_bytes / sizeof(Unit);
    const uint32_t total = kKeys * units;
    // ceil(2^32 / units): i x reciprocal / 2^32 is i / units for i < 2^18 and units <= 2^14.
    const uint32_t reciprocal = 0xffffffffu / units + 1;
    for (uint32_t first = 0; first < total; first += kInFlight * kWarpLanes) {
      Unit values[kInFlight];
      uint32_t rows[kInFlight];
      uint32_t slots[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const uint32_t item = first + i * kWarpLanes + lane;
        rows[i] = units == 1 ? item : __umulhi(item, reciprocal);
        slots[i] = __shfl_sync(kAllLanes, slot, rows[i] % kWarpLanes);
        if (item >= total) slots[i] = kNoSlot;
        const uint32_t offset = (item - rows[i] * units) * sizeof(Unit);
        const UnitMove<kTo, Unit> move(places, rows[i], slots[i], offset);
        if (slots[i] != kNoSlot) values[i] = LoadUnit<kTo>(move.from);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const uint32_t item = first + i * kWarpLanes + lane;
        const uint32_t offset = (item - rows[i] * units) * sizeof(Unit);
        const UnitMove<kTo, Unit> move(places, rows[i], slots[i], offset);
        if (slots[i] != kNoSlot) StoreUnit<kTo>(move.to, values[i]);
      }
    }
  }
};

// Rows of all kinds in one kernel.
template <int kKeys>
struct RowsOfAnyKind {
  static constexpr int kTileKeys = kKeys;

  template <CopyTo kTo>
  __device__ static void Copy(const RowPlaces& places, uint32_t row_bytes, uint32_t slot,
                              CopyKind kind) {
    if (kind == CopyKind::kBytes) {
      RowsOfWidth<uint8_t, kKeys, 4>::template Copy<kTo>(places, row_bytes, slot, kind);
    } else if (kind == CopyKind::kWords) {
      RowsOfWidth<uint32_t, kKeys, 4>::template Copy<kTo>(places, row_bytes, slot, kind);
    } else {
      RowsOfWidth<uint4, kKeys, 4>::template Copy<kTo>(places, row_bytes, slot, kind);
    }
  }
};

}  // namespace hps
