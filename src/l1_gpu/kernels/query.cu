#include <algorithm>
#include <array>

#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/query_kernel.cuh"
#include "l1_gpu/kernels/query_launch.h"

namespace hps {
namespace {

// Calls of up to this many keys are bound by latency, not by bandwidth.
constexpr uint64_t kTinyCallKeys = 8192;
// With up to this many keys, narrow rows leave multiprocessors idle unless tiles are small.
constexpr uint64_t kSmallCallKeys = 65536;

struct Request {
  std::span<const QueryTask> tasks;
  const QueryCall& call;
  cudaStream_t stream;
  std::span<const DirectRows> direct;  // of each task; empty: level 2 is not read
  uint64_t key_count;                  // of all tasks
  uint32_t task_key_count;             // of the largest task
};

// The blocks of tasks that come with the launch are either consecutive, or, if few blocks would be
// idle, a row of the grid per task: a block that need not search for its task starts sooner.
template <int kTasks, uint32_t kBlockKeys>
LaunchShape PlaceTasks(const Request& request, QueryLaunch<kTasks>& launch) {
  const auto blocks_of = [](uint64_t keys) {
    return static_cast<uint32_t>((keys + kBlockKeys - 1) / kBlockKeys);
  };
  std::copy(request.tasks.begin(), request.tasks.end(), launch.tasks);
  const auto count = static_cast<uint32_t>(request.tasks.size());
  const uint32_t row = std::max(blocks_of(request.task_key_count), 1U);
  const uint32_t needed = blocks_of(request.key_count);
  if (uint64_t{row} * count <= needed + needed / 8 + count) return {row, 0, request.stream, count};
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < kTasks; ++i) {
    launch.block_begins[i] = i < count ? blocks : UINT32_MAX;
    if (i < count) blocks += blocks_of(request.tasks[i].key_count);
  }
  return {blocks, 0, request.stream};
}

template <typename Rows, int kTasks, int kThreads, int kBlocks, bool kDirect = false>
cudaError_t Launch(const Request& request) {
  constexpr uint32_t kBlockKeys = Rows::kTileKeys * (kThreads / kWarpLanes);
  LaunchOf<kTasks, kDirect> launch;
  if constexpr (kDirect) std::copy(request.direct.begin(), request.direct.end(), launch.direct);
  launch.call = request.call;
  LaunchShape shape = {0, 0, request.stream};
  if constexpr (kTasks == 0) {
    QueryTask* const tasks = request.call.misses.queries;
    launch.task_count = static_cast<uint32_t>(request.tasks.size());
    launch.tasks_in_memory = tasks;
    shape.blocks =
        BlockBeginInMemory<kBlockKeys>(launch.task_count, static_cast<uint32_t>(request.key_count));
    const cudaError_t copied =
        cudaMemcpyAsync(tasks, request.tasks.data(), request.tasks.size_bytes(),
                        cudaMemcpyHostToDevice, request.stream);
    if (copied != cudaSuccess) return copied;
  } else {
    shape = PlaceTasks<kTasks, kBlockKeys>(request, launch);
  }
  shape.threads = kThreads;
  shape.shared_percent = kSharedPercentConcurrent;
  return LaunchKernelAhead<QueryKernel<Rows, kTasks, kThreads, kBlocks, kDirect>>(shape, launch);
}

template <int kTasks>
cudaError_t LaunchKind(const Request& request, CopyKind kind) {
  const bool tiny = request.key_count <= kTinyCallKeys;
  switch (kind) {
    case CopyKind::kUnits32:
      return tiny ? Launch<RowsOfUnits<32, 4, 4>, kTasks, 128, 8>(request)
                  : Launch<RowsOfUnits<32, 8, 8, true>, kTasks, 64, 16>(request);
    case CopyKind::kUnits16:
      return tiny ? Launch<RowsOfUnits<16, 4, 4>, kTasks, 128, 8>(request)
                  : Launch<RowsOfUnits<16, 16, 4, true>, kTasks, 128, 8>(request);
    case CopyKind::kUnits8:
      if (tiny) return Launch<RowsOfUnits<8, 4, 4>, kTasks, 128, 8>(request);
      return request.key_count <= kSmallCallKeys
                 ? Launch<RowsOfUnits<8, 16, 4>, kTasks, 128, 8>(request)
                 : Launch<RowsOfUnits<8, 32, 4, true>, kTasks, 128, 8>(request);
    case CopyKind::kUnits4:
      return Launch<RowsOfUnits<4, 16, 4>, kTasks, 128, 8>(request);
    case CopyKind::kUnits:
      return Launch<RowsOfWidth<uint4, 8, 4>, kTasks, 128, 8>(request);
    default:
      return Launch<RowsOfAnyKind<8>, kTasks, 128, 8>(request);
  }
}

// `kind` is that of all tasks, or kBytes; level 2 is read for those whose rows are units.
template <int kTasks>
cudaError_t LaunchDirect(const Request& request, CopyKind kind) {
  const bool tiny = request.key_count <= kTinyCallKeys;
  switch (kind) {
    case CopyKind::kUnits32:
      return tiny ? Launch<RowsOfUnits<32, 4, 4>, kTasks, 128, 8, true>(request)
                  : Launch<RowsOfUnits<32, 8, 8, true>, kTasks, 64, 16, true>(request);
    case CopyKind::kUnits16:
      return tiny ? Launch<RowsOfUnits<16, 4, 4>, kTasks, 128, 8, true>(request)
                  : Launch<RowsOfUnits<16, 16, 4, true>, kTasks, 128, 8, true>(request);
    case CopyKind::kUnits8:
      return tiny ? Launch<RowsOfUnits<8, 4, 4>, kTasks, 128, 8, true>(request)
                  : Launch<RowsOfUnits<8, 16, 4>, kTasks, 128, 8, true>(request);
    case CopyKind::kUnits4:
      return Launch<RowsOfUnits<4, 16, 4>, kTasks, 128, 8, true>(request);
    case CopyKind::kUnits:
      return Launch<RowsOfWidth<uint4, 8, 4>, kTasks, 128, 8, true>(request);
    default:
      return Launch<RowsOfAnyKind<8>, kTasks, 128, 8, true>(request);
  }
}

// The copy kind common to all tasks with keys; otherwise kBytes, whose kernel copies all kinds.
CopyKind CommonKind(std::span<const QueryTask> tasks) {
  const auto has_keys = [](const QueryTask& task) { return task.key_count > 0; };
  const auto first = std::find_if(tasks.begin(), tasks.end(), has_keys);
  if (first == tasks.end()) return CopyKind::kBytes;
  const bool same = std::all_of(first, tasks.end(), [&](const QueryTask& task) {
    return !has_keys(task) || task.kind == first->kind;
  });
  return same ? first->kind : CopyKind::kBytes;
}

// The common write sequence of the queried tables.
WriteSequence* SequenceOf(std::span<const QueryView> queries) {
  const auto first = std::find_if(queries.begin(), queries.end(), [](const QueryView& query) {
    return query.table.slabs != nullptr;
  });
  return first == queries.end() ? nullptr : first->table.write_sequence;
}

CopyKind KindOf(const QueryView& query) {
  const uint64_t rows = reinterpret_cast<uintptr_t>(query.rows);
  return CopyKindOf(query.table.row_bytes, rows | query.row_stride_bytes);
}

// The device reads level 2's rows in units of 16 bytes.
bool MayReadLevel2(const QueryView& query) {
  return query.direct != nullptr && KindOf(query) >= CopyKind::kUnits;
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
  task.stamp_epoch = static_cast<uint8_t>(query.table.stamp_epoch);
  task.row_bytes = static_cast<uint16_t>(query.table.row_bytes);
  task.kind = KindOf(query);
  return task;
}

namespace {

cudaError_t LaunchTasks(std::span<const QueryTask> tasks, std::span<const DirectRows> direct,
                        const QueryCall& call, cudaStream_t stream) {
  Request request = {tasks, call, stream, direct, 0, 0};
  for (const QueryTask& task : tasks) {
    request.key_count += task.key_count;
    request.task_key_count = std::max(request.task_key_count, task.key_count);
  }
  if (tasks.size() > kTasksInLaunch) return Launch<RowsOfAnyKind<8>, 0, 128, 8>(request);
  const CopyKind kind = CommonKind(tasks);
  if (!direct.empty()) {
    return tasks.size() == 1 ? LaunchDirect<1>(request, kind)
                             : LaunchDirect<kTasksInLaunch>(request, kind);
  }
  if (tasks.size() == 1) return LaunchKind<1>(request, kind);
  return LaunchKind<kTasksInLaunch>(request, kind);
}

}  // namespace

cudaError_t LaunchQueryTasks(std::span<const QueryTask> tasks, const QueryCall& call,
                             cudaStream_t stream) {
  return LaunchTasks(tasks, {}, call, stream);
}

cudaError_t LaunchQuery(std::span<const QueryView> queries, const MissBuffers& misses,
                        uint32_t generation, cudaStream_t stream) {
  if (queries.empty()) return cudaSuccess;
  const QueryCall call = {SequenceOf(queries), generation, true, misses};
  std::array<DirectRows, kTasksInLaunch> all_direct;
  std::span<const DirectRows> direct;
  if (queries.size() <= kTasksInLaunch && std::ranges::any_of(queries, MayReadLevel2)) {
    std::ranges::transform(queries, all_direct.begin(), [](const QueryView& query) {
      return MayReadLevel2(query) ? *query.direct : DirectRows();
    });
    direct = std::span(all_direct).first(queries.size());
  }
  if (queries.size() == 1) {
    QueryTask task = TaskOfQuery(queries[0]);
    return LaunchTasks({&task, 1}, direct, call, stream);
  }
  std::array<QueryTask, kTasksInLaunch> few;
  const std::span<QueryTask> tasks(
      queries.size() <= kTasksInLaunch ? few.data() : misses.pinned_queries, queries.size());
  std::transform(queries.begin(), queries.end(), tasks.begin(), TaskOfQuery);
  return LaunchTasks(tasks, direct, call, stream);
}

}  // namespace hps
