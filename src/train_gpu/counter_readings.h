// The counters of tables and groups in device memory, and what the host knows of them without
// waiting: copies are queued behind steps, and the newest one that has ended is used.
//
// Not thread-safe. The owner makes the device current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda_resources.h"
#include "train_gpu/kernels/layout.h"

namespace hps {

// Keys that may get a row, at most.
struct NewKeys {
  struct OfTable {
    size_t table = 0;
    uint64_t count = 0;
  };
  std::vector<OfTable> tables;
  uint64_t total = 0;  // of all tables; may be less than the sum of them
};

class CounterReadings {
 public:
  CounterReadings() = default;
  // All counters are 0 when the stream's work has been done.
  static absl::StatusOr<CounterReadings> Create(size_t table_count, size_t group_count,
                                                cudaStream_t stream);

  // In device memory.
  TrainTableCounters* tables() const { return counters_.at<TrainTableCounters>(0); }
  TrainGroupCounters* groups() const {
    return counters_.at<TrainGroupCounters>(table_count_ * sizeof(TrainTableCounters));
  }

  // Called when the work that takes rows for these keys is queued: queues a copy behind it.
  void AddTaken(const NewKeys& keys, cudaStream_t stream);
  void Poll();
  // Waits for the oldest copy that is under way. False: there is none.
  bool Wait();
  // Waits for the stream, and reads all counters.
  absl::Status Read(cudaStream_t stream);

  // As read last.
  const TrainTableCounters& table(size_t table) const {
    return memory_.at<TrainTableCounters>(kReadings * bytes())[table];
  }
  const TrainGroupCounters& group(size_t group) const {
    return memory_.at<TrainGroupCounters>(kReadings * bytes() +
                                          table_count_ * sizeof(TrainTableCounters))[group];
  }
  // Keys of AddTaken since.
  uint64_t taken_since(size_t table) const { return taken_[table] - known_taken_[table]; }
  uint64_t all_taken_since() const { return taken_since(table_count_); }

 private:
  static constexpr size_t kReadings = 8;

  struct Reading {
    CudaEvent event;
    bool is_under_way = false;
    std::vector<uint64_t> taken;  // as taken_, when the copy was queued
  };

  size_t bytes() const { return counters_.bytes(); }

  size_t table_count_ = 0;
  DeviceBuffer counters_;
  PinnedBuffer memory_;  // [kReadings + 1] copies of all counters; the last one is the known one
  std::vector<Reading> readings_;
  size_t next_ = 0;
  std::vector<uint64_t> taken_;        // keys so far of each table, and of all together
  std::vector<uint64_t> known_taken_;  // when the known counters were copied
};

}  // namespace hps
