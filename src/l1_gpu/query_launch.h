// The launch that queries and probes share. For kernels' launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "l1_gpu/misses.h"
#include "l1_gpu/query_task.h"

namespace hps {

// The task of a query, but for its blocks.
QueryTask TaskOfQuery(const QueryView& query);

// `tasks` are given their blocks. More than kTasksInLaunch of them lie in
// MissBuffers::pinned_queries.
cudaError_t LaunchQueryTasks(std::span<QueryTask> tasks, const QueryCall& call,
                             cudaStream_t stream);

// Up to this many tasks come with the launch itself.
inline constexpr size_t kTasksInLaunch = 32;

}  // namespace hps
