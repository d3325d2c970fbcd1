#include "testing/faults/fault_cache.h"

#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/mutex.h"

namespace hps {
namespace {

// Runs `operation` with the planned fault. `Result` is a Status or a StatusOr.
template <typename Operation>
auto Run(TierFaults* faults, TierOperation name, Deadline deadline, const Operation& operation)
    -> decltype(operation()) {
  const TierFaultRule rule = faults->Begin(name);
  if (rule.fault == TierFault::kFail) return rule.status;
  if (rule.fault == TierFault::kDelay || rule.fault == TierFault::kStall)
    HPS_RETURN_IF_ERROR(faults->WaitForRelease(rule.fault, deadline));
  auto result = operation();
  if (rule.fault == TierFault::kFailLate) return rule.status;
  return result;
}

// The same for a change, which may also be dropped.
template <typename Operation>
absl::Status RunChange(TierFaults* faults, TierOperation name, Deadline deadline,
                       const Operation& operation) {
  const TierFaultRule rule = faults->Begin(name);
  if (rule.fault == TierFault::kFail) return rule.status;
  if (rule.fault == TierFault::kDrop) return absl::OkStatus();
  if (rule.fault == TierFault::kDelay || rule.fault == TierFault::kStall)
    HPS_RETURN_IF_ERROR(faults->WaitForRelease(rule.fault, deadline));
  HPS_RETURN_IF_ERROR(operation());
  return rule.fault == TierFault::kFailLate ? rule.status : absl::OkStatus();
}

class FaultyCacheTable final : public DeviceCacheTable {
 public:
  FaultyCacheTable(std::unique_ptr<DeviceCacheTable> table, TierFaults* faults)
      : table_(std::move(table)), faults_(faults) {}

  const DeviceCacheTable* inner() const { return table_.get(); }
  size_t row_bytes() const override { return table_->row_bytes(); }

  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) override {
    return Run(faults_, TierOperation::kInsert, kNoDeadline,
               [&] { return table_->InsertIfAbsent(batch, epoch); });
  }
  absl::Status Update(const RowBatch& batch, Deadline deadline) override {
    return RunChange(faults_, TierOperation::kUpdate, deadline,
                     [&] { return table_->Update(batch, deadline); });
  }
  absl::Status UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline deadline) override {
    return RunChange(faults_, TierOperation::kUpdate, deadline,
                     [&] { return table_->UpdateFrom(keys_max, fill, deadline); });
  }
  absl::Status Erase(std::span<const Key> keys, Deadline deadline) override {
    return RunChange(faults_, TierOperation::kErase, deadline,
                     [&] { return table_->Erase(keys, deadline); });
  }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return RunChange(faults_, TierOperation::kRaiseWatermarks, deadline,
                     [&] { return table_->RaiseWatermarks(keys, epoch, deadline); });
  }
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) override {
    return Run(faults_, TierOperation::kDump, deadline,
               [&] { return table_->Dump(cursor, out, deadline); });
  }
  absl::Status Clear() override {
    return RunChange(faults_, TierOperation::kClear, kNoDeadline, [&] { return table_->Clear(); });
  }
  absl::Status Flush(Deadline deadline) override {
    return Run(faults_, TierOperation::kFlush, deadline, [&] { return table_->Flush(deadline); });
  }
  LevelStatistics Statistics() const override { return table_->Statistics(); }

 private:
  const std::unique_ptr<DeviceCacheTable> table_;
  TierFaults* const faults_;
};

class FaultyCache;

class FaultyDeviceCall final : public DeviceCall {
 public:
  FaultyDeviceCall(FaultyCache& cache, TierFaults* faults) : cache_(cache), faults_(faults) {}

