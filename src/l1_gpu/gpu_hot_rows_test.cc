// A few keys that everybody asks for all the time, while their rows change with pauses between. So
// most rows come from the multiprocessors' own caches, which look-ups before have filled; and all
// the same a look-up that begins after an update shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/spin.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_gpu.h"
#include "tier/stamped_row.h"

namespace hps {
namespace {

class GpuHotRowsTest : public GpuTest {
 protected:
  static constexpr size_t kRowBytes = 128;
  static constexpr size_t kHotKeys = 64;
  static constexpr uint64_t kTable = 1;
  static constexpr Version kVersions = 10'000;
  static constexpr size_t kKeysMax = size_t{1} << 17;
  // The test ends by then, whatever it has seen.
  static constexpr Duration kLastsMax = std::chrono::seconds(30);

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto cache = MakeGpuCache({.bytes_max = 64 << 20, .calls_max = 8, .call_keys_max = kKeysMax});
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    table_ = {*cache_->OpenTable(kRowBytes, cache_->TableBytes(kRowBytes, 16 * kHotKeys)), kTable};
    std::iota(hot_keys_.begin(), hot_keys_.end(), Key{0});
    StampedBatch batch(table_, hot_keys_, 1);
    ASSERT_TRUE(table_.table->Replace(batch.batch(), 0).ok());
    ASSERT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
  }

  // Look-ups of device memory, one behind the other, whose rows nobody looks at.
  void KeepHot() {
    GpuCacheMemory memory;
    std::vector<Key> keys(kKeysMax);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i * 7 % kHotKeys);
    std::byte* const device_keys = memory.Allocate(keys.size() * sizeof(Key));
    memory.CopyIn(device_keys, std::as_bytes(std::span(keys)));
    const DeviceCacheQuery query = {
        .table = table_.table.get(),
        .space = MemorySpace::kDevice,
        .keys = static_cast<const Key*>(static_cast<const void*>(device_keys)),
        .key_count = keys.size(),
        .rows = memory.Allocate(keys.size() * kRowBytes),
        .row_bytes = kRowBytes,
        .row_stride_bytes = kRowBytes};
    while (!stopped_) {
      const DeviceCallLease call = *cache_->AcquireCall(keys.size());
      ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
      ASSERT_TRUE(call->Misses(kNoDeadline).ok());
    }
  }

  // Look-ups whose rows are all looked at.
  void Check(size_t key_count) {
    std::vector<Key> keys(key_count);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i * 5 % kHotKeys);
    std::vector<std::byte> rows(keys.size() * kRowBytes);
    const DeviceCacheQuery query = {.table = table_.table.get(),
                                    .keys = keys.data(),
                                    .key_count = keys.size(),
                                    .rows = rows.data(),
                                    .row_bytes = kRowBytes,
                                    .row_stride_bytes = kRowBytes};
    std::vector<Version> seen(kHotKeys);
    while (!stopped_) {
      const Version shown = shown_.load();
      const DeviceCallLease call = *cache_->AcquireCall(keys.size());
      ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
      ASSERT_TRUE(call->Misses(kNoDeadline).ok());
      ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
      // Of one call's rows of a key any may be the newer one.
      std::vector<Version> next = seen;
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto key = static_cast<size_t>(keys[i]);
        const std::optional<Version> version = StampedRow::VersionOf(
            kTable, keys[i], std::span(rows).subspan(i * kRowBytes, kRowBytes));
        ASSERT_TRUE(version.has_value()) << "a row of key " << key << " is torn or another's";
        ASSERT_GE(*version, shown) << "key " << key << " shows what an update had overwritten";
        ASSERT_GE(*version, seen[key]) << "key " << key << " went back";
        next[key] = std::max(next[key], *version);
      }
      seen = std::move(next);
      checked_ += keys.size();
    }
  }

  // Updates all hot keys; then nobody writes for a while.
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
  std::vector<Key> hot_keys_ = std::vector<Key>(kHotKeys);
  std::atomic<Version> shown_{1};  // every look-up that begins now shows it, or a later one
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> checked_{0};
};

// While nobody writes, rows are read through those caches, which the other concurrency tests, whose
// writers never rest, hardly do. (A launch empties them too, so that a missing acquire alone would
// not show here.)
TEST_F(GpuHotRowsTest, ConcurrentLookUpsShowWhatWasUpdatedBefore) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([this] { KeepHot(); });
  for (const size_t key_count : {500, 4096, 12'000, 30'000})
    threads.emplace_back([this, key_count] { Check(key_count); });
  Write();
  stopped_ = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(checked_, 0u);
  RecordProperty("checked", std::to_string(checked_));
}

}  // namespace
}  // namespace hps
