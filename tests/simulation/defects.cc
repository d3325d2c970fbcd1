#include "tests/simulation/defects.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/macros.h"

namespace hps {
namespace {

using SharedContext = std::shared_ptr<const DefectContext>;

ApplyEpoch EpochToUse(const DefectContext& context, Defect no_fence, ApplyEpoch epoch) {
  if (context.defect == no_fence) return UINT64_MAX;
  return context.defect == Defect::kEpochAfterFetch ? context.published() : epoch;
}

class InterleavedDurableTable final : public DurableTable {
 public:
  InterleavedDurableTable(std::unique_ptr<DurableTable> table, SharedContext context)
      : table_(std::move(table)), context_(std::move(context)) {}

  const TableSpec& spec() const override { return table_->spec(); }
  Incarnation incarnation() const override { return table_->incarnation(); }
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    context_->yield();
    auto counts = table_->Fetch(batch, deadline);
    context_->yield();
    return counts;
  }
  absl::Status Write(const DurableWrite& write) override { return table_->Write(write); }
  absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
    return table_->Positions();
  }
  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override { return table_->Scan(); }
  std::vector<uint16_t> UnorderedHashes() const override { return table_->UnorderedHashes(); }
  TableInfo Info() const override { return table_->Info(); }
  bool IsCurrent() const override { return table_->IsCurrent(); }

 private:
  const std::unique_ptr<DurableTable> table_;
  const SharedContext context_;
};

class InterleavedLossyTable final : public LossyTable {
 public:
  InterleavedLossyTable(std::unique_ptr<LossyTable> table, SharedContext context)
      : table_(std::move(table)), context_(std::move(context)) {}

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    LoseOne();
    context_->yield();
    auto counts = table_->Fetch(batch, deadline);
    if (counts.ok()) Harm(batch, &*counts);
    context_->yield();
    return counts;
  }
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    LoseOne();
    context_->yield();
    return table_->Insert(batch, EpochToUse(*context_, Defect::kNoFenceL2, epoch));
  }
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override { return table_->Update(batch); }
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override { return table_->Erase(keys); }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return table_->RaiseWatermarks(keys, epoch, deadline);
  }
  absl::Status Clear() override { return table_->Clear(); }
  LevelStatistics Statistics() const override { return table_->Statistics(); }
  bool can_block() const override { return table_->can_block(); }
  DirectReadable* direct() override { return nullptr; }

 private:
  void LoseOne() {
    if (!context_->evicts()) return;
    const Key key = context_->draw_evicted();
    static_cast<void>(table_->Erase({&key, 1}));  // one that fails loses nothing
  }
  void Harm(const FetchBatch& batch, FetchCounts* counts) const {
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (context_->defect == Defect::kMissIsAbsent && batch.outcomes[i] == FetchOutcome::kMiss) {
        batch.outcomes[i] = FetchOutcome::kAbsent;
        --counts->misses;
        ++counts->absent;
      }
      if (context_->defect == Defect::kForeignRow && i > 0 &&
          batch.outcomes[i] == FetchOutcome::kHit && batch.outcomes[i - 1] == FetchOutcome::kHit) {
        std::memcpy(batch.rows.row(i), batch.rows.row(i - 1), batch.rows.row_bytes);
      }
    }
  }

  const std::unique_ptr<LossyTable> table_;
  const SharedContext context_;
};

class InterleavedCacheTable final : public DeviceCacheTable {
 public:
  InterleavedCacheTable(std::unique_ptr<DeviceCacheTable> table, SharedContext context)
      : table_(std::move(table)), context_(std::move(context)) {}

  const DeviceCacheTable* inner() const { return table_.get(); }
  size_t row_bytes() const override { return table_->row_bytes(); }
  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) override {
    context_->yield();
    return table_->InsertIfAbsent(batch, EpochToUse(*context_, Defect::kNoFenceL1, epoch));
  }
  absl::Status Update(const RowBatch& batch, Deadline deadline) override {
    return table_->Update(batch, deadline);
  }
  absl::Status UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline deadline) override {
    return table_->UpdateFrom(keys_max, fill, deadline);
  }
  absl::Status Erase(std::span<const Key> keys, Deadline deadline) override {
    return table_->Erase(keys, deadline);
  }
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    return table_->RaiseWatermarks(keys, epoch, deadline);
  }
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) override {
    return table_->Dump(cursor, out, deadline);
  }
  absl::Status Clear() override { return table_->Clear(); }
  absl::Status Flush(Deadline deadline) override { return table_->Flush(deadline); }
  LevelStatistics Statistics() const override { return table_->Statistics(); }

 private:
  const std::unique_ptr<DeviceCacheTable> table_;
  const SharedContext context_;
};

