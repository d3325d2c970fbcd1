// Guarantees for a process with caches on two devices. Skipped with fewer than two GPUs.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/macros.h"
#include "gpu/cuda_resources.h"
#include "gpu/cuda_status.h"
#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 64;
constexpr size_t kKeys = 1000;

// A cache on a device, its table, and device memory for a lookup.
struct Node {
  std::unique_ptr<DeviceCache> cache;
  StampedTable table;
  DeviceBuffer keys;
  DeviceBuffer rows;
  CudaStream stream;

  DeviceCacheQuery query() const {
    return {.table = table.table.get(),
            .space = MemorySpace::kDevice,
            .keys = keys.at<Key>(0),
            .key_count = kKeys,
            .rows = rows.data(),
            .row_bytes = kRowBytes,
            .row_stride_bytes = kRowBytes};
  }
};

class TwoGpusTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (GpuDeviceCount() < 2) GTEST_SKIP() << "needs two GPUs";
    for (Key key = 0; key < static_cast<Key>(kKeys); ++key) keys_.push_back(key);
    for (int device : {0, 1}) MakeNode(device);
  }
  // Each on its own device.
  void TearDown() override {
    for (int device : {1, 0}) {
      const DeviceScope scope(device);
      nodes_[static_cast<size_t>(device)].reset();
    }
  }

  // The rows of device d have version d + 1.
  void MakeNode(int device) {
    const DeviceScope scope(device);
    nodes_[static_cast<size_t>(device)] = std::make_unique<Node>();
    Node& node = *nodes_[static_cast<size_t>(device)];
    auto cache = MakeGpuCache(
        {.device = device, .bytes_max = 16 << 20, .calls_max = 2, .call_keys_max = kKeys});
    ASSERT_TRUE(cache.ok()) << cache.status();
    node.cache = *std::move(cache);
    auto table = node.cache->OpenTable(kRowBytes, node.cache->TableBytes(kRowBytes, 2 * kKeys));
    ASSERT_TRUE(table.ok()) << table.status();
    node.table = {*std::move(table), 1};
    StampedBatch batch(node.table, keys_, static_cast<Version>(device + 1));
    ASSERT_TRUE(node.table.table->InsertIfAbsent(batch.batch(), 0).ok());
    ASSERT_EQ(node.table.table->Flush(kNoDeadline), absl::OkStatus());
    node.keys = *MakeDeviceBuffer("keys", kKeys * sizeof(Key));
    node.rows = *MakeDeviceBuffer("rows", kKeys * kRowBytes);
    node.stream = *MakeStream(StreamPriority::kHigh);
    ASSERT_EQ(
        cudaMemcpy(node.keys.data(), keys_.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice),
        cudaSuccess);
  }

  // The number of wrong rows of a lookup on `device`. The thread's current device is another one.
  size_t WrongRows(int device) {
    const Node& node = *nodes_[static_cast<size_t>(device)];
    const DeviceCacheQuery query = node.query();
    std::vector<std::byte> rows(kKeys * kRowBytes);
    {
      auto call = node.cache->AcquireCall(kKeys);
      if (!call.ok() || !(*call)->Begin({&query, 1}, Stream{node.stream.get()}).ok()) return kKeys;
      if (!(*call)->Misses(kNoDeadline).ok()) return kKeys;
    }
    if (cudaMemcpy(rows.data(), node.rows.data(), rows.size(), cudaMemcpyDeviceToHost) !=
        cudaSuccess) {
      return kKeys;
    }
    size_t wrong = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      wrong += StampedRow::Matches(1, keys_[i], static_cast<Version>(device + 1),
                                   {rows.data() + i * kRowBytes, kRowBytes})
                   ? 0
                   : 1;
    }
    return wrong;
  }

  std::vector<Key> keys_;
  std::array<std::unique_ptr<Node>, 2> nodes_;
};

