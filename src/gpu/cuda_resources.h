// Resources on a device: memory, pinned host memory, streams and events.
//
// Factories create them at set-up; destructors free them. No lookup creates or frees any, because
// the runtime then synchronizes with the whole device. The owner makes the device current around
// factories and destructors (DeviceScope).
//
// Not thread-safe; access to the underlying objects follows the runtime's rules.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

// Elements of T in device memory, or in host memory that the device can read and write. Aligned to
// 256 bytes; initially undefined.
template <typename Free>
class CudaBuffer {
 public:
  CudaBuffer() = default;

  std::byte* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  // Leaks the memory: freeing waits for device work that may never end.
  void Leak() { (void)memory_.release(); }
  // The element of T at a byte offset. REQUIRES: the offset is aligned for T.
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

// `what` names the memory in errors. With 0 bytes, makes a buffer without memory. Errors:
// RESOURCE_EXHAUSTED (says how many bytes), UNAVAILABLE, INTERNAL.
absl::StatusOr<DeviceBuffer> MakeDeviceBuffer(const char* what, uint64_t bytes);
absl::StatusOr<PinnedBuffer> MakePinnedBuffer(const char* what, uint64_t bytes);

// Pins whole pages of the process's memory: kernels of any device read them at the same address. A
// child process does not get them, since a page that both have is copied when the parent writes it,
// and a device would go on reading the old one. Errors: RESOURCE_EXHAUSTED (says how many bytes),
// UNAVAILABLE, INTERNAL; nothing is pinned then.
absl::Status RegisterHostMemory(std::span<std::byte> memory);
// REQUIRES: no kernel reads the memory any more.
void UnregisterHostMemory(std::span<std::byte> memory);

// As MakeDeviceBuffer, for later work on `stream`; does not wait for the device.
absl::StatusOr<DeviceBuffer> MakeDeviceBufferInOrder(const char* what, uint64_t bytes,
                                                     cudaStream_t stream);
// Frees a buffer of MakeDeviceBufferInOrder after the earlier work on `stream`. The buffer's
// destructor also frees it, but waits for the device. Errors: INTERNAL.
absl::Status FreeInOrder(DeviceBuffer buffer, cudaStream_t stream);

using CudaStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, internal::DestroyStream>;
using CudaEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, internal::DestroyEvent>;

enum class StreamPriority { kHigh, kLow };

// A stream that does not synchronize with the default stream.
absl::StatusOr<CudaStream> MakeStream(StreamPriority priority);

// With timing, an event is slower.
absl::StatusOr<CudaEvent> MakeEvent(unsigned flags = cudaEventDisableTiming);

// Whether the work recorded by the event has completed. True for an event that was never recorded.
// Does not disturb a graph capture of another thread. Errors: INTERNAL.
absl::StatusOr<bool> IsDone(cudaEvent_t event);

// Records an event behind work that ended with `status`, also after an error: a part of the work
// may be in flight. Returns the first error. Errors: INTERNAL, and `status`.
absl::Status RecordAfter(absl::Status status, cudaEvent_t event, cudaStream_t stream,
                         const char* what);

// Polls until the event has completed: first without a pause, because most waits end within
// microseconds, then yielding, finally with pauses. Errors: DEADLINE_EXCEEDED, INTERNAL.
absl::Status WaitFor(cudaEvent_t event, Deadline deadline, const char* what);

}  // namespace hps
