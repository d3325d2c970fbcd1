#include "l1_gpu/gpu_cache.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/byte_budget.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "gpu/cuda_resources.h"
#include "gpu/cuda_status.h"
#include "gpu/kernel_launch.h"
#include "hps/table_spec.h"
#include "l1_gpu/call_staging.h"
#include "l1_gpu/gpu_cache_table.h"
#include "l1_gpu/gpu_call.h"
#include "l1_gpu/hang_detector.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/slab.h"
#include "l1_gpu/writer.h"

namespace hps {
namespace {

// Calls beyond those of concurrent lookups, for DeviceCache::AcquireCallAhead.
constexpr size_t kCallsAhead = 1;

// Longest wait for the memory of a new cache to be zeroed.
constexpr Duration kFirstWaitMax = std::chrono::seconds(60);

class GpuCache final : public DeviceCache {
 public:
  GpuCache(const DeviceCacheOptions& options, Duration hang_timeout)
      : options_(options), hang_timeout_(hang_timeout), hang_detector_(hang_timeout) {}
  ~GpuCache() override;

  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL; the destructor frees what was created.
  // DEADLINE_EXCEEDED: the device hangs; call LeakOnHungDevice.
  absl::Status MakeResources();
  // Leaks all resources of the cache, because freeing them would block on a device that hangs.
  void LeakOnHungDevice();

  int device() const override { return options_.device; }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override;
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override;
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override {
    return LendCall(keys_max, CallUse::kLookup);
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) override {
    return LendCall(keys_max, CallUse::kPieceAhead);
  }
  absl::Status PinHostMemory(std::span<std::byte> memory) override;
  void UnpinHostMemory(std::span<std::byte> memory) override;
  bool AwaitReturnedCalls() override;

 private:
  absl::Status MakeCalls();
  absl::StatusOr<DeviceCallLease> LendCall(size_t keys_max, CallUse use);
  size_t CallsMax(CallUse use) const {
    return use == CallUse::kLookup ? options_.calls_max : kCallsAhead;
  }
  size_t call_count() const { return options_.calls_max + kCallsAhead; }
  // Calls that were returned while the device still works on them.
  bool IsFreeAndBusy(GpuCall* call);
  GpuCall* TakeIdleCall(CallUse use);
  // Removes the free call behind which `position` others were returned later, and notes that the
  // driver is asked about it until EndAsking or PutFreeCall. Null: there is none.
  GpuCall* TakeFreeCall(size_t position);
  void EndAsking(GpuCall* call);
  void PutFreeCall(GpuCall* call, size_t position);
  // Counts a lent call. False if so many are lent for this use already.
  bool CountLent(CallUse use);
  void EndLease(CallUse use);

