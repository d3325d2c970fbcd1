#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/macros.h"
#include "bench/device.h"
#include "bench/l1/bound_kernels.h"
#include "bench/measure.h"
#include "gpu/cuda_resources.h"
#include "gpu/cuda_status.h"

namespace hps::bench {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(int device, CudaStream stream) : device_(device), stream_(std::move(stream)) {}

  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    HPS_RETURN_IF_ERROR(Select());
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
    HPS_RETURN_IF_ERROR(Select());
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
  absl::StatusOr<double> GatherUs(std::span<const uint64_t> places, uint64_t row_count,
                                  size_t row_bytes, size_t runs) override {
    HPS_RETURN_IF_ERROR(Select());
    const std::vector<uint32_t> slots(places.begin(), places.end());
    HPS_ASSIGN_OR_RETURN(const DeviceBuffer table,
                         MakeDeviceBuffer("benchmark rows", row_count * row_bytes));
    HPS_ASSIGN_OR_RETURN(const DeviceBuffer array,
                         MakeDeviceBuffer("benchmark rows", slots.size() * row_bytes));
    HPS_ASSIGN_OR_RETURN(const DeviceBuffer device_slots,
                         MakeDeviceBuffer("benchmark places", slots.size() * sizeof(uint32_t)));
    HPS_RETURN_IF_ERROR(CopyIn(device_slots.data(), AsBytes(std::span<const uint32_t>(slots))));
    const RowMove move{
        .table = table.data(),
        .slots = static_cast<const uint32_t*>(static_cast<const void*>(device_slots.data())),
        .array = array.data(),
        .row_bytes = static_cast<uint32_t>(row_bytes),
        .count = static_cast<uint32_t>(slots.size())};
    double best_us = 0;
    for (int shape = 0; shape < kGatherShapes; ++shape) {
      std::vector<double> gathers_us;
      for (size_t run = 0; run < runs + 2; ++run) {
        const Stopwatch watch;
        HPS_RETURN_IF_ERROR(CudaStatus(LaunchGather(shape, move, stream_.get()), "a gather"));
        HPS_RETURN_IF_ERROR(Synchronize());
        if (run >= 2) gathers_us.push_back(watch.us());
      }
      const double us = Median(gathers_us);
      best_us = shape == 0 ? us : std::min(best_us, us);
    }
    return best_us;
  }

 private:
  // The thread may have opened another device since.
  absl::Status Select() const { return CudaStatus(cudaSetDevice(device_), "choosing the device"); }

  const int device_;
  const CudaStream stream_;
  std::vector<DeviceBuffer> buffers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int device) {
  HPS_RETURN_IF_ERROR(CheckGpuDevice(device));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "choosing the device"));
  HPS_ASSIGN_OR_RETURN(CudaStream stream, MakeStream(StreamPriority::kHigh));
  return std::make_unique<CudaDevice>(device, std::move(stream));
}

}  // namespace hps::bench
