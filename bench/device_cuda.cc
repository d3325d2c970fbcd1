#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "base/macros.h"
#include "bench/device.h"
#include "bench/measure.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/cuda_status.h"

namespace hps::bench {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(CudaStream stream) : stream_(std::move(stream)) {}

  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    HPS_ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer("benchmark buffer", bytes));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  absl::Status CopyIn(std::byte* to, std::span<const std::byte> from) override {
    return CudaStatus(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "copy in");
  }
  absl::Status CopyOut(std::span<std::byte> to, const std::byte* from) override {
    return CudaStatus(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "copy out");
  }
  Stream stream() const override { return {.handle = stream_.get()}; }
  absl::Status Synchronize() override {
    return CudaStatus(cudaStreamSynchronize(stream_.get()), "a benchmark's stream");
  }
  absl::StatusOr<double> CopyUs(size_t bytes, size_t runs) override {
    HPS_ASSIGN_OR_RETURN(const PinnedBuffer from, MakePinnedBuffer("benchmark buffer", bytes));
    HPS_ASSIGN_OR_RETURN(const DeviceBuffer to, MakeDeviceBuffer("benchmark buffer", bytes));
    std::vector<double> copies_us;
    for (size_t run = 0; run < runs + 3; ++run) {
      const Stopwatch watch;
      HPS_RETURN_IF_ERROR(CudaStatus(
          cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyHostToDevice, stream_.get()),
          "a copy"));
      HPS_RETURN_IF_ERROR(Synchronize());
      if (run >= 3) copies_us.push_back(watch.us());
    }
    return Median(copies_us);
  }

 private:
  const CudaStream stream_;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int device) {
  HPS_RETURN_IF_ERROR(CheckGpuDevice(device));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "choosing the device"));
  HPS_ASSIGN_OR_RETURN(CudaStream stream, MakeStream(StreamPriority::kHigh));
  return std::make_unique<CudaDevice>(std::move(stream));
}

}  // namespace hps::bench