  const DeviceCacheOptions options_;
  const Duration hang_timeout_;
  HangDetector hang_detector_;  // for lookups
  ByteBudget budget_{"gpu cache", options_.bytes_max};
  StagingGrowth staging_growth_{options_.staging_growth_bytes_max};
  DeviceBuffer write_sequence_;
  std::unique_ptr<Writer> writer_;
  std::vector<std::unique_ptr<GpuCall>> calls_;
  Mutex mutex_;
  // The capacity for all calls is reserved, so that returning one never allocates.
  std::vector<GpuCall*> free_calls_ HPS_GUARDED_BY(mutex_);
  // Calls that are not leased, but taken out of free_calls_ for as long as the driver is asked
  // whether they are idle. The capacity is reserved too.
  std::vector<GpuCall*> asked_calls_ HPS_GUARDED_BY(mutex_);
  CondVar asking_ended_;
  std::array<size_t, kCallUses> lent_counts_ HPS_GUARDED_BY(mutex_) = {};
};

GpuCache::~GpuCache() {
  const DeviceScope scope(options_.device);
  {
    MutexLock lock(mutex_);
    HPS_CHECK(free_calls_.size() == calls_.size());
  }
  const bool hangs = (writer_ != nullptr && absl::IsDeadlineExceeded(writer_->FlushToFree())) ||
                     !AwaitReturnedCalls();
  if (hangs) LeakOnHungDevice();
  calls_.clear();
  writer_.reset();
  write_sequence_ = {};
}

void GpuCache::LeakOnHungDevice() {
  LogWarning(absl::StrCat("device ", options_.device, " hangs: leaking the buffers of ",
                          calls_.size(), " lookups until the process ends"));
  for (std::unique_ptr<GpuCall>& call : calls_) (void)call.release();
  calls_.clear();
  MutexLock lock(mutex_);
  free_calls_.clear();
  (void)writer_.release();
  write_sequence_.Leak();
}

absl::Status GpuCache::MakeResources() {
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(CudaStatus(LoadKernels(), "loading the kernels"));
  HPS_ASSIGN_OR_RETURN(write_sequence_,
                       MakeDeviceBuffer("the write sequence", sizeof(WriteSequence)));
  HPS_ASSIGN_OR_RETURN(writer_,
                       Writer::Create(options_.device, kWriterStagingBytes, hang_timeout_));
  // On the writer's stream, which does not synchronize with the default stream. Flushed, because
  // lookups run on other streams.
  const Deadline deadline = DeadlineAfter(RealClock(), kFirstWaitMax);
  HPS_RETURN_IF_ERROR(writer_->Submit(deadline, [&](cudaStream_t stream) {
    return CudaStatus(cudaMemsetAsync(write_sequence_.data(), 0, sizeof(WriteSequence), stream),
                      "zeroing a new cache");
  }));
  HPS_RETURN_IF_ERROR(writer_->Flush(deadline));
  return MakeCalls();
}

absl::Status GpuCache::MakeCalls() {
  const CallSizes sizes = {.keys_max = options_.call_keys_max,
                           .staging_bytes = options_.call_staging_bytes,
                           .staging_growth = &staging_growth_};
  try {
    MutexLock lock(mutex_);
    free_calls_.reserve(call_count());
    asked_calls_.reserve(call_count());
    calls_.reserve(call_count());
    for (size_t i = 0; i < call_count(); ++i) {
      const auto give_back = [this](GpuCall* call) {
        const CallUse use = call->use();
        PutFreeCall(call, 0);
        EndLease(use);
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
  HPS_CHECK(row_bytes > 0 && row_bytes <= kRowBytesMax);
  const uint64_t slab_count = GpuCacheTable::SlabsWithin(row_bytes, bytes_max);
  if (slab_count < kSlabsMin) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "gpu cache: a table with rows of ", row_bytes, " bytes got ", bytes_max,
        " bytes of budget, needs at least ", GpuCacheTable::BytesOf(row_bytes, kSlabsMin)));
  }
  const uint64_t bytes = GpuCacheTable::BytesOf(row_bytes, slab_count);
  HPS_ASSIGN_OR_RETURN(ByteBudget::Lease lease, budget_.Lend(bytes));
  return GpuCacheTable::Create(row_bytes, static_cast<uint32_t>(slab_count),
                               {.writer = writer_.get(),
                                .write_sequence = write_sequence_.at<WriteSequence>(0),
                                .wait_for_calls = [this] { return AwaitReturnedCalls(); },
                                .budget = std::move(lease)});
}

absl::Status GpuCache::PinHostMemory(std::span<std::byte> memory) {
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  return RegisterHostMemory(memory);
}

void GpuCache::UnpinHostMemory(std::span<std::byte> memory) {
  const DeviceScope scope(options_.device);
  UnregisterHostMemory(memory);
}

// Waits without the lock, at most as long as the HangDetector allows.
bool GpuCache::AwaitReturnedCalls() {
  const Deadline deadline = hang_detector_.deadline();
  absl::Status waited;
  for (const std::unique_ptr<GpuCall>& call : calls_)
    if (IsFreeAndBusy(call.get())) waited.Update(call->WaitForDevice(deadline));
  return hang_detector_.Answers(waited);
}

bool GpuCache::IsFreeAndBusy(GpuCall* call) {
  MutexLock lock(mutex_);
  // The driver answers in microseconds; then the call is free again, or leased because it was idle.
  while (std::find(asked_calls_.begin(), asked_calls_.end(), call) != asked_calls_.end())
    asking_ended_.Wait(mutex_);
  const bool free = std::find(free_calls_.begin(), free_calls_.end(), call) != free_calls_.end();
  return free && !call->IsIdle();
}

absl::StatusOr<DeviceCallLease> GpuCache::LendCall(size_t keys_max, CallUse use) {
  if (keys_max > options_.call_keys_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("gpu cache: a call of ", keys_max,
                     " keys exceeds call_keys_max = ", options_.call_keys_max));
  }
  const DeviceScope scope(options_.device);
  GpuCall* const call = TakeIdleCall(use);
  if (call == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "gpu cache: all ", CallsMax(use), " calls are leased",
        use == CallUse::kLookup ? "" : " for pieces ahead", ", or still running on the device"));
  }
  call->Lease(keys_max, use);
  return DeviceCallLease(call);
}

