// Writes the rows that the levels below found to all positions that wait for them.
//
// Bound: per position it reads and writes a row; the transfer of the rows over PCIe takes ten times
// as long.
#include <algorithm>
#include <array>

#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/query_launch.h"

namespace hps {
namespace {

// Few, so that many rows are in flight at a time: reading those in pinned memory takes
// microseconds.
constexpr uint32_t kTileItems = 4;
constexpr uint32_t kThreads = 256;
constexpr size_t kPiecesInLaunch = 16;
constexpr uint8_t kUnanswered = 0xff;

struct ScatterTask {
  ScatterPiece piece;
  uint32_t tile_begin;
  CopyKind kind;
};

struct ScatterLaunch {
  ScatterTask tasks[kPiecesInLaunch];
  uint32_t task_count;
  uint32_t tile_count;
  MissBuffers misses;
};

// One position to answer. `to` is null if there is nothing to write.
struct Answer {
  const std::byte* from = nullptr;  // null: zeros
  std::byte* to = nullptr;
};

// The answer of item `item`: unique keys first, then the query's duplicates.
__device__ inline Answer AnswerItem(const MissBuffers& misses, const ScatterPiece& piece,
                                    uint32_t item) {
  const QueryView& query = piece.query;
  uint32_t position, unique;
  if (item < piece.count) {
    unique = item;
    position = misses.positions[query.first_key + piece.first + item];
  } else {
    const DuplicatePosition duplicate = misses.duplicates[query.first_key + item - piece.count];
    position = duplicate.position;
    unique = misses.unique_of[query.first_key + duplicate.owner] - piece.first;
    if (unique >= piece.count) return {};  // of another piece; also if the subtraction wrapped
  }
  const auto status =
      static_cast<uint8_t>(piece.statuses == nullptr ? piece.status : piece.statuses[unique]);
  if (status == kUnanswered) return {};
  if (query.status != nullptr) query.status[position] = static_cast<KeyStatus>(status);
  if (piece.counts != nullptr) atomicAdd(piece.counts + status, 1u);
  // A status without its own row gets the default row; null means zeros.
  const std::byte* rows = nullptr;
  if (status == static_cast<uint8_t>(KeyStatus::kHitL1)) {
    rows = piece.probed;
  } else if (status == static_cast<uint8_t>(KeyStatus::kHitL2) ||
             status == static_cast<uint8_t>(KeyStatus::kHitL3)) {
    rows = piece.staged;
  }
  Answer answer;
  answer.to = query.rows + position * query.row_stride_bytes;
  answer.from = rows == nullptr ? piece.default_row
                                : rows + static_cast<uint64_t>(unique) * query.table.row_bytes;
  return answer;
}

// Copies the tile's rows one after the other, each with the whole warp.
template <typename Unit>
__device__ inline void CopyAnswers(const Answer& mine, uint32_t row_bytes) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
#pragma unroll
  for (uint32_t i = 0; i < kTileItems; ++i) {
    const auto from = __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.from), i);
    const auto to = __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.to), i);
    if (to == 0) continue;
    for (uint32_t unit = lane; unit < row_bytes / sizeof(Unit); unit += kWarpLanes) {
      Unit value = {};
      if (from != 0) value = reinterpret_cast<const Unit*>(from)[unit];
      reinterpret_cast<Unit*>(to)[unit] = value;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    ScatterKernel(const __grid_constant__ ScatterLaunch launch) {
  const uint32_t tile = (blockIdx.x * kThreads + threadIdx.x) / kWarpLanes;
  if (tile >= launch.tile_count) return;
  uint32_t number = 0;
  while (number + 1 < launch.task_count && launch.tasks[number + 1].tile_begin <= tile) ++number;
  const ScatterTask& task = launch.tasks[number];
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t item = (tile - task.tile_begin) * kTileItems + lane;
  Answer answer;
  if (lane < kTileItems && item < task.piece.count + task.piece.duplicate_count)
    answer = AnswerItem(launch.misses, task.piece, item);
  const uint32_t row_bytes = task.piece.query.table.row_bytes;
  if (task.kind == CopyKind::kBytes) {
    CopyAnswers<uint8_t>(answer, row_bytes);
  } else if (task.kind == CopyKind::kWords) {
    CopyAnswers<uint32_t>(answer, row_bytes);
  } else {
    CopyAnswers<uint4>(answer, row_bytes);
  }
}

CopyKind KindOfPiece(const ScatterPiece& piece) {
  return CopyKindOf(piece.query.table.row_bytes,
                    reinterpret_cast<uintptr_t>(piece.query.rows) | piece.query.row_stride_bytes |
                        reinterpret_cast<uintptr_t>(piece.staged) |
                        reinterpret_cast<uintptr_t>(piece.probed) |
                        reinterpret_cast<uintptr_t>(piece.default_row));
}

cudaError_t Scatter(std::span<const ScatterPiece> pieces, const MissBuffers& misses,
                    cudaStream_t stream) {
  ScatterLaunch launch;
  launch.misses = misses;
  launch.task_count = static_cast<uint32_t>(pieces.size());
  uint32_t tiles = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    launch.tasks[i] = {pieces[i], tiles, KindOfPiece(pieces[i])};
    tiles += (pieces[i].count + pieces[i].duplicate_count + kTileItems - 1) / kTileItems;
  }
  if (tiles == 0) return cudaSuccess;
  launch.tile_count = tiles;
  constexpr uint32_t kTilesPerBlock = kThreads / kWarpLanes;
  return LaunchKernel<ScatterKernel>(
      {(tiles + kTilesPerBlock - 1) / kTilesPerBlock, kThreads, stream}, launch);
}

// Probes the tables again for the unique keys of pieces, once per key, so that all positions of a
// key show the same row.
cudaError_t Reprobe(std::span<const ScatterPiece> pieces, const MissBuffers& misses,
                    cudaStream_t stream) {
  std::array<QueryTask, kPiecesInLaunch> tasks;
  size_t count = 0;
  WriteSequence* sequence = nullptr;
  for (const ScatterPiece& piece : pieces) {
    if (piece.probed == nullptr || piece.query.table.slabs == nullptr || piece.count == 0) continue;
    QueryView query = piece.query;
    query.keys = misses.keys + piece.query.first_key + piece.first;
    query.rows = piece.probed;
    query.row_stride_bytes = piece.query.table.row_bytes;
    query.status = piece.statuses;
    query.key_count = piece.count;
    tasks[count++] = TaskOfQuery(query);
    sequence = piece.query.table.write_sequence;
  }
  if (count == 0) return cudaSuccess;
  return LaunchQueryTasks(std::span(tasks).first(count), {sequence, 0, false, misses}, stream);
}

}  // namespace

cudaError_t LaunchScatter(std::span<const ScatterPiece> pieces, const MissBuffers& misses,
                          cudaStream_t stream) {
  for (size_t first = 0; first < pieces.size(); first += kPiecesInLaunch) {
    const auto some = pieces.subspan(first, std::min(kPiecesInLaunch, pieces.size() - first));
    cudaError_t error = Reprobe(some, misses, stream);
    if (error == cudaSuccess) error = Scatter(some, misses, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace hps
