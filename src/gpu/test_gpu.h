// Shared by the tests that want a GPU: when they can run, and a device that hangs.
//
// Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "base/clock.h"
#include "gpu/cuda_status.h"

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

}  // namespace hps
