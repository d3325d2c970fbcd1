#include "testing/faults/fault_tier.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hps {
namespace {

// One call of a decorated operation: the rule that applies to it, and the rule's effects that are
// common to all operations.
class FaultyCall {
 public:
  FaultyCall(TierFaults* faults, TierOperation operation)
      : faults_(faults), rule_(faults->Begin(operation)) {}

  // Fails or waits before the real call. Errors: the rule's, DEADLINE_EXCEEDED.
  absl::Status Enter(Deadline deadline = kNoDeadline) {
    if (rule_.fault == TierFault::kFail) return rule_.status;
    if (rule_.fault == TierFault::kDelay || rule_.fault == TierFault::kStall)
      return faults_->WaitForRelease(rule_.fault, deadline);
    return absl::OkStatus();
  }

  // Replaces the result of the real call if the rule fails it late.
  template <typename Result>
  Result Leave(Result result) {
    if (rule_.fault == TierFault::kFailLate) return rule_.status;
    return result;
  }

  bool drops() const { return rule_.fault == TierFault::kDrop; }
  bool corrupts() const { return rule_.fault == TierFault::kCorrupt; }
  bool Affects(size_t position) const { return position % rule_.key_stride == 0; }

 private:
  TierFaults* const faults_;
  const TierFaultRule rule_;
};

void FlipBit(std::byte* row, size_t row_bytes, size_t position) {
  if (row_bytes > 0) row[position % row_bytes] ^= std::byte(1 << (position % 8));
}

// A copy of the keys without those that the call drops.
std::vector<Key> KeptKeys(const FaultyCall& call, std::span<const Key> keys) {
  std::vector<Key> kept;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!call.drops() || !call.Affects(i)) kept.push_back(keys[i]);
  }
  return kept;
}

// A copy of a batch without the dropped keys, and with flipped bits.
class HarmedBatch {
 public:
  HarmedBatch(const FaultyCall& call, const RowBatch& batch) {
    const size_t row_bytes = batch.rows.row_bytes;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      if (call.drops() && call.Affects(i)) continue;
      const bool absent = !batch.absent.empty() && batch.absent[i] != 0;
      keys_.push_back(batch.keys[i]);
      if (!batch.versions.empty()) versions_.push_back(batch.versions[i]);
      if (!batch.absent.empty()) absent_.push_back(batch.absent[i]);
      rows_.resize(keys_.size() * row_bytes);
      if (absent) continue;
      std::byte* row = rows_.data() + rows_.size() - row_bytes;
      std::memcpy(row, batch.rows.row(i), row_bytes);
      if (call.corrupts() && call.Affects(i)) FlipBit(row, row_bytes, i);
    }
    batch_ = {.keys = keys_,
              .rows = {.data = rows_.data(),
                       .row_count = keys_.size(),
                       .row_bytes = row_bytes,
                       .stride_bytes = row_bytes},
              .versions = versions_,
              .absent = absent_};
  }
  HarmedBatch(const HarmedBatch&) = delete;
  HarmedBatch& operator=(const HarmedBatch&) = delete;

  const RowBatch& batch() const { return batch_; }

 private:
  std::vector<Key> keys_;
  std::vector<Version> versions_;
  std::vector<uint8_t> absent_;
  std::vector<std::byte> rows_;
  RowBatch batch_;
};

// Alters the answer of a fetch: a hit that is dropped becomes `dropped`.
FetchCounts HarmFetched(const FaultyCall& call, const FetchBatch& batch, FetchOutcome dropped,
                        FetchCounts counts) {
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (batch.outcomes[i] != FetchOutcome::kHit || !call.Affects(i)) continue;
    if (call.corrupts()) FlipBit(batch.rows.row(i), batch.rows.row_bytes, i);
    if (!call.drops()) continue;
    batch.outcomes[i] = dropped;
    --counts.hits;
    ++(dropped == FetchOutcome::kMiss ? counts.misses : counts.absent);
  }
  return counts;
}