  void Lend(DeviceCallLease call) { call_ = std::move(call); }

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) override {
    queries_.assign(queries.begin(), queries.end());
    for (DeviceCacheQuery& query : queries_) {
      const auto* table = dynamic_cast<const FaultyCacheTable*>(query.table);
      HPS_CHECK((table == nullptr) == (query.table == nullptr));
      query.table = table == nullptr ? nullptr : table->inner();
    }
    return Run(faults_, TierOperation::kBegin, kNoDeadline,
               [&] { return call_->Begin(queries_, stream); });
  }
  DeviceMissesSoFar Peek(size_t query) override { return call_->Peek(query); }
  absl::StatusOr<DeviceMisses> Misses(Deadline deadline) override {
    return Run(faults_, TierOperation::kMisses, deadline, [&] { return call_->Misses(deadline); });
  }
  HostRows Staging(size_t query, size_t row_count) override {
    return call_->Staging(query, row_count);
  }
  absl::Status CopyAhead(const HostRows& rows) override { return call_->CopyAhead(rows); }
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override {
    return Run(faults_, TierOperation::kFinish, kNoDeadline, [&] { return call_->Finish(pieces); });
  }
  absl::Status ConvertToFloat32() override { return call_->ConvertToFloat32(); }
  absl::Status Wait(Deadline deadline) override {
    return Run(faults_, TierOperation::kWait, deadline, [&] { return call_->Wait(deadline); });
  }
  LookupCounts counts(size_t query) const override { return call_->counts(query); }
  void Return() override;

 private:
  FaultyCache& cache_;
  TierFaults* const faults_;
  DeviceCallLease call_;
  std::vector<DeviceCacheQuery> queries_;
};

class FaultyCache final : public DeviceCache {
 public:
  FaultyCache(std::unique_ptr<DeviceCache> cache, TierFaults* faults)
      : cache_(std::move(cache)), faults_(faults) {}

  int device() const override { return cache_->device(); }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override {
    return cache_->TableBytes(row_bytes, row_count);
  }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override {
    return Run(faults_, TierOperation::kOpenTable, kNoDeadline,
               [&]() -> absl::StatusOr<std::unique_ptr<DeviceCacheTable>> {
                 HPS_ASSIGN_OR_RETURN(auto table, cache_->OpenTable(row_bytes, bytes_max));
                 return std::make_unique<FaultyCacheTable>(std::move(table), faults_);
               });
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override {
    return Run(faults_, TierOperation::kAcquireCall, kNoDeadline,
               [&] { return Lend(cache_->AcquireCall(keys_max)); });
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) override {
    return Run(faults_, TierOperation::kAcquireCall, kNoDeadline,
               [&] { return Lend(cache_->AcquireCallAhead(keys_max)); });
  }
  absl::Status PinHostMemory(std::span<std::byte> memory) override {
    return cache_->PinHostMemory(memory);
  }
  void UnpinHostMemory(std::span<std::byte> memory) override { cache_->UnpinHostMemory(memory); }
  bool AwaitReturnedCalls() override { return cache_->AwaitReturnedCalls(); }
  void GiveBack(FaultyDeviceCall* call) {
    MutexLock lock(mutex_);
    free_.push_back(call);
  }

 private:
  absl::StatusOr<DeviceCallLease> Lend(absl::StatusOr<DeviceCallLease> call) {
    HPS_RETURN_IF_ERROR(call.status());
    FaultyDeviceCall& own = TakeCall();
    own.Lend(*std::move(call));
    return DeviceCallLease(&own);
  }
  FaultyDeviceCall& TakeCall() {
    MutexLock lock(mutex_);
    if (free_.empty()) {
      calls_.push_back(std::make_unique<FaultyDeviceCall>(*this, faults_));
      return *calls_.back();
    }
    FaultyDeviceCall& call = *free_.back();
    free_.pop_back();
    return call;
  }

  const std::unique_ptr<DeviceCache> cache_;
  TierFaults* const faults_;
  Mutex mutex_;
  std::vector<std::unique_ptr<FaultyDeviceCall>> calls_ HPS_GUARDED_BY(mutex_);
  std::vector<FaultyDeviceCall*> free_ HPS_GUARDED_BY(mutex_);
};

void FaultyDeviceCall::Return() {
  call_.reset();
  cache_.GiveBack(this);
}

}  // namespace

std::unique_ptr<DeviceCache> WithFaults(std::unique_ptr<DeviceCache> cache, TierFaults* faults) {
  return std::make_unique<FaultyCache>(std::move(cache), faults);
}

}  // namespace hps
