// The launch that queries and probes share. For kernels' launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "l1_gpu/kernels/query_task.h"
#include "l1_gpu/misses.h"

namespace hps {

// The task of a query.
QueryTask TaskOfQuery(const QueryView& query);

// More than kTasksInLaunch tasks lie in MissBuffers::pinned_queries, and begin where those before
// them end: first_key counts their keys.
cudaError_t LaunchQueryTasks(std::span<const QueryTask> tasks, const QueryCall& call,
                             cudaStream_t stream);

// Up to this many tasks come with the launch itself.
inline constexpr size_t kTasksInLaunch = 32;

}  // namespace hps
