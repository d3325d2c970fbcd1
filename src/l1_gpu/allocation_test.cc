// After warm-up a GPU lookup allocates nothing on its thread, neither host nor device memory, and
// never synchronizes through the runtime: it polls events. This program counts every operator new
// and, through the linker's --wrap, the runtime calls listed in test_counted_runtime.h.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_counted_runtime.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "testing/memory/counted_new.h"

namespace hps {
namespace {

class AllocationTest : public GpuTest {
 protected:
  static constexpr size_t kTables = 40;  // more than one launch takes in its arguments
  static constexpr size_t kKeys = 200;   // of a table
  static constexpr size_t kRowBytes = 64;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    cache_ = *MakeGpuCache({.bytes_max = 64 << 20, .calls_max = 2, .call_keys_max = 100'000});
    for (uint64_t number = 0; number < kTables; ++number) {
      tables_.push_back(
          {*cache_->OpenTable(kRowBytes, cache_->TableBytes(kRowBytes, 1000)), number});
      StampedBatch batch(tables_.back(), KeysOf(0), 1);
      ASSERT_TRUE(tables_.back().table->InsertIfAbsent(batch.batch(), 0).ok());
      ASSERT_EQ(tables_.back().table->Flush(kNoDeadline), absl::OkStatus());
    }
  }

  static std::vector<Key> KeysOf(Key first) {
    std::vector<Key> keys(kKeys);
    std::iota(keys.begin(), keys.end(), first);
    return keys;
  }

  // Lookups through prepared queries; returns the number of misses of the last one.
  size_t LookUp(std::span<const DeviceCacheQuery> queries, std::span<DeviceRowPiece> pieces) {
    DeviceCallLease call = *cache_->AcquireCall(kTables * kKeys);
    EXPECT_TRUE(call->Begin(queries, Stream()).ok());
    const auto misses = call->Misses(kNoDeadline);
    EXPECT_TRUE(misses.ok());
    size_t sum = 0;
    for (size_t q = 0; q < queries.size(); ++q) {
      const size_t count = misses->keys[q].size();
      sum += count;
      pieces[q].query = q;
      pieces[q].statuses = {statuses_.data(), count};
      pieces[q].rows = call->Staging(q, count);
      EXPECT_EQ(pieces[q].rows.row_count, count);
    }
    EXPECT_TRUE(call->Finish(pieces).ok());
    EXPECT_TRUE(call->Wait(kNoDeadline).ok());
    return sum;
  }

  std::unique_ptr<DeviceCache> cache_;
  std::vector<StampedTable> tables_;
  const std::vector<KeyStatus> statuses_ = std::vector<KeyStatus>(kKeys, KeyStatus::kHitL2);
};

TEST_F(AllocationTest, AWarmLookUpAllocatesNothingAndAsksForNoSynchronization) {
  GpuCacheMemory memory;
  for (MemorySpace space : {MemorySpace::kHost, MemorySpace::kDevice}) {
    for (Key first : {0, 150}) {  // all hit; a quarter hits
      const std::vector<Key> keys = KeysOf(first);
      std::vector<Key> host_keys = keys;
      std::vector<std::byte> host_rows(kTables * kKeys * kRowBytes);
      const Key* query_keys = host_keys.data();
      std::byte* query_rows = host_rows.data();
      if (space == MemorySpace::kDevice) {
        std::byte* const device_keys = memory.Allocate(keys.size() * sizeof(Key));
        memory.CopyIn(device_keys, std::as_bytes(std::span(keys)));
        query_keys = static_cast<const Key*>(static_cast<const void*>(device_keys));
        query_rows = memory.Allocate(host_rows.size());
      }
      std::vector<DeviceCacheQuery> queries;
      for (size_t t = 0; t < kTables; ++t) {
        queries.push_back({.table = tables_[t].table.get(),
                           .space = space,
                           .keys = query_keys,
                           .key_count = kKeys,
                           .rows = query_rows + t * kKeys * kRowBytes,
                           .row_bytes = kRowBytes,
                           .row_stride_bytes = kRowBytes});
      }
      std::vector<DeviceRowPiece> pieces(kTables);
      LookUp(queries, pieces);  // warms up
      const uint64_t allocations_before = allocations_here;
      const uint64_t runtime_calls_before = runtime_calls_here;
      const size_t misses = LookUp(queries, pieces);
      EXPECT_EQ(allocations_here, allocations_before);
      EXPECT_EQ(runtime_calls_here, runtime_calls_before);
      EXPECT_EQ(misses, kTables * static_cast<size_t>(first));
    }
  }
  EXPECT_GT(runtime_calls_here, 0u);  // the counters do count
  EXPECT_GT(allocations_here, 0u);
}

}  // namespace
}  // namespace hps
