// Shared by the tests of the GPU cache: when they can run, and device memory.
//
// Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/cuda_status.h"
#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {

// Empty if there is a GPU.
inline std::string WhyNoGpu() {
  const absl::Status status = CheckGpuDevice(0);
  return status.ok() ? std::string() : "needs a GPU: " + std::string(status.message());
}

// Skips, visibly, without a GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = WhyNoGpu();
    if (!why.empty()) GTEST_SKIP() << why;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
};

// Blocks a stream, as a hung device would, until it is destroyed. After half a minute it fails the
// test, because some wait has no limit.
class StreamHold {
 public:
  explicit StreamHold(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(stream, &StreamHold::Wait, this), cudaSuccess);
  }
  ~StreamHold() {
    released_ = true;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_FALSE(is_over_) << "a wait without end";
  }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

 private:
  static void Wait(void* of) {
    auto* const hold = static_cast<StreamHold*>(of);
    const TimePoint end = RealClock().Now() + std::chrono::seconds(30);
    while (!hold->released_ && !hold->is_over_) {
      hold->is_over_ = RealClock().Now() >= end;
      std::this_thread::yield();
    }
  }

  std::atomic<bool> released_{false};
  std::atomic<bool> is_over_{false};
};

// The hang timeout of objects on a blocked device. A responsive device answers sooner, even under a
// sanitizer.
inline constexpr Duration kHangTimeoutOfTests = std::chrono::seconds(2);

// Free bytes of the device. The runtime occasionally frees some itself: less than before is a leak,
// more is not.
inline size_t FreeDeviceBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  return free_bytes;
}

// Device memory for the contract suite. Freed blocks are reused for their size, because the
// runtime's allocation waits for the whole device. Thread-safe.
class GpuCacheMemory final : public CacheMemory {
 public:
  MemorySpace space() const override { return MemorySpace::kDevice; }

  std::byte* Allocate(size_t bytes) override {
    const size_t block_bytes = std::bit_ceil(bytes);
    MutexLock lock(mutex_);
    std::vector<std::byte*>& free = free_[block_bytes];
    if (free.empty()) {
      blocks_.push_back(*MakeDeviceBuffer("test memory", block_bytes));
      block_bytes_[blocks_.back().data()] = block_bytes;
      return blocks_.back().data();
    }
    std::byte* const memory = free.back();
    free.pop_back();
    return memory;
  }
  void Free(std::byte* memory) override {
    MutexLock lock(mutex_);
    free_[block_bytes_.at(memory)].push_back(memory);
  }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override {
    Copy(to, from.data(), from.size());
  }
  void CopyOut(std::span<std::byte> to, const std::byte* from) override {
    Copy(to.data(), from, to.size());
  }

 private:
  void Copy(void* to, const void* from, size_t bytes) {
    MutexLock lock(mutex_);
    if (stream_ == nullptr) stream_ = *MakeStream(StreamPriority::kHigh);
    ASSERT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  }

  Mutex mutex_;
  CudaStream stream_ HPS_GUARDED_BY(mutex_);  // created on demand, not before a test is skipped
  std::vector<DeviceBuffer> blocks_ HPS_GUARDED_BY(mutex_);
  std::map<std::byte*, size_t> block_bytes_ HPS_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<std::byte*>> free_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
