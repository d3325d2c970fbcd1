// A warm session on a GPU, asked from the host or the device: while level 1 holds all keys, and
// while level 2 answers, a call allocates nothing on its thread, neither host nor device memory,
// and asks the runtime for no synchronization. It is warm after one call as large as any that
// follow; on the host, after one that level 1 has answered, too. This program counts every operator
// new and, by the linker's --wrap, the calls of the runtime that test_counted_runtime.h names.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_counted_runtime.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "tests/query/test_allocation_world.h"

namespace hps {
namespace {

class GpuAllocationTest : public AllocationWorld {
 protected:
  void SetUp() override {
    const std::string why = WhyNoGpu();
    if (!why.empty()) GTEST_SKIP() << why;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    Open(*MakeGpuCache({.bytes_max = 64 << 20, .calls_max = 2, .call_keys_max = 100'000}),
         2 * kRows);
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

  void ClearLevel2() {
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l2()[0].table().Clear().ok());
  }

  void ClearLevel1() {
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l1(0)->Clear().ok());
    AwaitPromotions();
  }

  // What a call asked for on this thread.
  struct CallCost {
    uint64_t allocations = 0;
    uint64_t runtime_calls = 0;
  };
  struct DeviceCallOptions {
    bool wants_status = false;
    cudaStream_t stream = nullptr;
  };

  // Queries for `count` keys from 0 on, of every table, with all that they name in the device's
  // memory, which stays allocated.
  std::vector<DeviceTableQuery> DeviceQueries(const LookupSession& session, size_t count,
                                              bool wants_status) {
    std::vector<Key> keys(count);
    std::iota(keys.begin(), keys.end(), 0);
    std::byte* const device_keys = memory_.Allocate(count * sizeof(Key));
    memory_.CopyIn(device_keys, std::as_bytes(std::span(keys)));
    std::vector<DeviceTableQuery> queries;
    for (uint32_t t = 0; t < kTables; ++t) {
      const size_t bytes = count * session.output_row_bytes({t});
      DeviceTableQuery& query = queries.emplace_back();
      query.table = {t};
      query.keys = {static_cast<const Key*>(static_cast<const void*>(device_keys)), count};
      query.rows = {memory_.Allocate(bytes), bytes};
      if (!wants_status) continue;
      query.status = {static_cast<KeyStatus*>(static_cast<void*>(memory_.Allocate(count))), count};
    }
    return queries;
  }

  // All answers have the status `wanted`.
  CallCost CostOfDeviceCall(LookupSession& session, size_t count, KeyStatus wanted,
                            const DeviceCallOptions& options) {
    const auto queries = DeviceQueries(session, count, options.wants_status);
    const DeviceLookupRequest request{.queries = queries, .stream = {options.stream}};
    LookupCounts counts;
    const uint64_t allocations_before = allocations_here;
    const uint64_t runtime_calls_before = runtime_calls_here;
    const absl::Status status = session.Lookup(request, &counts);
    const CallCost cost = {allocations_here - allocations_before,
                           runtime_calls_here - runtime_calls_before};
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(counts[wanted], count * kTables);
    if (options.stream != nullptr) {
      EXPECT_EQ(cudaStreamSynchronize(options.stream), cudaSuccess);
    }
    if (options.wants_status) CheckStatuses(queries, wanted);
    return cost;
  }

  void CheckStatuses(std::span<const DeviceTableQuery> queries, KeyStatus wanted) {
    for (const DeviceTableQuery& query : queries) {
      std::vector<KeyStatus> statuses(query.status.size());
      memory_.CopyOut(std::as_writable_bytes(std::span(statuses)),
                      static_cast<const std::byte*>(static_cast<const void*>(query.status.data())));
      EXPECT_EQ(std::ranges::count(statuses, wanted), std::ssize(statuses));
    }
  }

  // Warms a new session with one call, which level 3 answers.
  void CheckWarmDeviceCalls(std::optional<Dtype> output_dtype, const DeviceCallOptions& options) {
    constexpr size_t kKeysMax = 4000;
    const auto expect_none = [](const CallCost& cost) {
      EXPECT_EQ(cost.allocations, 0u);
      EXPECT_EQ(cost.runtime_calls, 0u);
    };
    ClearLevel1();
    ClearLevel2();
    const auto session = NewSession(output_dtype);
    CostOfDeviceCall(*session, kKeysMax, KeyStatus::kHitL3, options);
    AwaitPromotions();
    for (const size_t count : {size_t{100}, size_t{3000}, kKeysMax}) {
      SCOPED_TRACE(testing::Message() << count << " keys in level 1");
      expect_none(CostOfDeviceCall(*session, count, KeyStatus::kHitL1, options));
    }
    ClearLevel1();
    SCOPED_TRACE("level 2 answers");
    expect_none(CostOfDeviceCall(*session, kKeysMax, KeyStatus::kHitL2, options));
    AwaitPromotions();
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
    for (const bool wants_status : {false, true}) {
      SCOPED_TRACE(testing::Message() << output_dtype.has_value() << wants_status);
      CheckWarmDeviceCalls(output_dtype, {.wants_status = wants_status});
    }
  }
}

TEST_F(GpuAllocationTest, NothingIsAllocatedOnACallersStream) {
  const CudaStream stream = *MakeStream(StreamPriority::kLow);
  for (const std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    for (const bool wants_status : {false, true}) {
      SCOPED_TRACE(testing::Message() << output_dtype.has_value() << wants_status);
      CheckWarmDeviceCalls(output_dtype, {.wants_status = wants_status, .stream = stream.get()});
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