class InterleavedCall final : public DeviceCall {
 public:
  explicit InterleavedCall(SharedContext context) : context_(std::move(context)) {}

  bool lent() const { return call_ != nullptr; }
  void Lend(DeviceCallLease call) { call_ = std::move(call); }

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) override {
    std::vector<DeviceCacheQuery> inner(queries.begin(), queries.end());
    for (DeviceCacheQuery& query : inner) {
      const auto* table = dynamic_cast<const InterleavedCacheTable*>(query.table);
      HPS_CHECK((table == nullptr) == (query.table == nullptr));
      query.table = table == nullptr ? nullptr : table->inner();
    }
    const absl::Status begun = call_->Begin(inner, stream);
    context_->yield();
    return begun;
  }
  DeviceMissesSoFar Peek(size_t query) override { return call_->Peek(query); }
  absl::StatusOr<DeviceMisses> Misses(Deadline deadline) override {
    return call_->Misses(deadline);
  }
  HostRows Staging(size_t query, size_t row_count) override {
    return call_->Staging(query, row_count);
  }
  absl::Status CopyAhead(const HostRows& rows) override { return call_->CopyAhead(rows); }
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override {
    std::vector<DeviceRowPiece> inner(pieces.begin(), pieces.end());
    for (DeviceRowPiece& piece : inner)
      piece.reprobe = piece.reprobe && context_->defect != Defect::kNoReprobe;
    return call_->Finish(inner);
  }
  absl::Status ConvertToFloat32() override { return call_->ConvertToFloat32(); }
  absl::Status Wait(Deadline deadline) override { return call_->Wait(deadline); }
  LookupCounts counts(size_t query) const override { return call_->counts(query); }
  void Return() override { call_.reset(); }

 private:
  DeviceCallLease call_;  // null while nobody has this one
  const SharedContext context_;
};

class InterleavedCache final : public DeviceCache {
 public:
  InterleavedCache(std::unique_ptr<DeviceCache> cache, SharedContext context)
      : cache_(std::move(cache)), context_(std::move(context)) {}

  int device() const override { return cache_->device(); }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override {
    return cache_->TableBytes(row_bytes, row_count);
  }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                              uint64_t bytes_max) override {
    return cache_->OpenTable(row_bytes, bytes_max);
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) override {
    return Lend(cache_->AcquireCall(keys_max));
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) override {
    return Lend(cache_->AcquireCallAhead(keys_max));
  }
  absl::Status PinHostMemory(std::span<std::byte> memory) override {
    return cache_->PinHostMemory(memory);
  }
  void UnpinHostMemory(std::span<std::byte> memory) override { cache_->UnpinHostMemory(memory); }
  bool AwaitReturnedCalls() override { return cache_->AwaitReturnedCalls(); }

 private:
  absl::StatusOr<DeviceCallLease> Lend(absl::StatusOr<DeviceCallLease> call) {
    HPS_RETURN_IF_ERROR(call.status());
    auto free = std::ranges::find_if(calls_, [](const auto& own) { return !own->lent(); });
    if (free == calls_.end())
      free = calls_.insert(free, std::make_unique<InterleavedCall>(context_));
    (*free)->Lend(*std::move(call));
    return DeviceCallLease(free->get());
  }

  const std::unique_ptr<DeviceCache> cache_;
  std::vector<std::unique_ptr<InterleavedCall>> calls_;
  const SharedContext context_;
};

}  // namespace

std::unique_ptr<DurableTable> Interleaved(std::unique_ptr<DurableTable> table,
                                          SharedContext context) {
  return std::make_unique<InterleavedDurableTable>(std::move(table), std::move(context));
}
std::unique_ptr<LossyTable> Interleaved(std::unique_ptr<LossyTable> table, SharedContext context) {
  return std::make_unique<InterleavedLossyTable>(std::move(table), std::move(context));
}
std::unique_ptr<DeviceCacheTable> Interleaved(std::unique_ptr<DeviceCacheTable> table,
                                              SharedContext context) {
  return std::make_unique<InterleavedCacheTable>(std::move(table), std::move(context));
}
std::unique_ptr<DeviceCache> Interleaved(std::unique_ptr<DeviceCache> cache,
                                         SharedContext context) {
  return std::make_unique<InterleavedCache>(std::move(cache), std::move(context));
}

}  // namespace hps
