#include <algorithm>
#include <array>

#include "l1_gpu/kernel_launch.h"
#include "l1_gpu/kernels.h"
#include "l1_gpu/query_kernel.cuh"
#include "l1_gpu/query_launch.h"

namespace hps {
namespace {

// Calls of up to this many bytes of rows are spread thin, for their latency.
constexpr uint64_t kSmallCallBytes = 6 << 20;

struct Request {
  std::span<QueryTask> tasks;
  const MissBuffers& misses;
  uint32_t generation;
  bool records_misses;
  cudaStream_t stream;
};

template <typename Rows, int kTasks, int kThreads, int kBlocks>
cudaError_t Launch(const Request& request) {
  uint64_t tiles = 0;
  for (QueryTask& task : request.tasks) {
    task.tile_begin = static_cast<uint32_t>(tiles);
    tiles += (task.view.key_count + Rows::kTileKeys - 1) / Rows::kTileKeys;
  }
  QueryLaunch<kTasks> launch;
  launch.task_count = static_cast<uint32_t>(request.tasks.size());
  launch.tile_count = static_cast<uint32_t>(tiles);
  launch.generation = request.generation;
  launch.records_misses = request.records_misses;
  launch.misses = request.misses;
  launch.tasks_in_memory = request.misses.queries;
  if (kTasks == 0) {
    const cudaError_t copied =
        cudaMemcpyAsync(request.misses.queries, request.tasks.data(), request.tasks.size_bytes(),
                        cudaMemcpyHostToDevice, request.stream);
    if (copied != cudaSuccess) return copied;
  } else {
    std::copy(request.tasks.begin(), request.tasks.end(), launch.tasks);
    std::fill(std::begin(launch.tile_begins), std::end(launch.tile_begins), UINT32_MAX);
    for (size_t i = 0; i < request.tasks.size(); ++i)
      launch.tile_begins[i] = request.tasks[i].tile_begin;
  }
  constexpr uint32_t kTilesPerBlock = kThreads / kWarpLanes;
  const auto blocks = static_cast<uint32_t>((tiles + kTilesPerBlock - 1) / kTilesPerBlock);
  return LaunchKernel({std::max(blocks, 1u), kThreads, request.stream},
                      QueryKernel<Rows, kTasks, kThreads, kBlocks>, launch);
}

template <int kTasks>
cudaError_t LaunchKind(const Request& request, CopyKind kind, bool small) {
  switch (kind) {
    case CopyKind::kUnits32:
      return small ? Launch<RowsOfUnits<32, 4, 4>, kTasks, 128, 8>(request)
                   : Launch<RowsOfUnits<32, 8, 4>, kTasks, 128, 8>(request);
    case CopyKind::kUnits16:
      return small ? Launch<RowsOfUnits<16, 4, 4>, kTasks, 128, 8>(request)
                   : Launch<RowsOfUnits<16, 16, 4>, kTasks, 128, 8>(request);
    case CopyKind::kUnits8:
      return small ? Launch<RowsOfUnits<8, 8, 4>, kTasks, 128, 8>(request)
                   : Launch<RowsOfUnits<8, 32, 4>, kTasks, 128, 8>(request);
    case CopyKind::kUnits4:
      return Launch<RowsOfUnits<4, 16, 4>, kTasks, 128, 8>(request);
    case CopyKind::kUnits:
      return Launch<RowsOfWidth<uint4, 8, 4>, kTasks, 128, 8>(request);
    default:
      return Launch<RowsOfAnyKind<8>, kTasks, 128, 8>(request);
  }
}

// The kind that all tasks with keys have, else kBytes, whose kernel copies all kinds.
CopyKind CommonKind(std::span<const QueryTask> tasks) {
  const auto has_keys = [](const QueryTask& task) { return task.view.key_count > 0; };
  const auto first = std::find_if(tasks.begin(), tasks.end(), has_keys);
  if (first == tasks.end()) return CopyKind::kBytes;
  const bool same = std::all_of(first, tasks.end(), [&](const QueryTask& task) {
    return !has_keys(task) || task.kind == first->kind;
  });
  return same ? first->kind : CopyKind::kBytes;
}

}  // namespace

QueryTask TaskOfQuery(const QueryView& query) {
  QueryTask task;
  task.view = query;
  const uint64_t rows = reinterpret_cast<uintptr_t>(query.rows);
  task.kind = CopyKindOf(query.table.row_bytes, rows | query.row_stride_bytes);
  return task;
}

cudaError_t LaunchQueryTasks(std::span<QueryTask> tasks, const MissBuffers& misses,
                             uint32_t generation, bool records_misses, cudaStream_t stream) {
  const Request request = {tasks, misses, generation, records_misses, stream};
  if (tasks.size() > kTasksInLaunch) return Launch<RowsOfAnyKind<8>, 0, 128, 8>(request);
  uint64_t bytes = 0;
  for (const QueryTask& task : tasks)
    bytes += uint64_t{task.view.key_count} * task.view.table.row_bytes;
  const CopyKind kind = CommonKind(tasks);
  const bool small = bytes <= kSmallCallBytes;
  if (tasks.size() == 1) return LaunchKind<1>(request, kind, small);
  return LaunchKind<kTasksInLaunch>(request, kind, small);
}

cudaError_t LaunchQuery(std::span<const QueryView> queries, const MissBuffers& misses,
                        uint32_t generation, cudaStream_t stream) {
  if (queries.size() == 1) {
    QueryTask task = TaskOfQuery(queries[0]);
    return LaunchQueryTasks({&task, 1}, misses, generation, true, stream);
  }
  std::array<QueryTask, kTasksInLaunch> few;
  const std::span<QueryTask> tasks(
      queries.size() <= kTasksInLaunch ? few.data() : misses.pinned_queries, queries.size());
  std::transform(queries.begin(), queries.end(), tasks.begin(), TaskOfQuery);
  return LaunchQueryTasks(tasks, misses, generation, true, stream);
}

}  // namespace hps