// The idle call that was returned last: its memory is most likely cached, and its staging has grown
// for lookups like this one. If lookups took turns with all calls, each of them would grow, which
// takes milliseconds. Calls are taken out one by one, so that the driver is queried about each
// without the lock. Null if no call is idle, or enough are lent.
GpuCall* GpuCache::TakeIdleCall(CallUse use) {
  if (!CountLent(use)) return nullptr;
  for (size_t position = 0;; ++position) {
    GpuCall* const call = TakeFreeCall(position);
    if (call == nullptr) break;
    if (call->IsIdle()) {
      EndAsking(call);
      return call;
    }
    PutFreeCall(call, position);
  }
  EndLease(use);
  return nullptr;
}

GpuCall* GpuCache::TakeFreeCall(size_t position) {
  MutexLock lock(mutex_);
  if (position >= free_calls_.size()) return nullptr;
  const auto taken = free_calls_.end() - 1 - static_cast<ptrdiff_t>(position);
  GpuCall* const call = *taken;
  free_calls_.erase(taken);
  asked_calls_.push_back(call);
  return call;
}

void GpuCache::EndAsking(GpuCall* call) {
  MutexLock lock(mutex_);
  std::erase(asked_calls_, call);
  asking_ended_.NotifyAll();
}

void GpuCache::PutFreeCall(GpuCall* call, size_t position) {
  MutexLock lock(mutex_);
  const size_t behind = std::min(position, free_calls_.size());
  // The capacity is reserved: does not allocate.
  free_calls_.insert(free_calls_.end() - static_cast<ptrdiff_t>(behind), call);
  // Under the same lock, so that the call is always in one of the two lists.
  if (std::erase(asked_calls_, call) > 0) asking_ended_.NotifyAll();
}

bool GpuCache::CountLent(CallUse use) {
  MutexLock lock(mutex_);
  size_t& lent = lent_counts_[static_cast<size_t>(use)];
  if (lent == CallsMax(use)) return false;
  ++lent;
  return true;
}

void GpuCache::EndLease(CallUse use) {
  MutexLock lock(mutex_);
  --lent_counts_[static_cast<size_t>(use)];
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCache>> MakeGpuCache(const DeviceCacheOptions& options,
                                                          Duration hang_timeout) {
  HPS_CHECK(options.calls_max > 0);
  HPS_CHECK(options.call_keys_max > 0 && options.call_keys_max <= kKeysPerCallMax);
  HPS_RETURN_IF_ERROR(CheckGpuDevice(options.device));
  auto cache = std::make_unique<GpuCache>(options, hang_timeout);
  const absl::Status made = cache->MakeResources();
  if (absl::IsDeadlineExceeded(made)) cache->LeakOnHungDevice();
  HPS_RETURN_IF_ERROR(made);
  return cache;
}

}  // namespace hps
