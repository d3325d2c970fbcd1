// A session on a GPU, asked from the host or the device, allocates nothing after warm-up while
// level 1 holds all keys, and asks the runtime for no synchronization; nor does it while level 2
// answers. This program counts every operator new and, by the linker's --wrap, calls of the
// runtime.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_counted_runtime.h"
#include "l1_gpu/test_gpu.h"
#include "tests/query/test_allocation_world.h"

namespace hps {
namespace {

class GpuAllocationTest : public AllocationWorld {
 protected:
  void SetUp() override {
    const std::string why = WhyNoGpu();
    if (!why.empty()) GTEST_SKIP() << why;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    Open(*MakeGpuCache({.bytes_max = 64 << 20, .calls_max = 2, .call_keys_max = 100'000}));
  }

  std::unique_ptr<LookupSession> NewSession(std::optional<Dtype> output_dtype) {
    return *factory_->NewSession(*model_,
                                 {.device = 0, .output_dtype = output_dtype, .keys_max = 100'000});
  }

  // What was asked of level 1 is there.
  void AwaitPromotions() {
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    for (const auto& table : model_->Tables())
      ASSERT_EQ(table->l1(0)->Flush(DeadlineAfter(RealClock(), std::chrono::minutes(1))),
                absl::OkStatus());
  }

  void ClearLevel1() {
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l1(0)->Clear().ok());
    AwaitPromotions();
  }

  // As AllocationsOfCall, with keys and outputs in the device's memory, which stays allocated.
  uint64_t AllocationsOfDeviceCall(LookupSession& session, Key first, size_t count,
                                   LookupCounts* counts) {
    std::vector<Key> keys(count);
    std::iota(keys.begin(), keys.end(), first);
    std::byte* const device_keys = memory_.Allocate(count * sizeof(Key));
    memory_.CopyIn(device_keys, std::as_bytes(std::span(keys)));
    const Span<const Key, MemorySpace::kDevice> asked(
        static_cast<const Key*>(static_cast<const void*>(device_keys)), count);
    std::vector<DeviceTableQuery> queries;
    for (uint32_t t = 0; t < kTables; ++t) {
      const size_t bytes = count * session.output_row_bytes(t);
      queries.push_back({.table = t, .keys = asked, .rows = {memory_.Allocate(bytes), bytes}});
    }
    const uint64_t before = allocations_here;
    const absl::Status status = session.Lookup({.queries = queries}, counts);
    const uint64_t allocations = allocations_here - before;
    EXPECT_TRUE(status.ok()) << status;
    return allocations;
  }

  GpuCacheMemory memory_;
};

// 100 keys come back with the probe, 3,000 in pieces.
TEST_F(GpuAllocationTest, NothingIsAllocatedForKeysAndRowsOnTheHost) {
  for (const std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    ClearLevel1();
    const auto session = NewSession(output_dtype);
    LookupCounts counts;
    AllocationsOfCall(*session, 0, 4000, 1.0, &counts);  // warms up
    AwaitPromotions();
    AllocationsOfCall(*session, 0, 4000, 1.0, &counts);
    for (const size_t count : {100, 3000, 4000}) {
      const uint64_t runtime_calls_before = runtime_calls_here;
      EXPECT_EQ(AllocationsOfCall(*session, 0, count, 1.0, &counts), 0u) << count << " keys";
      EXPECT_EQ(runtime_calls_here, runtime_calls_before) << count << " keys";
      EXPECT_EQ(counts[KeyStatus::kHitL1], count * kTables);
    }
    ClearLevel1();
    const uint64_t runtime_calls_before = runtime_calls_here;
    EXPECT_EQ(AllocationsOfCall(*session, 0, 4000, 1.0, &counts), 0u);
    EXPECT_EQ(runtime_calls_here, runtime_calls_before);
    EXPECT_EQ(counts[KeyStatus::kHitL2], 4000 * kTables);
    AwaitPromotions();
  }
}

TEST_F(GpuAllocationTest, NothingIsAllocatedForKeysAndRowsOnTheDevice) {
  for (const std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    ClearLevel1();
    const auto session = NewSession(output_dtype);
    LookupCounts counts;
    AllocationsOfDeviceCall(*session, 0, 4000, &counts);  // warms up
    AwaitPromotions();
    AllocationsOfDeviceCall(*session, 0, 4000, &counts);
    for (const size_t count : {100, 4000}) {
      AllocationsOfDeviceCall(*session, 0, count, &counts);  // the test's own memory
      EXPECT_EQ(AllocationsOfDeviceCall(*session, 0, count, &counts), 0u) << count << " keys";
      EXPECT_EQ(counts[KeyStatus::kHitL1], count * kTables);
    }
  }
}

// The counters do count.
TEST_F(GpuAllocationTest, ALargerCallThanAnyBeforeTakesRoomOnTheDevice) {
  const auto session = NewSession(std::nullopt);
  LookupCounts counts;
  AllocationsOfCall(*session, 0, 100, 1.0, &counts);
  AwaitPromotions();
  AllocationsOfCall(*session, 0, 100, 1.0, &counts);
  const uint64_t before = runtime_calls_here;
  AllocationsOfCall(*session, 0, 10'000, 1.0, &counts);
  EXPECT_GT(runtime_calls_here, before);
}

}  // namespace
}  // namespace hps
