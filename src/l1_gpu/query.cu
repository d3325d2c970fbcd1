#include <algorithm>
#include <array>

#include "l1_gpu/kernel_launch.h"
#include "l1_gpu/kernels.h"
#include "l1_gpu/query_kernel.cuh"
#include "l1_gpu/query_launch.h"

namespace hps {
namespace {

// Calls of up to this many keys wait for one read after the other, not for bandwidth.
constexpr uint64_t kTinyCallKeys = 8192;
// Up to this many, narrow rows leave multiprocessors idle unless they are spread thin.
constexpr uint64_t kSmallCallKeys = 65536;

struct Request {
  std::span<QueryTask> tasks;
  const QueryCall& call;
  cudaStream_t stream;
};

template <typename Rows, int kTasks, int kThreads, int kBlocks>
cudaError_t Launch(const Request& request) {
  constexpr uint32_t kBlockKeys = Rows::kTileKeys * (kThreads / kWarpLanes);
  uint32_t blocks = 0;
  for (QueryTask& task : request.tasks) {
    task.block_begin = blocks;
    blocks += (task.key_count + kBlockKeys - 1) / kBlockKeys;
  }
  const MissBuffers& misses = request.call.misses;
  QueryLaunch<kTasks> launch;
  launch.call = request.call;
  launch.task_count = static_cast<uint32_t>(request.tasks.size());
  launch.tasks_in_memory = misses.queries;
  if (kTasks == 0) {
    const cudaError_t copied =
        cudaMemcpyAsync(misses.queries, request.tasks.data(), request.tasks.size_bytes(),
                        cudaMemcpyHostToDevice, request.stream);
    if (copied != cudaSuccess) return copied;
  } else {
    std::copy(request.tasks.begin(), request.tasks.end(), launch.tasks);
    std::fill(std::begin(launch.block_begins), std::end(launch.block_begins), UINT32_MAX);
    for (size_t i = 0; i < request.tasks.size(); ++i)
      launch.block_begins[i] = request.tasks[i].block_begin;
  }
  return LaunchKernelAhead({std::max(blocks, 1u), kThreads, request.stream},
                           QueryKernel<Rows, kTasks, kThreads, kBlocks>, launch);
}

template <int kTasks>
cudaError_t LaunchKind(const Request& request, CopyKind kind, uint64_t keys) {
  const bool tiny = keys <= kTinyCallKeys;
  switch (kind) {
    case CopyKind::kUnits32:
      return tiny ? Launch<RowsOfUnits<32, 4, 4>, kTasks, 128, 8>(request)
                  : Launch<RowsOfUnits<32, 8, 8, true>, kTasks, 64, 16>(request);
    case CopyKind::kUnits16:
      return tiny ? Launch<RowsOfUnits<16, 4, 4>, kTasks, 128, 8>(request)
                  : Launch<RowsOfUnits<16, 16, 4, true>, kTasks, 128, 8>(request);
    case CopyKind::kUnits8:
      if (tiny) return Launch<RowsOfUnits<8, 4, 4>, kTasks, 128, 8>(request);
      return keys <= kSmallCallKeys ? Launch<RowsOfUnits<8, 16, 4>, kTasks, 128, 8>(request)
                                    : Launch<RowsOfUnits<8, 32, 4, true>, kTasks, 128, 8>(request);
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
  const auto has_keys = [](const QueryTask& task) { return task.key_count > 0; };
  const auto first = std::find_if(tasks.begin(), tasks.end(), has_keys);
  if (first == tasks.end()) return CopyKind::kBytes;
  const bool same = std::all_of(first, tasks.end(), [&](const QueryTask& task) {
    return !has_keys(task) || task.kind == first->kind;
  });
  return same ? first->kind : CopyKind::kBytes;
}

// The one gate of all tables that are there.
WriterGate* GateOf(std::span<const QueryView> queries) {
  const auto first = std::find_if(queries.begin(), queries.end(), [](const QueryView& query) {
    return query.table.slabs != nullptr;
  });
  return first == queries.end() ? nullptr : first->table.gate;
}

}  // namespace

QueryTask TaskOfQuery(const QueryView& query) {
  QueryTask task = {};
  task.keys = query.keys;
  task.slabs = query.table.slabs;
  task.table_rows = query.table.rows;
  task.rows = query.rows;
  task.status = query.status;
  task.row_stride_bytes = query.row_stride_bytes;
  task.key_count = query.key_count;
  task.first_key = query.first_key;
  task.slab_count = query.table.slab_count;
  task.stamp_epoch = query.table.stamp_epoch;
  task.table_row_stride_bytes = query.table.row_stride_bytes;
  task.row_bytes = query.table.row_bytes;
  const uint64_t rows = reinterpret_cast<uintptr_t>(query.rows);
  task.kind = CopyKindOf(query.table.row_bytes, rows | query.row_stride_bytes);
  return task;
}

cudaError_t LaunchQueryTasks(std::span<QueryTask> tasks, const QueryCall& call,
                             cudaStream_t stream) {
  const Request request = {tasks, call, stream};
  if (tasks.size() > kTasksInLaunch) return Launch<RowsOfAnyKind<8>, 0, 128, 8>(request);
  uint64_t keys = 0;
  for (const QueryTask& task : tasks) keys += task.key_count;
  const CopyKind kind = CommonKind(tasks);
  if (tasks.size() == 1) return LaunchKind<1>(request, kind, keys);
  return LaunchKind<kTasksInLaunch>(request, kind, keys);
}

cudaError_t LaunchQuery(std::span<const QueryView> queries, const MissBuffers& misses,
                        uint32_t generation, cudaStream_t stream) {
  const QueryCall call = {GateOf(queries), generation, true, misses};
  if (queries.size() == 1) {
    QueryTask task = TaskOfQuery(queries[0]);
    return LaunchQueryTasks({&task, 1}, call, stream);
  }
  std::array<QueryTask, kTasksInLaunch> few;
  const std::span<QueryTask> tasks(
      queries.size() <= kTasksInLaunch ? few.data() : misses.pinned_queries, queries.size());
  std::transform(queries.begin(), queries.end(), tasks.begin(), TaskOfQuery);
  return LaunchQueryTasks(tasks, call, stream);
}

}  // namespace hps
