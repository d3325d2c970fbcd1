#include "gpu/cuda_resources.h"

#include <sys/mman.h>

#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"

namespace hps {
namespace {

// A waiting thread polls for some tens of microseconds before it yields, and yields for some
// milliseconds, longer than lookups take, before it sleeps between polls.
constexpr int kPollsWithoutPause = 64;
constexpr int kPollsWithoutSleep = 10'000;
constexpr Duration kSleep = std::chrono::microseconds(50);

// Lets the calling thread query the driver while other threads capture graphs. Otherwise a query
// during a capture in mode Global fails and invalidates that capture.
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope() { Exchange(); }
  ~RelaxedCaptureScope() { Exchange(); }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  void Exchange() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

  cudaStreamCaptureMode mode_ =
      cudaStreamCaptureModeRelaxed;  // the thread's mode; exchanged in the constructor
};

// The error of a query that another thread's capture forbids. It is temporary and says nothing
// about the work.
bool IsOfCapture(cudaError_t error) {
  return error == cudaErrorStreamCaptureUnsupported || error == cudaErrorStreamCaptureInvalidated ||
         error == cudaErrorStreamCaptureImplicit || error == cudaErrorStreamCaptureWrongThread;
}

}  // namespace

absl::StatusOr<DeviceBuffer> MakeDeviceBuffer(const char* what, uint64_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  void* memory = nullptr;
  HPS_RETURN_IF_ERROR(CudaMemoryStatus(cudaMalloc(&memory, bytes), what, bytes));
  return DeviceBuffer(static_cast<std::byte*>(memory), bytes);
}

absl::StatusOr<DeviceBuffer> MakeDeviceBufferInOrder(const char* what, uint64_t bytes,
                                                     cudaStream_t stream) {
  void* memory = nullptr;
  HPS_RETURN_IF_ERROR(CudaMemoryStatus(cudaMallocAsync(&memory, bytes, stream), what, bytes));
  return DeviceBuffer(static_cast<std::byte*>(memory), bytes);
}

absl::Status FreeInOrder(DeviceBuffer buffer, cudaStream_t stream) {
  std::byte* const memory = buffer.data();
  if (memory == nullptr) return absl::OkStatus();
  buffer.Leak();
  return CudaStatus(cudaFreeAsync(memory, stream), "freeing memory");
}

absl::StatusOr<PinnedBuffer> MakePinnedBuffer(const char* what, uint64_t bytes) {
  if (bytes == 0) return PinnedBuffer();
  void* memory = nullptr;
  // Portable and mapped: kernels of any device may write to it at the same address.
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  HPS_RETURN_IF_ERROR(CudaMemoryStatus(error, what, bytes));
  return PinnedBuffer(static_cast<std::byte*>(memory), bytes);
}

absl::Status RegisterHostMemory(std::span<std::byte> memory) {
  constexpr const char* kWhat = "level 2's memory, to be read by devices";
  if (madvise(memory.data(), memory.size(), MADV_DONTFORK) != 0)
    return absl::InternalError("gpu: the system keeps no memory from child processes");
  const cudaError_t error = cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterPortable | cudaHostRegisterMapped);
  absl::Status status = CudaMemoryStatus(error, kWhat, memory.size());
  if (status.ok()) {
    void* seen = nullptr;
    status = CudaStatus(cudaHostGetDevicePointer(&seen, memory.data(), 0), kWhat);
    if (status.ok() && seen == memory.data()) return status;
    if (status.ok()) status = absl::InternalError("gpu: devices see pinned memory elsewhere");
    UnregisterHostMemory(memory);
  } else {
    (void)madvise(memory.data(), memory.size(), MADV_DOFORK);
  }
  return status;
}

// After an error of the device nothing reads the memory, whatever the driver says.
void UnregisterHostMemory(std::span<std::byte> memory) {
  CudaStatus(cudaHostUnregister(memory.data()), "unpinning").IgnoreError();
  (void)madvise(memory.data(), memory.size(), MADV_DOFORK);
}

absl::StatusOr<CudaStream> MakeStream(StreamPriority priority) {
  int lowest = 0, highest = 0;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "stream priorities"));
  cudaStream_t stream = nullptr;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                              priority == StreamPriority::kLow ? lowest : highest),
                 "making a stream"));
  return CudaStream(stream);
}

absl::StatusOr<CudaEvent> MakeEvent(unsigned flags) {
  cudaEvent_t event = nullptr;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, flags), "making an event"));
  return CudaEvent(event);
}

absl::StatusOr<bool> IsDone(cudaEvent_t event) {
  const RelaxedCaptureScope relaxed;
  const cudaError_t error = cudaEventQuery(event);
  if (error == cudaErrorNotReady || IsOfCapture(error)) {
    (void)cudaGetLastError();
    return false;
  }
  HPS_RETURN_IF_ERROR(CudaStatus(error, "the device's work"));
  return true;
}

absl::Status RecordAfter(absl::Status status, cudaEvent_t event, cudaStream_t stream,
                         const char* what) {
  const absl::Status recorded = CudaStatus(cudaEventRecord(event, stream), what);
  return status.ok() ? recorded : status;
}

absl::Status WaitFor(cudaEvent_t event, Deadline deadline, const char* what) {
  for (int polls = 0;; ++polls) {
    HPS_ASSIGN_OR_RETURN(const bool done, IsDone(event));
    if (done) return absl::OkStatus();
    if (RealClock().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("gpu: deadline exceeded waiting for ", what));
    }
    if (polls >= kPollsWithoutSleep) {
      std::this_thread::sleep_for(kSleep);
    } else if (polls >= kPollsWithoutPause) {
      std::this_thread::yield();
    }
  }
}

}  // namespace hps
