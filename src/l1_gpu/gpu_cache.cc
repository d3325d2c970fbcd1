#include "l1_gpu/gpu_cache.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "hps/table_spec.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/cuda_status.h"
#include "l1_gpu/gpu_cache_table.h"
#include "l1_gpu/gpu_call.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/last_wait.h"
#include "l1_gpu/writer.h"
#include "tier/byte_budget.h"

namespace hps {
namespace {

// How long a new cache waits for its memory to be zeroed.
constexpr Duration kFirstWaitMax = std::chrono::seconds(60);

class GpuCache final : public DeviceCache {
 public:
  GpuCache(const DeviceCacheOptions& options, Duration last_wait_max)
      : options_(options), last_wait_max_(last_wait_max), last_wait_(last_wait_max) {}
  ~GpuCache() override;

  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL; the destructor frees what was made.
  // DEADLINE_EXCEEDED: the device hangs; LeaveToDevice.
  absl::Status MakeResources();
  // Of a device that hangs, all that was made: freeing would wait for it.
  void LeaveToDevice();

  int device() const override { return options_.device; }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override;
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override;
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override;

 private:
  absl::Status MakeCalls();
  // Waits for lookups that were returned before they ended, without the lock, as LastWait says.
  // False when the device hangs.
  bool WaitForReturnedCalls();
  // Returned, while the device is still at work on it.
  bool IsFreeAndBusy(GpuCall* call);
  GpuCall* TakeIdleCall();

  const DeviceCacheOptions options_;
  const Duration last_wait_max_;
  LastWait last_wait_;  // for lookups
  ByteBudget budget_{"gpu cache", options_.bytes_max};
  DeviceBuffer gate_;
  std::unique_ptr<Writer> writer_;
  std::vector<std::unique_ptr<GpuCall>> calls_;
  Mutex mutex_;
  // Capacity for all calls is reserved: giving one back never allocates.
  std::vector<GpuCall*> free_calls_ HPS_GUARDED_BY(mutex_);
};

GpuCache::~GpuCache() {
  const DeviceScope scope(options_.device);
  {
    MutexLock lock(mutex_);
    HPS_CHECK(free_calls_.size() == calls_.size());
  }
  const bool hangs = (writer_ != nullptr && absl::IsDeadlineExceeded(writer_->FlushToFree())) ||
                     !WaitForReturnedCalls();
  if (hangs) LeaveToDevice();
  calls_.clear();
  writer_.reset();
  gate_ = {};
}

void GpuCache::LeaveToDevice() {
  LogWarning(absl::StrCat("device ", options_.device, " does not answer: the buffers of ",
                          calls_.size(), " lookups there stay taken until this process ends"));
  for (std::unique_ptr<GpuCall>& call : calls_) (void)call.release();
  calls_.clear();
  MutexLock lock(mutex_);
  free_calls_.clear();
  (void)writer_.release();
  gate_.Abandon();
}

absl::Status GpuCache::MakeResources() {
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(CudaStatus(LoadKernels(), "loading the kernels"));
  HPS_ASSIGN_OR_RETURN(gate_, MakeDeviceBuffer("the writers' gate", sizeof(WriterGate)));
  HPS_ASSIGN_OR_RETURN(writer_,
                       Writer::Create(options_.device, kWriterStagingBytes, last_wait_max_));
  // On the writer's stream, which does not wait for the default one; flushed, for the lookups'.
  const Deadline deadline = DeadlineAfter(RealClock(), kFirstWaitMax);
  HPS_RETURN_IF_ERROR(writer_->Submit(deadline, [&](cudaStream_t stream) {
    return CudaStatus(cudaMemsetAsync(gate_.data(), 0, sizeof(WriterGate), stream), "a new cache");
  }));
  HPS_RETURN_IF_ERROR(writer_->Flush(deadline));
  return MakeCalls();
}

absl::Status GpuCache::MakeCalls() {
  const CallSizes sizes = {.keys_max = options_.call_keys_max,
                           .staging_bytes = options_.call_staging_bytes};
  try {
    MutexLock lock(mutex_);
    free_calls_.reserve(options_.calls_max);
    calls_.reserve(options_.calls_max);
    for (size_t i = 0; i < options_.calls_max; ++i) {
      const auto give_back = [this](GpuCall* call) {
        MutexLock giving(mutex_);
        free_calls_.push_back(call);
      };
      HPS_ASSIGN_OR_RETURN(auto call, GpuCall::Create(options_.device, sizes, give_back));
      calls_.push_back(std::move(call));
      free_calls_.push_back(calls_.back().get());
    }
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gpu cache: no memory for ", options_.calls_max, " calls"));
  }
  return absl::OkStatus();
}

uint64_t GpuCache::TableBytes(size_t row_bytes, uint64_t row_count) const {
  HPS_CHECK(row_bytes > 0 && row_bytes <= kRowBytesMax);
  constexpr uint64_t kRowsPerFourSlabs = uint64_t{kSlabSlots} * 3;
  const uint64_t slab_count =
      row_count / kRowsPerFourSlabs * 4 +
      (row_count % kRowsPerFourSlabs * 4 + kRowsPerFourSlabs - 1) / kRowsPerFourSlabs;
  return GpuCacheTable::BytesOf(row_bytes, std::max<uint64_t>(slab_count, kSlabsMin));
}

absl::StatusOr<std::unique_ptr<DeviceCacheTable>> GpuCache::OpenTable(size_t row_bytes,
                                                                      uint64_t bytes_max) {
  if (row_bytes == 0 || row_bytes > kRowBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("gpu cache: a table of rows of ", row_bytes,
                                                   " bytes, allowed are 1 to ", kRowBytesMax));
  }
  const uint64_t slab_count = GpuCacheTable::SlabsWithin(row_bytes, bytes_max);
  if (slab_count < kSlabsMin) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gpu cache: a table of rows of ", row_bytes, " bytes got ", bytes_max,
                     " bytes and needs at least ", GpuCacheTable::BytesOf(row_bytes, kSlabsMin)));
  }
  const uint64_t bytes = GpuCacheTable::BytesOf(row_bytes, slab_count);
  HPS_ASSIGN_OR_RETURN(ByteBudget::Lease lease, budget_.Lend(bytes));
  return GpuCacheTable::Create(row_bytes, static_cast<uint32_t>(slab_count),
                               {.writer = writer_.get(),
                                .gate = gate_.at<WriterGate>(0),
                                .wait_for_calls = [this] { return WaitForReturnedCalls(); },
                                .budget = std::move(lease)});
}

