// What a device cache owns on its device: memory, pinned host memory, streams and events.
//
// Each is made by a factory at set-up and given back when it dies. None is made or freed on the
// path of a lookup: the runtime synchronizes with the whole device then. The owner makes the
// device current around factories and destructors (DeviceScope).
//
// Not thread-safe; what they give access to follows the runtime's own rules.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace hps {

namespace internal {
struct FreeDeviceMemory {
  void operator()(std::byte* memory) const { (void)cudaFree(memory); }
};
struct FreePinnedMemory {
  void operator()(std::byte* memory) const { (void)cudaFreeHost(memory); }
};
struct DestroyStream {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
}  // namespace internal

// Elements of T in device memory, or in host memory that the device can copy from and write to.
// Aligned to 256 bytes; the content is undefined at first.
template <typename Free>
class CudaBuffer {
 public:
  CudaBuffer() = default;

  std::byte* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  // Leaves the memory to the device for ever: freeing waits for work that may never end.
  void Abandon() { (void)memory_.release(); }
  // The element of T at a byte offset that is aligned for it.
  template <typename T>
  T* at(size_t offset_bytes) const {
    return static_cast<T*>(static_cast<void*>(memory_.get() + offset_bytes));
  }

 private:
  friend absl::StatusOr<CudaBuffer<internal::FreeDeviceMemory>> MakeDeviceBuffer(const char*,
                                                                                 uint64_t);
  friend absl::StatusOr<CudaBuffer<internal::FreeDeviceMemory>> MakeDeviceBufferInOrder(
      const char*, uint64_t, cudaStream_t);
  friend absl::StatusOr<CudaBuffer<internal::FreePinnedMemory>> MakePinnedBuffer(const char*,
                                                                                 uint64_t);
  CudaBuffer(std::byte* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}

  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
};

using DeviceBuffer = CudaBuffer<internal::FreeDeviceMemory>;
using PinnedBuffer = CudaBuffer<internal::FreePinnedMemory>;

// `what` is for the message. No bytes are a buffer without memory.
// Errors: RESOURCE_EXHAUSTED (says how many bytes), UNAVAILABLE, INTERNAL.
absl::StatusOr<DeviceBuffer> MakeDeviceBuffer(const char* what, uint64_t bytes);
absl::StatusOr<PinnedBuffer> MakePinnedBuffer(const char* what, uint64_t bytes);

// As MakeDeviceBuffer, for what is asked of `stream` from then on; does not wait for the device.
absl::StatusOr<DeviceBuffer> MakeDeviceBufferInOrder(const char* what, uint64_t bytes,
                                                     cudaStream_t stream);
// Frees a buffer that MakeDeviceBufferInOrder made, behind what was asked of `stream`. Its
// destructor does so too, but waits for the device. Errors: INTERNAL.
absl::Status FreeInOrder(DeviceBuffer buffer, cudaStream_t stream);

using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, internal::DestroyStream>;
using CudaEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, internal::DestroyEvent>;

enum class StreamPriority { kHigh, kLow };

// A stream that does not wait for the default stream.
absl::StatusOr<CudaStream> MakeStream(StreamPriority priority);

// Without times, which would make it dearer.
absl::StatusOr<CudaEvent> MakeEvent();

// Whether what was recorded by the event is done. An event that was never recorded is. Harms no
// capture of a graph on another thread. Errors: INTERNAL.
absl::StatusOr<bool> IsDone(cudaEvent_t event);

// Polls until the event is done: first without a pause, since most waits end within microseconds,
// then giving way to other threads, at last with pauses. Errors: DEADLINE_EXCEEDED, INTERNAL.
absl::Status WaitFor(cudaEvent_t event, Deadline deadline, const char* what);

}  // namespace hps
