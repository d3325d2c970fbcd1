#include "testing/host_device_cache/host_cache.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/byte_budget.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "hps/table_spec.h"
#include "testing/host_device_cache/host_cache_table.h"
#include "testing/host_device_cache/host_call.h"

namespace hps {
namespace {

class HostCache final : public DeviceCache {
 public:
  explicit HostCache(const HostCacheOptions& options) : options_(options) {}
  ~HostCache() override;

  absl::Status MakeCalls();

  int device() const override { return options_.device; }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override;
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override;
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override {
    return LendCall(keys_max, kForLookups);
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) override {
    return LendCall(keys_max, kForPiecesAhead);
  }
  absl::Status PinHostMemory(std::span<std::byte>) override { return absl::OkStatus(); }
  void UnpinHostMemory(std::span<std::byte>) override {}
  bool AwaitReturnedCalls() override { return true; }

 private:
  enum Use { kForLookups, kForPiecesAhead };
  absl::StatusOr<DeviceCallLease> LendCall(size_t keys_max, Use use);

  const HostCacheOptions options_;
  ByteBudget budget_{"host cache", options_.bytes_max};
  std::unique_ptr<std::byte[]> staging_;
  std::vector<std::unique_ptr<HostCall>> calls_;
  Mutex mutex_;
  // Capacity for all calls is reserved: giving one back never allocates.
  std::array<std::vector<HostCall*>, 2> free_calls_ HPS_GUARDED_BY(mutex_);  // by use
};

HostCache::~HostCache() {
  MutexLock lock(mutex_);
  HPS_CHECK(free_calls_[kForLookups].size() + free_calls_[kForPiecesAhead].size() == calls_.size());
}

absl::Status HostCache::MakeCalls() {
  const auto no_memory = [&] {
    return absl::ResourceExhaustedError(absl::StrCat(
        "host cache: no memory for ", options_.calls_max, " calls of ", options_.call_keys_max,
        " keys and ", options_.call_staging_bytes, " bytes of staging"));
  };
  const std::optional<uint64_t> staging_bytes =
      CheckedMultiply(options_.calls_max + 1, options_.call_staging_bytes);
  if (!staging_bytes.has_value()) return no_memory();
  staging_.reset(new (std::nothrow) std::byte[*staging_bytes]);
  if (staging_ == nullptr) return no_memory();
  try {
    MutexLock lock(mutex_);
    free_calls_[kForLookups].reserve(options_.calls_max);
    free_calls_[kForPiecesAhead].reserve(1);
    for (size_t i = 0; i <= options_.calls_max; ++i) {
      const Use use = i < options_.calls_max ? kForLookups : kForPiecesAhead;
      const std::span<std::byte> staging(staging_.get() + i * options_.call_staging_bytes,
                                         options_.call_staging_bytes);
      const auto give_back = [this, use](HostCall* call) {
        MutexLock giving(mutex_);
        free_calls_[use].push_back(call);
      };
      calls_.push_back(std::make_unique<HostCall>(options_.call_keys_max, staging, give_back));
      free_calls_[use].push_back(calls_.back().get());
    }
  } catch (const std::exception&) {
    return no_memory();
  }
  return absl::OkStatus();
}

uint64_t HostCache::TableBytes(size_t row_bytes, uint64_t row_count) const {
  HPS_CHECK(row_bytes > 0 && row_bytes <= kRowBytesMax);
  const uint64_t slab_count =
      row_count / (SlabTable::kSlabSlots * 3) * 4 +
      (row_count % (SlabTable::kSlabSlots * 3) * 4 + SlabTable::kSlabSlots * 3 - 1) /
          (SlabTable::kSlabSlots * 3);
  return HostCacheTable::BytesOf(row_bytes, std::max<uint64_t>(slab_count, SlabTable::kSlabsMin));
}

absl::StatusOr<std::unique_ptr<DeviceCacheTable>> HostCache::OpenTable(size_t row_bytes,
                                                                       uint64_t bytes_max) {
  HPS_CHECK(row_bytes > 0 && row_bytes <= kRowBytesMax);
  const uint64_t slab_count = HostCacheTable::SlabsWithin(row_bytes, bytes_max);
  if (slab_count < SlabTable::kSlabsMin) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host cache: a table with rows of ", row_bytes, " bytes got ", bytes_max,
                     " bytes of budget, needs at least ",
                     HostCacheTable::BytesOf(row_bytes, SlabTable::kSlabsMin)));
  }
  const uint64_t bytes = HostCacheTable::BytesOf(row_bytes, slab_count);
  HPS_ASSIGN_OR_RETURN(ByteBudget::Lease lease, budget_.Lend(bytes));
  return HostCacheTable::Create(row_bytes, slab_count, std::move(lease));
}

absl::StatusOr<DeviceCallLease> HostCache::LendCall(size_t keys_max, Use use) {
  if (keys_max > options_.call_keys_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host cache: a call of ", keys_max,
                     " keys exceeds call_keys_max = ", options_.call_keys_max));
  }
  HostCall* call = nullptr;
  {
    MutexLock lock(mutex_);
    std::vector<HostCall*>& free = free_calls_[use];
    if (free.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("host cache: all ", options_.calls_max, " calls are leased"));
    }
    call = free.back();
    free.pop_back();
  }
  call->Lease(keys_max);
  return DeviceCallLease(call);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCache>> MakeHostCache(const HostCacheOptions& options) {
  HPS_CHECK(options.calls_max > 0);
  HPS_CHECK(options.call_keys_max > 0 && options.call_keys_max <= kKeysPerCallMax);
  auto cache = std::make_unique<HostCache>(options);
  HPS_RETURN_IF_ERROR(cache->MakeCalls());
  return cache;
}

}  // namespace hps
