// The tables of one CUDA device.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "gpu/cuda_status.h"
#include "train/table_set.h"
#include "train_gpu/device_rows.h"
#include "train_gpu/device_step.h"
#include "train_gpu/device_storage.h"

namespace hps {
namespace {

class DeviceTables final : public TableSet {
 public:
  explicit DeviceTables(std::unique_ptr<DeviceStorage> storage)
      : storage_(std::move(storage)), progress_(storage_->table_count()) {
    for (size_t table = 0; table < progress_.size(); ++table)
      rows_.push_back(std::make_unique<DeviceRows>(storage_.get(), progress_, table));
  }

  // Device memory, streams and events are freed while their device is the current one.
  ~DeviceTables() override {
    const DeviceScope scope(storage_->device());
    rows_.clear();
    storage_.reset();
  }
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  std::unique_ptr<TableStep> NewStep(std::vector<size_t> tables,
                                     std::vector<SetFeature> features) override {
    return std::make_unique<DeviceStep>(storage_.get(), progress_, std::move(tables),
                                        std::move(features));
  }

  TableRows& rows(size_t table) override { return *rows_[table]; }

  absl::StatusOr<uint64_t> SkippedUpdates() override {
    const MutexLock lock(storage_->mutex());
    const DeviceScope scope(storage_->device());
    HPS_RETURN_IF_ERROR(storage_->Enter(storage_->stream()));
    uint64_t skipped = 0;
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(&skipped, storage_->skipped(), sizeof(skipped),
                                                   cudaMemcpyDeviceToHost, storage_->stream()),
                                   "counting updates"));
    HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(storage_->stream()), "counting updates"));
    return skipped;
  }

 private:
  std::unique_ptr<DeviceStorage> storage_;
  std::vector<TableProgress> progress_;
  std::vector<std::unique_ptr<DeviceRows>> rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableSet>> MakeDeviceTableSet(
    int device, const std::vector<ShardOptions>& tables) {
  if (tables.empty()) return absl::InvalidArgumentError("embedding tables: there are none");
  for (const ShardOptions& options : tables) HPS_RETURN_IF_ERROR(ValidateShardOptions(options));
  HPS_RETURN_IF_ERROR(CheckGpuDevice(device));
  const DeviceScope scope(device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStorage> storage,
                       DeviceStorage::Create(device, tables));
  return std::make_unique<DeviceTables>(std::move(storage));
}

}  // namespace hps
