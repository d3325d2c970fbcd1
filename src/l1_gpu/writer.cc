#include "l1_gpu/writer.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/alignment.h"

namespace hps {
namespace {

// Inputs from here on are copied on the stream of copies. To wait for that stream costs a smaller
// step more than the overlap saves.
constexpr size_t kCopiedAheadBytesMin = size_t{256} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<Writer>> Writer::Create(int device, size_t staging_bytes,
                                                       Duration hang_timeout) {
  Resources resources;
  HPS_ASSIGN_OR_RETURN(resources.stream, MakeStream(StreamPriority::kLow));
  HPS_ASSIGN_OR_RETURN(resources.copies, MakeStream(StreamPriority::kLow));
  HPS_ASSIGN_OR_RETURN(resources.copied, MakeEvent());
  HPS_ASSIGN_OR_RETURN(resources.pinned,
                       MakePinnedBuffer("pinned staging of the writer", staging_bytes));
  HPS_ASSIGN_OR_RETURN(resources.staging, MakeDeviceBuffer("the writer's staging", staging_bytes));
  std::unique_ptr<Writer> writer(new Writer(device, std::move(resources), hang_timeout));
  MutexLock lock(writer->mutex_);
  writer->entries_.resize(kStepsMax);
  for (Entry& entry : writer->entries_) {
    HPS_ASSIGN_OR_RETURN(entry.done, MakeEvent());
  }
  return writer;
}

Writer::Writer(int device, Resources resources, Duration hang_timeout)
    : device_(device), resources_(std::move(resources)), hang_detector_(hang_timeout) {}

Writer::~Writer() {
  if (!absl::IsDeadlineExceeded(FlushToFree())) return;
  resources_.pinned.Leak();
  resources_.staging.Leak();
}

absl::Status Writer::FlushToFree() {
  absl::Status flushed = Flush(hang_detector_.deadline());
  hang_detector_.Answers(flushed);
  return flushed;
}

absl::Status Writer::Failed(absl::Status status) {
  if (failed_.ok()) failed_ = status;
  return status;
}

absl::Status Writer::Reap() {
  HPS_RETURN_IF_ERROR(failed_);
  for (; oldest_ < next_; ++oldest_) {
    const Entry& entry = EntryOf(oldest_);
    if (entry.state == State::kFilling || entry.state == State::kHeld) break;
    if (entry.state == State::kSubmitted) {
      const absl::StatusOr<bool> done = IsDone(entry.done.get());
      if (!done.ok()) return Failed(done.status());
      if (!*done) break;
    }
    used_begin_ = entry.end;
  }
  return absl::OkStatus();
}

bool Writer::FindRoom(size_t bytes, uint64_t* begin) const {
  *begin = free_begin_;
  if (bytes == 0) return true;
  // A step is contiguous: a remainder at the ring's end that is too short is skipped.
  const uint64_t offset = free_begin_ % ring_bytes();
  if (offset + bytes > ring_bytes()) *begin += ring_bytes() - offset;
  return *begin + bytes - used_begin_ <= ring_bytes();
}

absl::StatusOr<Writer::Step> Writer::Reserve(size_t bytes, Deadline deadline,
                                             size_t steps_ahead_max) {
  const size_t room_bytes = RoundUp(bytes, kDeviceAlignment);
  HPS_CHECK(bytes <= step_bytes_max());
  for (;;) {
    {
      MutexLock lock(mutex_);
      HPS_RETURN_IF_ERROR(Reap());
      uint64_t begin = 0;
      if (next_ - oldest_ <= steps_ahead_max && FindRoom(room_bytes, &begin)) {
        Entry& entry = EntryOf(next_);
        entry.state = State::kFilling;
        entry.end = free_begin_ = begin + room_bytes;
        return Step(this, next_++, ring_bytes() == 0 ? 0 : begin % ring_bytes());
      }
    }
    if (RealClock().Now() >= deadline) {
      return absl::ResourceExhaustedError(absl::StrCat("gpu cache: no room for ", bytes,
                                                       " bytes in the writer's staging of ",
                                                       ring_bytes(), " bytes"));
    }
    AwaitProgress(deadline);
  }
}

// Called without the lock. When the wait ends, a step's event may already be that of a later step,
// so the wait is short and the caller checks again.
void Writer::AwaitProgress(Deadline deadline) {
  constexpr Duration kWaitMax = std::chrono::milliseconds(1);
  cudaEvent_t done = nullptr;
  {
    MutexLock lock(mutex_);
    const Entry& entry = EntryOf(oldest_);
    if (oldest_ < next_ && entry.state == State::kSubmitted) done = entry.done.get();
  }
  if (done == nullptr) {
    std::this_thread::yield();  // another thread is filling the oldest step
    return;
  }
  // Reap reports a failure of the device.
  (void)WaitFor(done, std::min(deadline, RealClock().Now() + kWaitMax), "a write");
}

absl::Status Writer::BeginSubmit(const Step& step, size_t input_bytes) {
  HPS_RETURN_IF_ERROR(failed_);
  if (input_bytes == 0) return absl::OkStatus();
  if (input_bytes >= kCopiedAheadBytesMin) return CopyAhead(step, input_bytes);
  return CudaStatus(cudaMemcpyAsync(step.device(), step.host(), input_bytes, cudaMemcpyHostToDevice,
                                    resources_.stream.get()),
                    "copy to the writer's staging");
}

// The step's room is free on the device: the steps that used it before have completed. What the
// writer's stream runs from now on waits for the copy, so the step's event covers it, too.
absl::Status Writer::CopyAhead(const Step& step, size_t input_bytes) {
  absl::Status status = CudaStatus(cudaMemcpyAsync(step.device(), step.host(), input_bytes,
                                                   cudaMemcpyHostToDevice, resources_.copies.get()),
                                   "copy to the writer's staging");
  if (status.ok())
    status = CudaStatus(cudaEventRecord(resources_.copied.get(), resources_.copies.get()),
                        "recording a copy");
  if (status.ok()) {
    status = CudaStatus(cudaStreamWaitEvent(resources_.stream.get(), resources_.copied.get(), 0),
                        "waiting for a copy");
  }
  return status.ok() ? status : Failed(status);
}

absl::Status Writer::EndSubmit(const Step& step, State state, const absl::Status& launched) {
  Entry& entry = EntryOf(step.number_);
  // Also after an error: a part of the step may be in flight and use its room.
  const absl::Status recorded =
      CudaStatus(cudaEventRecord(entry.done.get(), resources_.stream.get()), "recording a write");
  entry.state = recorded.ok() ? state : State::kGivenUp;
  if (!recorded.ok()) return Failed(recorded);
  return launched;
}

void Writer::EndStep(uint64_t number) {
  MutexLock lock(mutex_);
  Entry& entry = EntryOf(number);
  // A held step may not have completed if its owner's wait ended first.
  entry.state = entry.state == State::kHeld ? State::kSubmitted : State::kGivenUp;
}

absl::Status Writer::WaitForHeld(const Step& step, Deadline deadline) {
  return WaitFor(step.done_, deadline, "a write");
}

absl::Status Writer::WaitUntilDone(uint64_t step_number, Deadline deadline) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      HPS_RETURN_IF_ERROR(Reap());
      if (step_number < oldest_) return absl::OkStatus();
    }
    if (RealClock().Now() >= deadline) {
      return absl::DeadlineExceededError(
          "gpu cache: deadline exceeded waiting for writes on the device");
    }
    AwaitProgress(deadline);
  }
}

absl::Status Writer::Flush(Deadline deadline) {
  uint64_t last = 0;
  {
    MutexLock lock(mutex_);
    if (oldest_ == next_) return failed_;
    last = next_ - 1;
  }
  return WaitUntilDone(last, deadline);
}

}  // namespace hps