TEST_F(TwoGpusTest, EachDeviceAnswersFromItsOwnCache) {
  std::array<size_t, 2> wrong = {};
  std::array<std::thread, 2> threads;
  for (int device : {0, 1}) {
    threads[static_cast<size_t>(device)] = std::thread([&, device] {
      (void)cudaSetDevice(
          1 - device);  // a lookup selects its device itself and restores the previous one
      for (int round = 0; round < 200; ++round)
        wrong[static_cast<size_t>(device)] += WrongRows(device);
      int current = -1;
      EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
      EXPECT_EQ(current, 1 - device);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The table may have lost a row or two at its fill of three quarters.
  for (const size_t rows : wrong) EXPECT_LT(rows, 200u * 5);
}

// Catches: a lock or a stream that the caches of a process share.
TEST_F(TwoGpusTest, OneThatHangsLeavesTheOtherServing) {
  const auto look_up = [&](int device) -> absl::Status {
    const DeviceScope scope(device);
    const Node& node = *nodes_[static_cast<size_t>(device)];
    const DeviceCacheQuery query = node.query();
    HPS_ASSIGN_OR_RETURN(const DeviceCallLease call, node.cache->AcquireCall(kKeys));
    HPS_RETURN_IF_ERROR(call->Begin({&query, 1}, Stream{node.stream.get()}));
    return call->Misses(RealClock().Now() + std::chrono::milliseconds(200)).status();
  };
  {
    const DeviceScope scope(1);
    const StreamHold hold(nodes_[1]->stream.get());
    EXPECT_EQ(look_up(1).code(), absl::StatusCode::kDeadlineExceeded);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(WrongRows(0), 0u);
  }
  EXPECT_EQ(WrongRows(1), 0u);  // it answers again
}

// Without the check the kernel would write to an invalid address, which makes every later call on
// its device fail.
TEST_F(TwoGpusTest, MemoryOfTheOtherDeviceIsRefused) {
  for (size_t device : {0, 1}) {
    const Node& node = *nodes_[device];
    const Node& other = *nodes_[1 - device];
    const auto begin = [&](const DeviceCacheQuery& query, const CudaStream& stream) {
      auto call = *node.cache->AcquireCall(kKeys);
      return call->Begin({&query, 1}, Stream{stream.get()}).code();
    };
    DeviceCacheQuery query = node.query();
    query.rows = other.rows.data();
    EXPECT_EQ(begin(query, node.stream), absl::StatusCode::kInvalidArgument);
    query = node.query();
    query.keys = other.keys.at<Key>(0);
    EXPECT_EQ(begin(query, node.stream), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(begin(node.query(), other.stream), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(WrongRows(static_cast<int>(device)), 5u);
  }
}

// In its own process, in which no thread has selected a device. Returns the exit status.
int UseDevice1OnAThreadWithoutADevice() {
  void* function = nullptr;
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, CUDART_VERSION,
                                       cudaEnableDefault) != cudaSuccess)
    return 1;
  const auto state = std::bit_cast<decltype(&cuDevicePrimaryCtxGetState)>(function);
  const auto has_context = [&](int device) {
    unsigned flags = 0;
    int active = 0;
    return state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
  };
  if (has_context(0) || has_context(1)) return 2;
  {
    const DeviceScope scope(1);
    if (!scope.Check().ok() || !MakeDeviceBuffer("test memory", 1000).ok()) return 3;
  }
  if (has_context(0) || !has_context(1)) return 4;
  int current = -1;
  return cudaGetDevice(&current) == cudaSuccess && current == 0 ? 0 : 5;
}

// Catches: a context of hundreds of megabytes on device 0, in a process that uses another device.
TEST(TwoGpusDeathTest, AThreadThatHasChosenNoDeviceIsLeftSo) {
  if (GpuDeviceCount() < 2) GTEST_SKIP() << "needs two GPUs";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(UseDevice1OnAThreadWithoutADevice()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hps
