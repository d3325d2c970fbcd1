// Keys that are queried all the time, while their rows change with pauses between. Many rows then
// come from the multiprocessors' own caches, which earlier and concurrent lookups have filled. Even
// so a row is never torn, and a lookup that begins after an update shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/spin.h"
#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "l1_gpu/test_row_check.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

struct HotRows {
  size_t row_bytes;
  size_t key_count;
};

class GpuHotRowsTest : public GpuTest, public testing::WithParamInterface<HotRows> {
 protected:
  static constexpr uint64_t kTable = 1;
  static constexpr Version kVersions = 10'000;
  static constexpr size_t kKeysMax = size_t{1} << 17;
  // The test ends by then, however many rows it has checked.
  static constexpr Duration kLastsMax = std::chrono::seconds(8);

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto cache = MakeGpuCache({.bytes_max = 256 << 20, .calls_max = 8, .call_keys_max = kKeysMax});
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    table_ = {*cache_->OpenTable(row_bytes_, cache_->TableBytes(row_bytes_, 16 * hot_keys_.size())),
              kTable};
    std::iota(hot_keys_.begin(), hot_keys_.end(), Key{0});
    StampedBatch batch(table_, hot_keys_, 1);
    ASSERT_TRUE(table_.table->InsertIfAbsent(batch.batch(), 0).ok());
    ASSERT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
  }

  std::vector<Key> RandomKeys(size_t count, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Key> keys(count);
    for (Key& key : keys) key = static_cast<Key>(random() % hot_keys_.size());
    return keys;
  }

  // Lookups with device memory, one after the other; the device checks whether each row is
  // complete.
  void KeepHot(uint64_t seed) {
    GpuCacheMemory memory;
    const std::vector<Key> keys = RandomKeys(kKeysMax, seed);
    std::byte* const device_keys = memory.Allocate(keys.size() * sizeof(Key));
    memory.CopyIn(device_keys, std::as_bytes(std::span(keys)));
    const DeviceBuffer status = *MakeDeviceBuffer("status", keys.size() * sizeof(KeyStatus));
    const DeviceBuffer result = *MakeDeviceBuffer("result", sizeof(RowCheckResult));
    ASSERT_EQ(cudaMemset(result.data(), 0, result.bytes()), cudaSuccess);
    const CudaStream stream = *MakeStream(StreamPriority::kLow);
    const DeviceCacheQuery query = {
        .table = table_.table.get(),
        .space = MemorySpace::kDevice,
        .keys = static_cast<const Key*>(static_cast<const void*>(device_keys)),
        .key_count = keys.size(),
        .rows = memory.Allocate(keys.size() * row_bytes_),
        .row_bytes = row_bytes_,
        .row_stride_bytes = row_bytes_,
        .status = status.at<KeyStatus>(0)};
    while (!stopped_) {
      const DeviceCallLease call = *cache_->AcquireCall(keys.size());
      ASSERT_EQ(call->Begin({&query, 1}, Stream{stream.get()}), absl::OkStatus());
      ASSERT_TRUE(call->Misses(kNoDeadline).ok());
      ASSERT_EQ(LaunchRowCheck({.table = kTable,
                                .keys = query.keys,
                                .key_count = keys.size(),
                                .rows = query.rows,
                                .row_bytes = row_bytes_,
                                .row_stride_bytes = row_bytes_,
                                .status = query.status,
                                .result = result.at<RowCheckResult>(0)},
                               stream.get()),
                cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    }
    RowCheckResult counted;
    ASSERT_EQ(cudaMemcpy(&counted, result.data(), sizeof(counted), cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_GT(counted.hits, 0u);
    EXPECT_EQ(counted.foreign, 0u) << "of " << counted.hits << " rows: torn, or another key's";
  }

  // Lookups whose rows are all checked.
  void Check(size_t key_count) {
    const std::vector<Key> keys = RandomKeys(key_count, key_count);
    std::vector<std::byte> rows(keys.size() * row_bytes_);
    const DeviceCacheQuery query = {.table = table_.table.get(),
                                    .keys = keys.data(),
                                    .key_count = keys.size(),
                                    .rows = rows.data(),
                                    .row_bytes = row_bytes_,
                                    .row_stride_bytes = row_bytes_};
    std::vector<Version> seen(hot_keys_.size());
    while (!stopped_) {
      const Version shown = shown_.load();
      const DeviceCallLease call = *cache_->AcquireCall(keys.size());
      ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
      ASSERT_TRUE(call->Misses(kNoDeadline).ok());
      ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
      // Within one call, any row of a key may be the newer one.
      std::vector<Version> next = seen;
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto key = static_cast<size_t>(keys[i]);
        const std::optional<Version> version = StampedRow::VersionOf(
            kTable, keys[i], std::span(rows).subspan(i * row_bytes_, row_bytes_));
        ASSERT_TRUE(version.has_value()) << "a row of key " << key << " is torn or another's";
        ASSERT_GE(*version, shown) << "key " << key << " shows what an update had overwritten";
        ASSERT_GE(*version, seen[key]) << "key " << key << " went back";
        next[key] = std::max(next[key], *version);
      }
      seen = std::move(next);
      checked_ += keys.size();
    }
  }

  // Updates all hot keys, then pauses.
  void Write() {
    const TimePoint end = RealClock().Now() + kLastsMax;
    for (Version version = 2; version <= kVersions && !HasFatalFailure(); ++version) {
      StampedBatch batch(table_, hot_keys_, version);
      ASSERT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
      ASSERT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
      shown_ = version;
      if (RealClock().Now() >= end) return;
      SpinLimit pause(std::chrono::microseconds(100));
      while (pause.Spin()) {
      }
    }
  }

  std::unique_ptr<DeviceCache> cache_;
  StampedTable table_;
  const size_t row_bytes_ = GetParam().row_bytes;
  std::vector<Key> hot_keys_ = std::vector<Key>(GetParam().key_count);
  std::atomic<Version> shown_{1};  // every lookup from now on shows it, or a later one
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> checked_{0};
};

// Between the updates, rows are read through those caches. The other concurrency tests, whose
// writers never pause, hardly do this. Catches: tiles of one call that take some lines of a row
// from before an update, and others from after it.
TEST_P(GpuHotRowsTest, ConcurrentLookUpsShowWhatWasUpdatedBefore) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([this, i] { KeepHot(i + 1); });
  for (const size_t key_count : {500, 4096, 12'000, 30'000})
    threads.emplace_back([this, key_count] { Check(key_count); });
  Write();
  stopped_ = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(checked_, 0u);
  RecordProperty("checked", std::to_string(checked_));
}

// Few keys that all fit into those caches, and so many that the lines of one row are evicted
// separately.
INSTANTIATE_TEST_SUITE_P(Shapes, GpuHotRowsTest,
                         testing::Values(HotRows{128, 64}, HotRows{512, 768}, HotRows{1024, 512},
                                         HotRows{1024, 64}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.key_count) + "RowsOf" +
                                  std::to_string(shape.param.row_bytes) + "Bytes";
                         });

}  // namespace
}  // namespace hps
