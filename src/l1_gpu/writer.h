// The writer of a device: one low-priority stream on which all changes of the cache run in order,
// and the staging for their input.
//
// A write is one or several steps. A step reserves room in a ring of pinned memory (and the same
// room in device memory), is filled by its thread, and is submitted: under the writer's lock its
// input is copied and its kernel launched. Large inputs are copied on a stream of their own, while
// the kernel of the step before runs. Steps complete in the order of their submission. Room is
// freed in the order of its reservation.
//
// Thread-safe. The lock is held during launches, never while the host copies rows or waits for the
// device. Once the device has failed, every call returns its error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "gpu/cuda_resources.h"
#include "l1_gpu/hang_detector.h"

namespace hps {

class Writer {
 public:
  class Step;

  // `staging_bytes` is the ring's size, in pinned and again in device memory; `hang_timeout` limits
  // FlushToFree. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL. REQUIRES: the device is
  // current.
  static absl::StatusOr<std::unique_ptr<Writer>> Create(int device, size_t staging_bytes,
                                                        Duration hang_timeout = HangDetector::kMax);

  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  // Waits for the device; leaks the staging if it hangs. REQUIRES: no step is alive.
  ~Writer();

  int device() const { return device_; }
  // Maximum size of a step, so that several are in flight: one is filled while another one runs.
  size_t step_bytes_max() const { return ring_bytes() / kStepsInFlight; }

  // Reserves room for one step. Waits for earlier steps until at most `steps_ahead_max` are ahead,
  // and at most until `deadline`. Insertions pass kStepsAheadOfInsertionMax, so that a change does
  // not wait behind a long queue of them. Errors: RESOURCE_EXHAUSTED if the deadline has passed,
  // INTERNAL. REQUIRES: bytes <= step_bytes_max().
  absl::StatusOr<Step> Reserve(size_t bytes, Deadline deadline,
                               size_t steps_ahead_max = kStepsMax - 1);

  // Runs `launch(stream)`, which returns a Status, under the lock, behind all earlier submissions.
  // The step's first `input_bytes` bytes have then been copied to the device. Errors: INTERNAL; the
  // step is consumed even then.
  template <typename Launch>
  absl::Status Submit(Step step, size_t input_bytes, const Launch& launch);

  // As Submit, for a step whose kernel writes a result to its host() room: the room stays reserved
  // until the step is destroyed.
  template <typename Launch>
  absl::Status SubmitAndHold(Step& step, const Launch& launch);

  // Waits until a held step has completed. Errors: DEADLINE_EXCEEDED, INTERNAL.
  static absl::Status WaitForHeld(const Step& step, Deadline deadline);

  // As Submit, without staged input.
  template <typename Launch>
  absl::Status Submit(Deadline deadline, const Launch& launch);

  // Waits until all steps reserved so far have completed or were given up. Errors:
  // DEADLINE_EXCEEDED, INTERNAL.
  absl::Status Flush(Deadline deadline);

  // As Flush, before freeing or allocating memory that the device may use: waits as hang_detector()
  // says.
  absl::Status FlushToFree();
  const HangDetector& hang_detector() const { return hang_detector_; }

  // Waits until the step has completed. REQUIRES: it was submitted (its number was taken before).
  absl::Status WaitUntilDone(uint64_t step_number, Deadline deadline);

  static constexpr size_t kStepsInFlight = 4;
  // The number of launches that the runtime queues before it blocks the launching thread.
  static constexpr size_t kStepsMax = 1024;
  static constexpr size_t kStepsAheadOfInsertionMax = 32;

 private:
  enum class State : uint8_t { kFilling, kSubmitted, kHeld, kGivenUp };
  struct Entry {
    State state = State::kFilling;
    uint64_t end = 0;  // position in the ring after its room
    CudaEvent done;    // recorded after a submitted step
  };

  struct Resources {
    CudaStream stream;
    CudaStream copies;  // of large inputs
    CudaEvent copied;   // recorded after each copy there
    PinnedBuffer pinned;
    DeviceBuffer staging;
  };
  Writer(int device, Resources resources, Duration hang_timeout);

