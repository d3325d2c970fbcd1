// Launches of the level 1 kernels. All are asynchronous on `stream`, allocate nothing and don't
// synchronize; their arguments must stay valid until the stream has passed them. They return the
// launch's error.
//
// Queries, scatters and probes run on any number of streams, concurrently with each other and with
// writes. The writes of all tables of a device run on one stream, in order. Guarantees:
//   - a returned row was once written for its key: never torn, never another key's;
//   - a key that is held throughout is never reported as a miss;
//   - for one key, later queries never return an older row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/types.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/misses.h"
#include "tier/direct_rows.h"

namespace hps {

// One table's part of a lookup. All pointers are device-accessible.
struct QueryView {
  TableView table;  // slabs may be null; row_bytes is required even then
  const Key* keys = nullptr;
  std::byte* rows = nullptr;  // any alignment
  uint64_t row_stride_bytes = 0;
  KeyStatus* status = nullptr;  // null = not requested; not written for misses
  uint32_t key_count = 0;
  uint32_t first_key = 0;  // keys of the previous queries; where its part of the buffers begins
  // Not null: the device answers misses from it as far as it can. It does so only where rows are a
  // multiple of 16 bytes, and aligned to as many, of at most 32 queries, and of few misses
  // (kDirectMissesMax in query_task.h).
  const DirectRows* direct = nullptr;
};

// Probes all queries in one launch, writes rows and status of the hits, and lists the misses in
// `misses` under `generation`; the host can read them once the stream has passed the launch.
// `generation` counts the launches with these buffers from 1, including those without keys, because
// the two halves of the counters alternate by its parity. When it wraps to 0, zero `claims`,
// `counters` and the pinned memory and restart from 1. Without queries nothing is launched and no
// generation is used. REQUIRES: at most kTablesPerCallMax queries, keys_max keys in total; one
// write sequence for all tables.
cudaError_t LaunchQuery(std::span<const QueryView> queries, const MissBuffers& misses,
                        uint32_t generation, cudaStream_t stream);

// Answers of one query, for the unique indices `first` to `first + count`.
struct ScatterPiece {
  QueryView query;
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t duplicate_count = 0;            // of the query: the sum over its DuplicateRecords
  KeyStatus* statuses = nullptr;           // device, [count]; 0xff: not answered by this piece
  KeyStatus status{};                      // of all keys, if `statuses` is null
  const std::byte* staged = nullptr;       // device or pinned, [count] packed rows
  const std::byte* default_row = nullptr;  // device, null = zeros
  // Device, [count] packed rows, aligned to 16 bytes. If set, the table is probed again: for keys
  // that it holds by now, it writes their rows here, and kHitL1 to `statuses`. Separate from
  // `staged`, because a row that the query could not prove may remain. Null = no second probe.
  // REQUIRES: `statuses` is given, and this piece answers every key.
  std::byte* probed = nullptr;
  // Device, [kKeyStatusCount]: the number of positions by status is added. Null = not requested.
  uint32_t* counts = nullptr;
};

// Writes rows and status of the pieces to all positions that wait for them.
cudaError_t LaunchScatter(std::span<const ScatterPiece> pieces, const MissBuffers& misses,
                          cudaStream_t stream);

// Rows of 16-bit elements, to be converted to float32 in place.
struct RowsToConvert {
  std::byte* rows = nullptr;  // device, any alignment
  uint64_t row_stride_bytes = 0;
  uint32_t row_count = 0;
  uint32_t element_count = 0;  // per row
  Dtype dtype{};               // kFloat16 or kBfloat16
};

// Converts all rows to float32, with one launch per sixteen `parts`.
cudaError_t LaunchConvertToFloat32(std::span<const RowsToConvert> parts, cudaStream_t stream);

// Maximum keys of a write per launch, so that a slab's version can't wrap within one.
inline constexpr size_t kKeysPerWriteMax = size_t{1} << 20;

// Blocks for writes that run concurrently with queries: a write is limited by the bus, so few
// blocks keep up with it and leave the memory's bandwidth to lookups.
inline constexpr uint32_t kBackgroundBlocks = 16;

// Keys and rows of a write, device-accessible.
struct WriteView {
  TableView table;
  const Key* keys = nullptr;
  const std::byte* rows = nullptr;  // aligned to 16 bytes
  uint64_t row_stride_bytes = 0;    // a multiple of 16, or row_bytes
  uint32_t key_count = 0;           // at most kKeysPerWriteMax
  // Concurrent blocks: few leave the memory's bandwidth to queries. 0 = as many as the device runs.
  uint32_t blocks_max = 0;
  // Of an insertion; see tier/admission.h.
  Admission admission = Admission::kAlways;
  // Device, [slab_count * kFrequencyWordsPerSlab], initially zero. Required by kFrequent.
  FrequencyWord* frequencies = nullptr;
};

// Inserts keys that are not held; one of several duplicates. Evicts the least recently used key of
// the two slabs, as `admission` allows. During a dump, `dumped_slab_count` slabs have been dumped:
// no key moves between them and the others. Counts insertions, evictions and what was left out.
cudaError_t LaunchInsertIfAbsent(const WriteView& write, uint32_t dumped_slab_count,
                                 cudaStream_t stream);

// Overwrites rows of held keys; of duplicates any one may win. Counts updates.
cudaError_t LaunchUpdate(const WriteView& write, cudaStream_t stream);

// Removes keys; does not read `rows`. Counts erased.
cudaError_t LaunchErase(const WriteView& write, cudaStream_t stream);

// Removes all keys. Counts cleared.
cudaError_t LaunchClear(const TableView& table, cudaStream_t stream);

struct SlabRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Appends the keys of a range of slabs to `keys` (device-accessible, with room for all) and adds
// their number to `*key_count` (device memory).
cudaError_t LaunchDump(const TableView& table, SlabRange slabs, Key* keys, uint32_t* key_count,
                       cudaStream_t stream);

}  // namespace hps