class FaultyLossyTable final : public LossyTable {
 public:
  FaultyLossyTable(std::unique_ptr<LossyTable> table, TierFaults* faults)
      : table_(std::move(table)), faults_(faults) {}

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    FaultyCall call(faults_, TierOperation::kFetch);
    HPS_RETURN_IF_ERROR(call.Enter(deadline));
    absl::StatusOr<FetchCounts> counts = table_->Fetch(batch, deadline);
    if (counts.ok()) counts = HarmFetched(call, batch, FetchOutcome::kMiss, *counts);
    return call.Leave(std::move(counts));
  }

  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override {
    FaultyCall call(faults_, TierOperation::kInsert);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (!call.drops() && !call.corrupts()) return call.Leave(table_->Insert(batch, epoch));
    const HarmedBatch harmed(call, batch);
    HPS_ASSIGN_OR_RETURN(InsertCounts counts, table_->Insert(harmed.batch(), epoch));
    counts.inserted += batch.keys.size() - harmed.batch().keys.size();
    return counts;
  }

  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override {
    FaultyCall call(faults_, TierOperation::kUpdate);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (!call.drops() && !call.corrupts()) return call.Leave(table_->Update(batch));
    const HarmedBatch harmed(call, batch);
    HPS_ASSIGN_OR_RETURN(const uint64_t replaced, table_->Update(harmed.batch()));
    return replaced + batch.keys.size() - harmed.batch().keys.size();
  }

  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override {
    FaultyCall call(faults_, TierOperation::kErase);
    HPS_RETURN_IF_ERROR(call.Enter());
    const std::vector<Key> kept = KeptKeys(call, keys);
    HPS_ASSIGN_OR_RETURN(const uint64_t erased, table_->Erase(kept));
    return call.Leave(absl::StatusOr<uint64_t>(erased + keys.size() - kept.size()));
  }

  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override {
    FaultyCall call(faults_, TierOperation::kRaiseWatermarks);
    HPS_RETURN_IF_ERROR(call.Enter(deadline));
    return call.Leave(table_->RaiseWatermarks(KeptKeys(call, keys), epoch, deadline));
  }

  absl::Status Clear() override {
    FaultyCall call(faults_, TierOperation::kClear);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (call.drops()) return absl::OkStatus();
    return call.Leave(table_->Clear());
  }

  LevelStatistics Statistics() const override { return table_->Statistics(); }

  bool can_block() const override { return faults_->can_block().value_or(table_->can_block()); }
  DirectReadable* direct() override { return nullptr; }

 private:
  const std::unique_ptr<LossyTable> table_;
  TierFaults* const faults_;
};

class FaultyLossyTier final : public LossyTier {
 public:
  FaultyLossyTier(std::unique_ptr<LossyTier> tier, TierFaults* faults)
      : tier_(std::move(tier)), faults_(faults) {}

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    FaultyCall call(faults_, TierOperation::kOpenTable);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(auto table, tier_->OpenTable(spec, incarnation, bytes_max));
    return call.Leave(
        absl::StatusOr<std::unique_ptr<LossyTable>>(WithFaults(std::move(table), faults_)));
  }

  // Each table has faults of its own.
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }

 private:
  const std::unique_ptr<LossyTier> tier_;
  TierFaults* const faults_;
};

class FaultyCursor final : public RowCursor {
 public:
  FaultyCursor(std::unique_ptr<RowCursor> cursor, TierFaults* faults)
      : cursor_(std::move(cursor)), faults_(faults) {}

  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                              std::span<Version> versions) override {
    FaultyCall call(faults_, TierOperation::kScanNext);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(size_t count, cursor_->Next(keys, rows, versions));
    for (size_t i = 0; call.corrupts() && i < count; ++i) {
      if (call.Affects(i)) FlipBit(rows.row(i), rows.row_bytes, i);
    }
    // Drops the piece's last row, so that no other row has to move.
    if (call.drops() && count > 1) --count;
    return call.Leave(absl::StatusOr<size_t>(count));
  }

 private:
  const std::unique_ptr<RowCursor> cursor_;
  TierFaults* const faults_;
};

class FaultyDurableTable final : public DurableTable {
 public:
  FaultyDurableTable(std::unique_ptr<DurableTable> table, TierFaults* faults)
      : table_(std::move(table)), faults_(faults) {}

  const TableSpec& spec() const override { return table_->spec(); }
  Incarnation incarnation() const override { return table_->incarnation(); }

  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
    FaultyCall call(faults_, TierOperation::kFetch);
    if (absl::Status entered = call.Enter(deadline); !entered.ok()) {
      for (FetchOutcome& outcome : batch.outcomes) outcome = FetchOutcome::kMiss;
      return entered;
    }
    absl::StatusOr<FetchCounts> counts = table_->Fetch(batch, deadline);
    if (counts.ok()) counts = HarmFetched(call, batch, FetchOutcome::kAbsent, *counts);
    return call.Leave(std::move(counts));
  }

  absl::Status Write(const DurableWrite& write) override {
    FaultyCall call(faults_, TierOperation::kWrite);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (!call.drops() && !call.corrupts()) return call.Leave(table_->Write(write));
    const HarmedBatch harmed(call, write.upserts);
    const std::vector<Key> deletes = KeptKeys(call, write.deletes);
    return table_->Write(
        {.upserts = harmed.batch(), .deletes = deletes, .positions = write.positions});
  }

  absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
    FaultyCall call(faults_, TierOperation::kPositions);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(std::vector<StreamPosition> positions, table_->Positions());
    if (call.drops()) positions.clear();
    return call.Leave(absl::StatusOr<std::vector<StreamPosition>>(std::move(positions)));
  }

  absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override {
    FaultyCall call(faults_, TierOperation::kScan);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(auto cursor, table_->Scan());
    return call.Leave(absl::StatusOr<std::unique_ptr<RowCursor>>(
        std::make_unique<FaultyCursor>(std::move(cursor), faults_)));
  }

  std::vector<uint16_t> UnorderedHashes() const override { return table_->UnorderedHashes(); }
  TableInfo Info() const override { return table_->Info(); }
  bool IsCurrent() const override { return table_->IsCurrent(); }

 private:
  const std::unique_ptr<DurableTable> table_;
  TierFaults* const faults_;
};

