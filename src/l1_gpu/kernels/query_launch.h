// The launch that queries and second probes share. For launch code only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "l1_gpu/kernels/query_task.h"
#include "l1_gpu/misses.h"

namespace hps {

// Makes the task of a query.
QueryTask TaskOfQuery(const QueryView& query);

// More than kTasksInLaunch tasks must be in MissBuffers::pinned_queries, each beginning where the
// previous one ends: first_key counts their keys.
cudaError_t LaunchQueryTasks(std::span<const QueryTask> tasks, const QueryCall& call,
                             cudaStream_t stream);

// Up to this many tasks are passed with the launch itself.
inline constexpr size_t kTasksInLaunch = 32;

}  // namespace hps