  size_t ring_bytes() const { return resources_.pinned.bytes(); }
  Entry& EntryOf(uint64_t number) HPS_REQUIRES(mutex_) { return entries_[number % kStepsMax]; }
  // Frees the room of completed steps.
  absl::Status Reap() HPS_REQUIRES(mutex_);
  // Waits briefly for the oldest step.
  void AwaitProgress(Deadline deadline);
  // The position of `bytes` of free room; false if there is none.
  bool FindRoom(size_t bytes, uint64_t* begin) const HPS_REQUIRES(mutex_);
  absl::Status BeginSubmit(const Step& step, size_t input_bytes) HPS_REQUIRES(mutex_);
  absl::Status CopyAhead(const Step& step, size_t input_bytes) HPS_REQUIRES(mutex_);
  absl::Status EndSubmit(const Step& step, State state, const absl::Status& launched)
      HPS_REQUIRES(mutex_);
  void EndStep(uint64_t number);
  absl::Status Failed(absl::Status status) HPS_REQUIRES(mutex_);

  const int device_;
  Resources resources_;
  HangDetector hang_detector_;
  Mutex mutex_;
  std::vector<Entry> entries_ HPS_GUARDED_BY(mutex_);  // a ring of kStepsMax
  uint64_t oldest_ HPS_GUARDED_BY(mutex_) = 0;         // number of the oldest step not reaped
  uint64_t next_ HPS_GUARDED_BY(mutex_) = 0;           // number of the next step
  // Positions in the ring, which never wrap: the byte is position % ring_bytes().
  uint64_t free_begin_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t used_begin_ HPS_GUARDED_BY(mutex_) = 0;
  absl::Status failed_ HPS_GUARDED_BY(mutex_);  // sticky
};

// Room in the staging; returned when it is submitted or destroyed.
class Writer::Step {
 public:
  Step(Step&& other) noexcept
      : writer_(std::exchange(other.writer_, nullptr)),
        number_(other.number_),
        offset_bytes_(other.offset_bytes_),
        done_(other.done_) {}
  Step& operator=(Step&&) = delete;
  ~Step() {
    if (writer_ != nullptr) writer_->EndStep(number_);
  }

  uint64_t number() const { return number_; }
  // The same room on the host and on the device; aligned to 256 bytes.
  std::byte* host() const { return writer_->resources_.pinned.data() + offset_bytes_; }
  std::byte* device() const { return writer_->resources_.staging.data() + offset_bytes_; }

 private:
  friend class Writer;
  Step(Writer* writer, uint64_t number, size_t offset_bytes)
      : writer_(writer), number_(number), offset_bytes_(offset_bytes) {}

  Writer* writer_;  // null if moved from or submitted
  uint64_t number_;
  size_t offset_bytes_;
  cudaEvent_t done_ = nullptr;  // the entry's event, if the step is held
};

template <typename Launch>
absl::Status Writer::Submit(Step step, size_t input_bytes, const Launch& launch) {
  MutexLock lock(mutex_);
  absl::Status status = BeginSubmit(step, input_bytes);
  if (status.ok()) status = launch(resources_.stream.get());
  status = EndSubmit(step, State::kSubmitted, status);
  step.writer_ = nullptr;
  return status;
}

template <typename Launch>
absl::Status Writer::SubmitAndHold(Step& step, const Launch& launch) {
  MutexLock lock(mutex_);
  absl::Status status = BeginSubmit(step, 0);
  if (status.ok()) status = launch(resources_.stream.get());
  step.done_ = EntryOf(step.number_).done.get();
  return EndSubmit(step, State::kHeld, status);
}

template <typename Launch>
absl::Status Writer::Submit(Deadline deadline, const Launch& launch) {
  absl::StatusOr<Step> step = Reserve(0, deadline);
  if (!step.ok()) return step.status();
  return Submit(*std::move(step), 0, launch);
}

}  // namespace hps
