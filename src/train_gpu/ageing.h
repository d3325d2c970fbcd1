// Lists of a table's rows, and the erasure of rows that have expired or are beyond the table's
// bound.
//
// REQUIRES, of all functions: the storage's mutex is held, and its device is current.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda_resources.h"
#include "train_gpu/device_storage.h"
#include "train_gpu/kernels/kernels.h"

namespace hps {

// What the host counts of a table.
struct TableProgress {
  uint32_t step = 0;    // training steps
  uint32_t change = 0;  // changes of rows
  uint64_t sweep = 0;   // the next bucket to look for rows that have expired
};

// Keys with their rows, or their counts, sorted by key, in device memory.
struct RowList {
  uint32_t count = 0;
  DeviceBuffer keys;
  DeviceBuffer rows;
};

// Waits for the device. REQUIRES: the counters were read after the last step.
absl::StatusOr<RowList> ListRows(const DeviceStorage& storage, size_t table,
                                 const EntryFilter& filter, cudaStream_t stream);

// Erases all rows that have expired, without waiting.
absl::Status EraseAllExpired(const DeviceStorage& storage, size_t table,
                             const TableProgress& progress, cudaStream_t stream);

// At the begin of a training step: erases a share of the rows that have expired, and the least
// recently seen rows of a table that is beyond its bound; forgets keys that wait for admission, if
// there are too many. Waits for the device only where a bound may be reached.
absl::Status BeginAges(DeviceStorage& storage, size_t table, TableProgress& progress,
                       cudaStream_t stream);

}  // namespace hps
