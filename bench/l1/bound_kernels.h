// What the kernels of level 1 are measured against: copies of rows whose places are known. They do
// what no cache can leave out, and nothing else.
//
// Each has several shapes, of which one is fastest at a size: a bound is the best of them. All
// launches are asynchronous; all pointers are device memory; rows are packed and multiples of 16
// bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "hps/types.h"
#include "l1_gpu/kernels/slab.h"

namespace hps {

struct RowMove {
  std::byte* table = nullptr;       // rows by slot
  const uint32_t* slots = nullptr;  // [count]
  std::byte* array = nullptr;       // [count] rows
  uint32_t row_bytes = 0;           // 128, 256 or 512; 4,096 for LaunchGather
  uint32_t count = 0;
};

// array[i] = table[slots[i]].
inline constexpr int kGatherShapes = 8;
cudaError_t LaunchGather(int shape, const RowMove& move, cudaStream_t stream);

// table[slots[i]] = array[i].
inline constexpr int kScatterShapes = 3;
cudaError_t LaunchScatterRows(int shape, const RowMove& move, cudaStream_t stream);

struct KeyList {
  const Key* keys = nullptr;  // [count]
  uint32_t count = 0;
};

// Where the table holds keys; 0 for those that it does not hold, which adds to `*missing`.
cudaError_t LaunchFindSlots(const TableView& table, const KeyList& list, uint32_t* slots,
                            uint32_t* missing, cudaStream_t stream);

// rows[i] = words that depend on key i.
cudaError_t LaunchMakeRows(const KeyList& list, uint32_t row_bytes, std::byte* rows,
                           cudaStream_t stream);

// Adds to `*different` how many rows are not the ones that LaunchMakeRows makes for their keys.
cudaError_t LaunchCompareRows(const KeyList& list, uint32_t row_bytes, const std::byte* rows,
                              uint32_t* different, cudaStream_t stream);

}  // namespace hps
