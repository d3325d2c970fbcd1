// Launches of the kernels of level 1. All are asynchronous on `stream`, allocate nothing and don't
// synchronize; what they are given lives until the stream has passed them. They return the
// launch's error.
//
// Queries, scatters and probes run on any number of streams, concurrently with each other and with
// writes. Writes of all tables of a device run on one stream, in order. What is promised:
//   - a row that is returned was once written for its key: never torn, never another key's;
//   - a key that is held all the time is never reported as a miss;
//   - of one key, queries that begin later never return an older row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/types.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/misses.h"

namespace hps {

// Loads all kernels on the current device, which the driver would else do at the first launch of
// each: it takes memory of the device then, and may wait for all that the device is at work on.
cudaError_t LoadKernels();

// One table's part of a lookup. All pointers are device-accessible.
struct QueryView {
  TableView table;  // slabs may be null; row_bytes is given all the same
  const Key* keys = nullptr;
  std::byte* rows = nullptr;  // any alignment
  uint64_t row_stride_bytes = 0;
  KeyStatus* status = nullptr;  // null = not wanted; misses are left untouched
  uint32_t key_count = 0;
  uint32_t first_key = 0;  // keys of the queries before it: where its part of the buffers begins
};

// Probes all queries in one launch, writes rows and status of the hits, and lists the misses in
// `misses` under `generation`: when the stream has passed it they can be read by the host.
// `generation` counts the launches with these buffers, from 1 (also those without keys: the
// counters' halves take turns by its parity). When it comes to 0 again, `claims`, `counters` and
// the pinned memory have to be zeroed and it starts from 1. No queries at all are success without a
// launch, and take no generation. REQUIRES: at most kTablesPerCallMax queries, keys_max keys in
// all; one write sequence for all tables.
cudaError_t LaunchQuery(std::span<const QueryView> queries, const MissBuffers& misses,
                        uint32_t generation, cudaStream_t stream);

// Answers of one query: for unique indices `first` to `first + count`.
struct ScatterPiece {
  QueryView query;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t duplicate_count = 0;            // of the query: the sum over its DuplicateRecords
  KeyStatus* statuses = nullptr;           // device, [count]; 0xff: not answered by this piece
  KeyStatus status{};                      // of all keys, where `statuses` is null
  const std::byte* staged = nullptr;       // device or pinned, [count] packed rows
  const std::byte* default_row = nullptr;  // device, null = zeros
  // Device, [count] packed rows, aligned to 16 bytes: the table is asked again, and keys that it
  // holds by now are answered with the rows that it puts here and kHitL1, which overwrites
  // `statuses`. Not into `staged`: a row that a query gave up again may stay behind. Null = not
  // asked again. REQUIRES: `statuses` is given, and every key is answered by this piece.
  std::byte* probed = nullptr;
  // Device, [kKeyStatusCount], added to: positions by status. Null = not wanted.
  uint32_t* counts = nullptr;
};

// Writes rows and status of pieces to all positions that wait for them.
cudaError_t LaunchScatter(std::span<const ScatterPiece> pieces, const MissBuffers& misses,
                          cudaStream_t stream);

// Rows of 16-bit elements that are to be float32 where they lie.
struct RowsToConvert {
  std::byte* rows = nullptr;  // device, any alignment
  uint64_t row_stride_bytes = 0;
  uint32_t row_count = 0;
  uint32_t element_count = 0;  // of a row
  Dtype dtype{};               // kFloat16 or kBfloat16
};

// Widens all rows, with one launch for every sixteen of `parts`.
cudaError_t LaunchConvertToFloat32(std::span<const RowsToConvert> parts, cudaStream_t stream);

// A write takes at most this many keys per launch: so a slab's version can't wrap within one.
inline constexpr size_t kKeysPerWriteMax = size_t{1} << 20;

// Blocks for writes that go on beside queries: a write is fed through the bus, so that few keep up
// with it and leave the memory's bandwidth to lookups.
inline constexpr uint32_t kBackgroundBlocks = 16;

// Keys and rows of a write, device-accessible.
struct WriteView {
  TableView table;
  const Key* keys = nullptr;
  const std::byte* rows = nullptr;  // aligned to 16 bytes
  uint64_t row_stride_bytes = 0;    // a multiple of 16, or row_bytes
  uint32_t key_count = 0;           // at most kKeysPerWriteMax
  // Blocks at a time: few leave the memory's bandwidth to queries. 0 = as many as the device runs.
  uint32_t blocks_max = 0;
};

// Inserts keys that are not held; of duplicates one. The least recently used key of the two slabs
// gives way. While a dump is under way, `dumped_slab_count` slabs have been dumped: no key moves
// between them and the others. Counts insertions and evictions.
cudaError_t LaunchInsertIfAbsent(const WriteView& write, uint32_t dumped_slab_count,
                                 cudaStream_t stream);

// Overwrites rows of keys that are held; of duplicates any one stays. Counts updates.
cudaError_t LaunchUpdate(const WriteView& write, cudaStream_t stream);

// Removes keys; `rows` are not read. Counts erased.
cudaError_t LaunchErase(const WriteView& write, cudaStream_t stream);

// Removes all keys. Counts cleared.
cudaError_t LaunchClear(const TableView& table, cudaStream_t stream);

struct SlabRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Adds the keys of a range of slabs to `keys` (device-accessible, room for all) and their number to
// `*key_count` (device memory).
cudaError_t LaunchDump(const TableView& table, SlabRange slabs, Key* keys, uint32_t* key_count,
                       cudaStream_t stream);

}  // namespace hps