class FaultyImport final : public BulkImport {
 public:
  FaultyImport(std::unique_ptr<BulkImport> import, TierFaults* faults)
      : import_(std::move(import)), faults_(faults) {}

  absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys, HostRows rows) override {
    FaultyCall call(faults_, TierOperation::kImportAdd);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (!call.drops() && !call.corrupts()) return call.Leave(import_->Add(table, part, keys, rows));
    const HarmedBatch harmed(call, {.keys = keys, .rows = rows});
    return import_->Add(table, part, harmed.batch().keys, harmed.batch().rows);
  }

  absl::Status FinishPart(size_t table, uint32_t part) override {
    return import_->FinishPart(table, part);
  }

  void SetUpdateStart(const UpdateStart& start) override { import_->SetUpdateStart(start); }
  absl::Status SetImportId(const std::string& id) override { return import_->SetImportId(id); }

  absl::Status SetNetwork(const std::string& model, const ModelNetwork& network) override {
    return import_->SetNetwork(model, network);
  }

  absl::StatusOr<Result> Commit() override {
    FaultyCall call(faults_, TierOperation::kImportCommit);
    HPS_RETURN_IF_ERROR(call.Enter());
    return call.Leave(import_->Commit());
  }

 private:
  const std::unique_ptr<BulkImport> import_;
  TierFaults* const faults_;
};

class FaultyDurableStore final : public DurableStore {
 public:
  FaultyDurableStore(std::unique_ptr<DurableStore> store, TierFaults* faults)
      : store_(std::move(store)), faults_(faults) {}

  absl::StatusOr<std::vector<TableInfo>> Tables() const override { return store_->Tables(); }

  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override {
    FaultyCall call(faults_, TierOperation::kOpenTable);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(auto table, store_->OpenTable(name));
    return call.Leave(
        absl::StatusOr<std::unique_ptr<DurableTable>>(WithFaults(std::move(table), faults_)));
  }

  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string& model) const override {
    return store_->Network(model);
  }

  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) override {
    FaultyCall call(faults_, TierOperation::kBeginImport);
    HPS_RETURN_IF_ERROR(call.Enter());
    HPS_ASSIGN_OR_RETURN(auto import, store_->BeginImport(specs));
    return call.Leave(absl::StatusOr<std::unique_ptr<BulkImport>>(
        std::make_unique<FaultyImport>(std::move(import), faults_)));
  }

  absl::Status Drop(const std::string& name) override {
    FaultyCall call(faults_, TierOperation::kDropTable);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (call.drops()) return absl::OkStatus();
    return call.Leave(store_->Drop(name));
  }

  absl::StatusOr<RefreshResult> Refresh() override {
    FaultyCall call(faults_, TierOperation::kRefresh);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (call.drops()) return RefreshResult{};
    return call.Leave(store_->Refresh());
  }

  std::vector<RejectedImport> TakeRejectedImports(const std::string& model) override {
    return store_->TakeRejectedImports(model);
  }

  absl::StatusOr<uint64_t> Snapshot(const std::string& name) override {
    return store_->Snapshot(name);
  }

  absl::Status Sync() override {
    FaultyCall call(faults_, TierOperation::kSync);
    HPS_RETURN_IF_ERROR(call.Enter());
    if (call.drops()) return absl::OkStatus();
    return call.Leave(store_->Sync());
  }

  DurableStatistics Statistics() const override { return store_->Statistics(); }

 private:
  const std::unique_ptr<DurableStore> store_;
  TierFaults* const faults_;
};

}  // namespace

std::unique_ptr<LossyTable> WithFaults(std::unique_ptr<LossyTable> table, TierFaults* faults) {
  return std::make_unique<FaultyLossyTable>(std::move(table), faults);
}

std::unique_ptr<LossyTier> WithFaults(std::unique_ptr<LossyTier> tier, TierFaults* faults) {
  return std::make_unique<FaultyLossyTier>(std::move(tier), faults);
}

std::unique_ptr<DurableTable> WithFaults(std::unique_ptr<DurableTable> table, TierFaults* faults) {
  return std::make_unique<FaultyDurableTable>(std::move(table), faults);
}

std::unique_ptr<DurableStore> WithFaults(std::unique_ptr<DurableStore> store, TierFaults* faults) {
  return std::make_unique<FaultyDurableStore>(std::move(store), faults);
}

}  // namespace hps
