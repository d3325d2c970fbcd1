// The stream on which a dense network or one of its sessions is set up.
//
// It is not the default stream, which would wait for the streams of lookups, and its waits have a
// deadline: ten seconds each. After DEADLINE_EXCEEDED the device may still use memory of the
// set-up, and to free it would wait for ever: the owner leaks it.
//
// For one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/macros.h"
#include "gpu/cuda_resources.h"
#include "gpu/cuda_status.h"

namespace hps {

class SetUpStream {
 public:
  static constexpr Duration kWaitMax = std::chrono::seconds(10);

  // Errors: INTERNAL.
  static absl::StatusOr<SetUpStream> Make() {
    SetUpStream made;
    HPS_ASSIGN_OR_RETURN(made.stream_, MakeStream(StreamPriority::kHigh));
    HPS_ASSIGN_OR_RETURN(made.passed_, MakeEvent());
    return made;
  }

  cudaStream_t get() const { return stream_.get(); }

  // Copies to the device, and waits. Errors: those of Wait.
  absl::Status Copy(std::span<const std::byte> from, std::byte* to, const char* what) const {
    if (from.empty()) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, get()), what));
    return Wait(what);
  }

  // Waits until the stream has passed all its work. Errors: DEADLINE_EXCEEDED, INTERNAL.
  absl::Status Wait(const char* what) const {
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(passed_.get(), get()), what));
    return WaitFor(passed_.get(), DeadlineAfter(RealClock(), kWaitMax), what);
  }

 private:
  CudaStream stream_;
  CudaEvent passed_;
};

}  // namespace hps
