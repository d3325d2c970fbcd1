// Tables of level 1 on a device, filled to three quarters, with keys to ask them for; and how calls
// on a device are timed. For the scenario l1, in builds with CUDA.
//
// For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/l1/bound_kernels.h"
#include "gpu/cuda_resources.h"
#include "hps/types.h"
#include "l1_gpu/kernels/kernels.h"

namespace hps::bench {

struct CallTimes {
  double one_us = 0;           // median of single calls, each waited for; with its launch's gap
  double back_to_back_us = 0;  // of a row of calls
  double p99_us = 0;           // of single calls
};

// launch(i) puts call i on the stream.
absl::StatusOr<CallTimes> TimeCalls(cudaStream_t stream, size_t runs,
                                    const std::function<cudaError_t(size_t)>& launch);

// As TimeCalls for a graph of `calls` calls.
absl::StatusOr<CallTimes> TimeGraph(cudaStream_t stream, size_t runs, size_t calls,
                                    const std::function<cudaError_t(size_t)>& launch);

// Microseconds of one launch, waited for.
absl::StatusOr<double> TimeOnce(cudaStream_t stream, const std::function<cudaError_t()>& launch);

// How keys are drawn from those that are held.
struct KeyDraw {
  // 0: uniformly, no key twice in a set; else a power law of this exponent, with duplicates.
  double alpha = 0;
};

class DeviceTables {
 public:
  static constexpr size_t kSets = 8;  // in rotation, so that no call finds the last one's rows

  struct Options {
    uint32_t row_bytes = 0;
    uint64_t slots = 0;  // over all tables
    uint32_t table_count = 1;
    uint32_t keys_max = 0;  // of a call
  };
  // Errors: RESOURCE_EXHAUSTED, INTERNAL. REQUIRES: the device is current.
  static absl::StatusOr<std::unique_ptr<DeviceTables>> Create(const Options& options);

  cudaStream_t stream() const { return stream_.get(); }
  uint64_t held_keys_max() const { return held_.size(); }
  // Share of the keys that were put in and are still there.
  absl::StatusOr<double> KeptShare();
  absl::StatusOr<TableCounters> Counters(uint32_t table = 0);

  absl::Status DrawKeys(const KeyDraw& draw);

  // One call for the first `count` keys of set i % kSets, evenly over the tables.
  cudaError_t Query(size_t i, uint32_t count);
  // The same keys' rows by known index. REQUIRES: one table.
  cudaError_t Gather(int shape, size_t i, uint32_t count);
  cudaError_t Scatter(int shape, size_t i, uint32_t count);
  cudaError_t Update(size_t i, uint32_t count, uint32_t blocks_max, cudaStream_t stream);

  // Makes `count` keys that were never used, with rows, and inserts them: two steps, of which the
  // second is timed.
  absl::Status MakeNewKeys(uint32_t count);
  cudaError_t InsertNewKeys(uint32_t count);

  // Queries each set and compares the rows with what was put in.
  // Errors: INTERNAL (rows are wrong; says how many).
  absl::Status CheckRows();

 private:
  DeviceTables() = default;

  absl::Status Allocate(const Options& options);
  absl::Status Fill();
  absl::Status Insert(uint32_t table, const std::vector<Key>& keys);
  absl::StatusOr<uint32_t> TakeCount();  // of what count_ counts; zeroes it
  uint32_t KeysOf(uint32_t table, uint32_t count) const;
  Key* SetKeys(size_t i, uint32_t table) const;

  // The queries of a set's first `key_count` keys: who asks has them at hand.
  struct SetQueries {
    uint32_t key_count = 0;
    std::vector<QueryView> views;
  };
  std::span<const QueryView> QueriesOf(size_t i, uint32_t count);

  Options options_;
  uint32_t part_keys_max_ = 0;  // of a table in a set
  std::array<SetQueries, kSets> queries_;
  CudaStream stream_;
  std::vector<DeviceBuffer> buffers_;  // all that the pointers below point to
  PinnedBuffer pinned_;
  std::vector<TableView> tables_;
  MissBuffers misses_;
  uint32_t generation_ = 0;
  std::vector<Key> held_;          // table after table
  Key* set_keys_ = nullptr;        // [kSets][tables][part_keys_max_]
  uint32_t* set_slots_ = nullptr;  // the same
  Key* new_keys_ = nullptr;        // [keys_max]
  std::byte* rows_ = nullptr;      // [keys_max] rows to put in
  std::byte* output_ = nullptr;    // [keys_max] rows
  uint32_t* count_ = nullptr;
  uint64_t next_key_ = 0;
  uint64_t insertions_ = 0;
};

}  // namespace hps::bench
