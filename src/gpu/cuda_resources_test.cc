#include "gpu/cuda_resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "gpu/cuda_status.h"
#include "gpu/test_gpu.h"

namespace hps {
namespace {

using testing::HasSubstr;

TEST(CudaStatusTest, TellsKindsOfErrorsApart) {
  EXPECT_EQ(CudaStatus(cudaSuccess, "x"), absl::OkStatus());
  EXPECT_EQ(CudaStatus(cudaErrorNoDevice, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorInsufficientDriver, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorInvalidDevice, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cudaErrorIllegalAddress, "x").code(), absl::StatusCode::kInternal);
  const absl::Status status = CudaStatus(cudaErrorIllegalAddress, "the launch of a query");
  EXPECT_THAT(std::string(status.message()), HasSubstr("the launch of a query"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("illegal memory access"));
}

TEST(CudaStatusTest, SaysHowManyBytesCouldNotBeHad) {
  const absl::Status status = CudaMemoryStatus(cudaErrorMemoryAllocation, "rows", 12345);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("12345 bytes of rows"));
}

TEST(CudaStatusTest, ADeviceThatIsNotThereIsUnavailable) {
  for (int device : {-1, GpuDeviceCount()}) {
    const absl::Status status = CheckGpuDevice(device);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_FALSE(status.message().empty());
  }
  EXPECT_EQ(CheckGpuDevice(0).ok(), GpuDeviceCount() > 0);
}

using CudaResourcesTest = GpuTest;

// Catches: a resource that is created on the thread's previous device if the requested one can't be
// used.
TEST_F(CudaResourcesTest, ADeviceThatCantBeChosenIsUnavailable) {
  {
    const DeviceScope scope(GpuDeviceCount());
    EXPECT_EQ(scope.Check().code(), absl::StatusCode::kUnavailable) << scope.Check();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "forgotten";
  EXPECT_TRUE(DeviceScope(0).Check().ok());
  EXPECT_TRUE(MakeDeviceBuffer("a little", 1 << 20).ok());
}

TEST_F(CudaResourcesTest, BuffersOfNothingHaveNoMemory) {
  EXPECT_EQ(MakeDeviceBuffer("nothing", 0)->data(), nullptr);
  EXPECT_EQ(MakePinnedBuffer("nothing", 0)->data(), nullptr);
}

TEST_F(CudaResourcesTest, MoreThanTheDeviceHasIsExhaustedAndChangesNothing) {
  const size_t free_before = FreeDeviceBytes();
  const auto buffer = MakeDeviceBuffer("everything", uint64_t{1} << 44);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted) << buffer.status();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // forgotten
  EXPECT_GE(FreeDeviceBytes(), free_before);
  EXPECT_TRUE(MakeDeviceBuffer("a little", 1 << 20).ok());
}

TEST_F(CudaResourcesTest, DeviceMemoryComesBackWhenItsOwnerDies) {
  const size_t free_before = FreeDeviceBytes();
  {
    const auto buffer = MakeDeviceBuffer("rows", 256 << 20);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_LT(FreeDeviceBytes(), free_before);
  }
  EXPECT_GE(FreeDeviceBytes(), free_before);
}

TEST_F(CudaResourcesTest, WaitsForAnEventAtMostUntilTheDeadline) {
  const auto stream = *MakeStream(StreamPriority::kHigh);
  const auto event = *MakeEvent();
  EXPECT_TRUE(*IsDone(event.get()));  // nothing was recorded
  EXPECT_EQ(WaitFor(event.get(), kNoDeadline, "nothing"), absl::OkStatus());
  const auto buffer = *MakeDeviceBuffer("to be set", size_t{4} << 30);
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(cudaMemsetAsync(buffer.data(), i, buffer.bytes(), stream.get()), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  const absl::Status late = WaitFor(event.get(), TimePoint::min(), "a long set");
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(WaitFor(event.get(), kNoDeadline, "a long set"), absl::OkStatus());
}

// Catches a query that fails during another thread's capture, and invalidates that capture.
TEST_F(CudaResourcesTest, AsksForAnEventBesideACaptureOfAnotherThread) {
  const auto captured = *MakeStream(StreamPriority::kHigh);
  const auto stream = *MakeStream(StreamPriority::kHigh);
  const auto event = *MakeEvent();
  const auto buffer = *MakeDeviceBuffer("to be set", 1 << 20);
  ASSERT_EQ(cudaMemsetAsync(buffer.data(), 1, buffer.bytes(), stream.get()), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(WaitFor(event.get(), kNoDeadline, "a set"), absl::OkStatus());
  }).join();
  // Also if the capturing thread itself queries.
  const absl::StatusOr<bool> done = IsDone(event.get());
  EXPECT_TRUE(done.ok() && *done) << done.status();
  EXPECT_EQ(cudaMemsetAsync(buffer.data(), 2, buffer.bytes(), captured.get()), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.get(), &graph), cudaSuccess);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace hps
