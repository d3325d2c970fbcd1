// The memory of a device's tables: index, rows and counters, and their growth.
//
// The host knows a bound of what the device has taken: the counters that it read last, plus all
// keys of the steps since. Counters are read behind each step, without waiting. Only where the
// bound is beyond the memory, a step waits and asks for the true numbers.
//
// Guarded by mutex(): one call at a time, of a step or of rows. The owner makes the device current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "gpu/cuda_resources.h"
#include "gpu/virtual_memory.h"
#include "train/table_rows.h"
#include "train_gpu/counter_readings.h"
#include "train_gpu/kernels/kernels.h"
#include "train_gpu/kernels/layout.h"

namespace hps {

class DeviceStorage {
 public:
  // REQUIRES: the device is current.
  static absl::StatusOr<std::unique_ptr<DeviceStorage>> Create(
      int device, const std::vector<ShardOptions>& options);
  // Waits for the device.
  ~DeviceStorage();
  DeviceStorage(const DeviceStorage&) = delete;
  DeviceStorage& operator=(const DeviceStorage&) = delete;

  int device() const { return device_; }
  Mutex& mutex() const { return mutex_; }

  size_t table_count() const { return tables_.size(); }
  const ShardOptions& options(size_t table) const { return tables_[table].options; }
  uint32_t group_of(size_t table) const { return table_views_[table].group; }
  const TrainGroupView& group(uint32_t group) const { return group_views_[group]; }
  const TrainTableView& table(size_t table) const { return table_views_[table]; }

  TableMemory memory(size_t table) const {
    return {table_views_[table], group_views_[group_of(table)], counters(table),
            group_counters(group_of(table)), view_.problems};
  }

  // For kernels. Its addresses stay.
  const TrainSetView& view() const { return view_; }
  TrainTableCounters* counters(size_t table) const { return view_.table_counters + table; }
  TrainGroupCounters* group_counters(uint32_t group) const { return view_.group_counters + group; }
  uint64_t* skipped() const { return skipped_.at<uint64_t>(0); }

  // Whether there is room for these for certain.
  bool HasRoom(const NewKeys& keys) const;
  // Makes room for `needed`, and for some steps with `wanted`, of the same tables, as well where
  // that takes little memory. Waits for the stream. Errors: RESOURCE_EXHAUSTED (names the table,
  // and says how many rows and bytes): then there is the room that there was, or more.
  absl::Status MakeRoom(const NewKeys& needed, const NewKeys& wanted, cudaStream_t stream);
  // Called when the work that takes rows for these keys is queued.
  void AddTaken(const NewKeys& keys, cudaStream_t stream) { readings_.AddTaken(keys, stream); }
  // Waits until the host knows what an earlier step has taken; the device goes on with later ones.
  // False: it knows everything.
  bool WaitForReading() { return readings_.Wait(); }
  // The most rows that the table can have, as far as the host knows.
  uint64_t RowsBound(size_t table) const;

  // Makes the stream wait for all work queued before, and makes later work wait for this stream.
  // Errors: FAILED_PRECONDITION: the stream is being captured in a graph.
  absl::Status Enter(cudaStream_t stream);
  absl::Status Leave(cudaStream_t stream);

  // Waits for the stream, and reads all counters.
  absl::Status ReadCounters(cudaStream_t stream) { return readings_.Read(stream); }
  // As read last.
  const TrainTableCounters& table_counters(size_t table) const { return readings_.table(table); }

  uint64_t IndexBytes(size_t table) const { return tables_[table].index.bytes(); }
  uint64_t RowBytes(size_t table) const;

  // What a step has found wrong since the last call. Errors: INVALID_ARGUMENT, INTERNAL.
  absl::Status TakeProblem();
  // The same of one problem. Errors: INTERNAL.
  absl::Status TakeFullIndex();

  // Numbers the steps that can be updated. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<uint32_t> NextOrder();

  // For rows outside of steps; for the part of a step that goes on beside another one.
  cudaStream_t stream() const { return stream_.get(); }
  cudaStream_t beside() const { return beside_.get(); }

 private:
  struct Table {
    ShardOptions options;
    VirtualMemory index;
  };
  struct Group {
    VirtualMemory rows;
    VirtualMemory records;
    VirtualMemory free_rows;
    DeviceBuffer corrections;
    std::string tables;  // their names
  };
  explicit DeviceStorage(int device) : device_(device) {}

  absl::Status Initialize(const std::vector<ShardOptions>& options);
  absl::Status AddTable(const ShardOptions& options);
  absl::StatusOr<uint32_t> GroupFor(const ShardOptions& options);
  absl::Status AddCorrections(Group& group, TrainGroupView& view);
  absl::Status UploadViews(cudaStream_t stream);

  absl::Status Grow(const NewKeys& needed, const NewKeys& wanted, cudaStream_t stream);
  // An index for the keys that it has and so many new ones.
  absl::Status GrowIndex(size_t table, uint64_t new_keys, cudaStream_t stream);
  absl::Status GrowRows(uint32_t group, uint64_t rows);
  uint64_t RowsMax(uint32_t group) const;

  uint64_t SlotsBound(size_t table) const;
  uint64_t RowsWith(uint32_t group, uint64_t more) const;

  const int device_;
  mutable Mutex mutex_;
  std::vector<Table> tables_;
  std::vector<Group> groups_;
  std::vector<TrainTableView> table_views_;
  std::vector<TrainGroupView> group_views_;
  DeviceBuffer device_views_;
  DeviceBuffer skipped_;
  PinnedBuffer problems_;
  CounterReadings readings_;
  uint32_t order_ = 0;
  TrainSetView view_{};
  CudaStream stream_;
  CudaStream beside_;
  CudaEvent last_work_;
};

}  // namespace hps