bool GpuCache::WaitForReturnedCalls() {
  const Deadline deadline = last_wait_.deadline();
  absl::Status waited;
  for (const std::unique_ptr<GpuCall>& call : calls_)
    if (IsFreeAndBusy(call.get())) waited.Update(call->WaitForDevice(deadline));
  return last_wait_.Answers(waited);
}

bool GpuCache::IsFreeAndBusy(GpuCall* call) {
  MutexLock lock(mutex_);
  const bool free = std::find(free_calls_.begin(), free_calls_.end(), call) != free_calls_.end();
  return free && !call->IsIdle();
}

absl::StatusOr<DeviceCallLease> GpuCache::AcquireCall(size_t keys_max) {
  if (keys_max > options_.call_keys_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gpu cache: a call of ", keys_max, " keys, at most ", options_.call_keys_max));
  }
  const DeviceScope scope(options_.device);
  GpuCall* const call = TakeIdleCall();
  if (call == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gpu cache: all ", options_.calls_max,
                     " calls are lent, or the device is still at work on them"));
  }
  call->Lease(keys_max);
  return DeviceCallLease(call);
}

// Takes calls off the list one by one, so that the driver is asked about each without the lock.
// Calls on which the device is still at work go to the list's other end. Null when none is idle.
GpuCall* GpuCache::TakeIdleCall() {
  for (size_t tries = 0; tries < options_.calls_max; ++tries) {
    GpuCall* call = nullptr;
    {
      MutexLock lock(mutex_);
      if (free_calls_.empty()) return nullptr;
      call = free_calls_.back();  // the one that was given back last is the warmest
      free_calls_.pop_back();
    }
    if (call->IsIdle()) return call;
    MutexLock lock(mutex_);
    free_calls_.insert(free_calls_.begin(), call);  // capacity is reserved: does not allocate
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCache>> MakeGpuCache(const DeviceCacheOptions& options,
                                                          Duration last_wait_max) {
  if (options.calls_max == 0 || options.call_keys_max == 0 ||
      options.call_keys_max > kKeysPerCallMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu cache: ", options.calls_max, " calls of ", options.call_keys_max,
                     " keys; expected at least one call of 1 to ", kKeysPerCallMax, " keys"));
  }
  HPS_RETURN_IF_ERROR(CheckGpuDevice(options.device));
  auto cache = std::make_unique<GpuCache>(options, last_wait_max);
  const absl::Status made = cache->MakeResources();
  if (absl::IsDeadlineExceeded(made)) cache->LeaveToDevice();
  HPS_RETURN_IF_ERROR(made);
  return cache;
}

}  // namespace hps
