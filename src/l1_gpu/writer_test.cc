#include "l1_gpu/writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda_status.h"
#include "gpu/test_gpu.h"

namespace hps {
namespace {

constexpr size_t kRingBytes = 64 << 10;

class WriterTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto writer = Writer::Create(0, kRingBytes);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  static absl::Status Nothing(cudaStream_t) { return absl::OkStatus(); }

  std::unique_ptr<Writer> writer_;
};

TEST_F(WriterTest, CopiesAStepsInputInTheOrderOfSubmission) {
  auto to = *MakeDeviceBuffer("target", 1000);
  for (int round = 0; round < 300; ++round) {  // wraps around the ring repeatedly
    auto step = writer_->Reserve(1000, kNoDeadline);
    ASSERT_TRUE(step.ok()) << step.status();
    std::memset(step->host(), round, 1000);
    std::byte* const from = step->device();
    ASSERT_EQ(writer_->Submit(*std::move(step), 1000,
                              [&](cudaStream_t stream) {
                                return CudaStatus(cudaMemcpyAsync(to.data(), from, 1000,
                                                                  cudaMemcpyDeviceToDevice, stream),
                                                  "copy");
                              }),
              absl::OkStatus());
  }
  ASSERT_EQ(writer_->Flush(kNoDeadline), absl::OkStatus());
  std::vector<std::byte> got(1000);
  ASSERT_EQ(cudaMemcpy(got.data(), to.data(), 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_TRUE(
      std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte(299 % 256); }));
}

TEST_F(WriterTest, IsExhaustedAtOnceWithoutRoomAndHasRoomAgainAfterwards) {
  std::vector<Writer::Step> steps;
  for (size_t i = 0; i < Writer::kStepsInFlight; ++i) {
    auto step = writer_->Reserve(writer_->step_bytes_max(), TimePoint::min());
    ASSERT_TRUE(step.ok()) << step.status();
    steps.push_back(*std::move(step));
  }
  EXPECT_EQ(writer_->Reserve(1, TimePoint::min()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(writer_->Flush(TimePoint::min()).code(), absl::StatusCode::kDeadlineExceeded);
  // Room is freed in order: the end of the second step frees nothing yet.
  ASSERT_EQ(writer_->Submit(std::move(steps[1]), 0, Nothing), absl::OkStatus());
  EXPECT_FALSE(writer_->Reserve(1, TimePoint::min()).ok());
  steps.clear();  // gives up the other steps
  EXPECT_TRUE(writer_->Reserve(writer_->step_bytes_max(), kNoDeadline).ok());
}

// Catches promotions that queue up in front of changes.
TEST_F(WriterTest, InsertionsQueueUpLessThanChanges) {
  std::vector<Writer::Step> steps;
  for (size_t i = 0; i <= Writer::kStepsAheadOfInsertionMax; ++i) {
    auto step = writer_->Reserve(8, TimePoint::min(), Writer::kStepsAheadOfInsertionMax);
    ASSERT_TRUE(step.ok()) << step.status();
    steps.push_back(*std::move(step));
  }
  EXPECT_EQ(
      writer_->Reserve(8, TimePoint::min(), Writer::kStepsAheadOfInsertionMax).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(writer_->Reserve(8, TimePoint::min()).ok());
}

TEST_F(WriterTest, HandsOnWhatALaunchAnswersAndGoesOn) {
  const absl::Status failed = writer_->Submit(
      kNoDeadline, [](cudaStream_t) { return absl::InternalError("this launch fails"); });
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(writer_->Submit(kNoDeadline, Nothing), absl::OkStatus());
  EXPECT_EQ(writer_->Flush(kNoDeadline), absl::OkStatus());
}

// Catches: the destructor of a writer waits for a hung device without limit.
TEST_F(WriterTest, LeavesItsStagingToADeviceThatHangs) {
  auto writer = *Writer::Create(0, 32 << 20, kHangTimeoutOfTests);
  const auto set = *MakeDeviceBuffer("to be set", 1000);
  const size_t free_before = FreeDeviceBytes();
  std::optional<StreamHold> hold;
  ASSERT_EQ(writer->Submit(kNoDeadline,
                           [&](cudaStream_t stream) {
                             hold.emplace(stream);
                             return CudaStatus(cudaMemsetAsync(set.data(), 1, set.bytes(), stream),
                                               "set");
                           }),
            absl::OkStatus());
  EXPECT_EQ(writer->FlushToFree().code(), absl::StatusCode::kDeadlineExceeded);
  writer.reset();
  EXPECT_LT(FreeDeviceBytes(), free_before + (32 << 20)) << "the staging is the device's";
}

// Catches a writer that fails permanently during a capture of another thread, or invalidates the
// capture.
TEST_F(WriterTest, WritesBesideACaptureOfAnotherThread) {
  const auto captured = *MakeStream(StreamPriority::kHigh);
  const auto buffer = *MakeDeviceBuffer("to be set", 1000);
  const auto set = [&](cudaStream_t stream) {
    return CudaStatus(cudaMemsetAsync(buffer.data(), 1, buffer.bytes(), stream), "set");
  };
  ASSERT_EQ(writer_->Submit(kNoDeadline, set), absl::OkStatus());
  ASSERT_EQ(writer_->Flush(kNoDeadline), absl::OkStatus());
  ASSERT_EQ(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    for (int round = 0; round < 10; ++round) {
      EXPECT_EQ(writer_->Submit(kNoDeadline, set), absl::OkStatus());
      EXPECT_EQ(writer_->Flush(kNoDeadline), absl::OkStatus());
    }
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.get(), &graph), cudaSuccess);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(writer_->Flush(kNoDeadline), absl::OkStatus());
}

TEST_F(WriterTest, AHeldStepKeepsItsRoomUntilItDies) {
  const auto full = [&] {
    return !writer_->Reserve(writer_->step_bytes_max(), TimePoint::min()).ok();
  };
  {
    auto held = writer_->Reserve(writer_->step_bytes_max(), kNoDeadline);
    ASSERT_TRUE(held.ok()) << held.status();
    std::byte* const room = held->device();
    std::byte* const host = held->host();
    std::memset(host, 1, writer_->step_bytes_max());
    const size_t bytes = writer_->step_bytes_max();
    ASSERT_EQ(writer_->SubmitAndHold(*held,
                                     [&](cudaStream_t stream) {
                                       cudaError_t error = cudaMemsetAsync(room, 7, bytes, stream);
                                       if (error == cudaSuccess) {
                                         error = cudaMemcpyAsync(host, room, bytes,
                                                                 cudaMemcpyDeviceToHost, stream);
                                       }
                                       return CudaStatus(error, "set");
                                     }),
              absl::OkStatus());
    ASSERT_EQ(Writer::WaitForHeld(*held, kNoDeadline), absl::OkStatus());
    std::vector<Writer::Step> others;
    for (size_t i = 1; i < Writer::kStepsInFlight; ++i)
      others.push_back(*writer_->Reserve(writer_->step_bytes_max(), TimePoint::min()));
    EXPECT_TRUE(full());
    EXPECT_TRUE(std::all_of(host, host + bytes, [](std::byte b) { return b == std::byte{7}; }));
  }
  EXPECT_FALSE(full());
}

// Catches two threads that share room: each finds on the device what it wrote itself.
TEST_F(WriterTest, ThreadsNeverShareRoom) {
  const auto write = [&](int stamp) {
    auto to = *MakePinnedBuffer("target", 3000);
    for (int round = 0; round < 500; ++round) {
      auto step = writer_->Reserve(3000, kNoDeadline);
      ASSERT_TRUE(step.ok()) << step.status();
      const uint64_t number = step->number();
      std::memset(step->host(), stamp, 3000);
      std::byte* const from = step->device();
      ASSERT_EQ(writer_->Submit(*std::move(step), 3000,
                                [&](cudaStream_t stream) {
                                  return CudaStatus(cudaMemcpyAsync(to.data(), from, 3000,
                                                                    cudaMemcpyDeviceToHost, stream),
                                                    "copy");
                                }),
                absl::OkStatus());
      ASSERT_EQ(writer_->WaitUntilDone(number, kNoDeadline), absl::OkStatus());
      ASSERT_TRUE(std::all_of(to.data(), to.data() + 3000,
                              [&](std::byte b) { return b == std::byte(stamp); }));
    }
  };
  std::thread a(write, 1), b(write, 2), c(write, 3);
  for (std::thread* t : {&a, &b, &c}) t->join();
}

}  // namespace
}  // namespace hps
