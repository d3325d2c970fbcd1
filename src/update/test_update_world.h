// One table of a model in three levels, for tests of the write path: level 3 and 2 are plain maps,
// level 1 is in host memory; faults can be planned for each.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "serving/model_registry.h"
#include "testing/fakes/manual_executor.h"
#include "testing/fakes/plain_tier.h"
#include "testing/faults/fault_cache.h"
#include "testing/faults/fault_tier.h"
#include "testing/host_device_cache/host_cache.h"
#include "update/table_applier.h"

namespace hps {

// One table, which outlives the handles that OpenTable gives. Thread-safe.
class OneTableStore final : public DurableStore {
 public:
  explicit OneTableStore(const TableSpec& spec) : spec_(spec) { Replace(); }

  // As an import: the table is empty, and handles of the former one are not current any more.
  void Replace() {
    MutexLock lock(mutex_);
    table_ = std::make_shared<PlainDurableTable>(spec_, ++incarnation_);
  }

  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string&) const override {
    return std::optional<ModelNetwork>();
  }

  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override {
    if (name != spec_.name) return absl::NotFoundError("no table " + name);
    return WithFaults(std::make_unique<Handle>(*this, Current()), &faults);
  }
  absl::StatusOr<uint64_t> Snapshot(const std::string&) override {
    return absl::UnimplementedError("Snapshot");
  }
  absl::Status Sync() override {
    ++syncs;
    return on_sync ? on_sync() : absl::OkStatus();
  }

  absl::StatusOr<std::vector<TableInfo>> Tables() const override {
    return std::vector<TableInfo>{Current()->Info()};
  }
  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(std::span<const TableSpec>) override {
    return absl::UnimplementedError("BeginImport");
  }
  absl::Status Drop(const std::string&) override { return absl::UnimplementedError("Drop"); }
  absl::StatusOr<RefreshResult> Refresh() override { return RefreshResult{}; }
  std::vector<RejectedImport> TakeRejectedImports(const std::string&) override { return {}; }
  DurableStatistics Statistics() const override { return {}; }

  TierFaults faults;
  std::function<absl::Status()> on_sync;
  std::atomic<int> syncs = 0;

 private:
  class Handle final : public DurableTable {
   public:
    Handle(const OneTableStore& store, std::shared_ptr<PlainDurableTable> table)
        : store_(store), table_(std::move(table)) {}
    const TableSpec& spec() const override { return table_->spec(); }
    Incarnation incarnation() const override { return table_->incarnation(); }
    absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) override {
      return table_->Fetch(batch, deadline);
    }
    absl::Status Write(const DurableWrite& write) override { return table_->Write(write); }
    absl::StatusOr<std::vector<StreamPosition>> Positions() const override {
      return table_->Positions();
    }
    absl::StatusOr<std::unique_ptr<RowCursor>> Scan() const override { return table_->Scan(); }
    std::vector<uint16_t> UnorderedHashes() const override { return table_->UnorderedHashes(); }
    TableInfo Info() const override { return table_->Info(); }
    bool IsCurrent() const override { return store_.Current() == table_; }

   private:
    const OneTableStore& store_;
    const std::shared_ptr<PlainDurableTable> table_;
  };

  std::shared_ptr<PlainDurableTable> Current() const {
    MutexLock lock(mutex_);
    return table_;
  }

  const TableSpec spec_;
  mutable Mutex mutex_;
  Incarnation incarnation_ HPS_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<PlainDurableTable> table_ HPS_GUARDED_BY(mutex_);
};

class UpdateWorld {
 public:
  static constexpr uint32_t kDim = 2;
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  UpdateWorld() {
    caches_.push_back(WithFaults(*MakeHostCache({.bytes_max = 1 << 20}), &l1_faults));
    caches_.push_back(
        WithFaults(*MakeHostCache({.device = 1, .bytes_max = 1 << 20}), &other_l1_faults));
  }
  ~UpdateWorld() {
    live_ = nullptr;
    EXPECT_TRUE(registry.FindOrAdd("m").Publish({}).ok());
    executor_.RunAll();
  }

  // Makes the table's levels, and makes it live.
  void Load(bool has_second_part = false) {
    LiveTable::Parts parts;
    parts.l3 = *store.OpenTable("m/t");
    parts.l2.push_back({.table = WithFaults(std::make_unique<PlainLossyTable>(), &l2_faults)});
    if (has_second_part) {
      parts.l2.push_back(
          {.table = WithFaults(std::make_unique<PlainLossyTable>(), &second_l2_faults)});
    }
    live_ = std::make_shared<LiveTable>(std::move(parts));
    AttachL1(0);
    EXPECT_TRUE(registry.FindOrAdd("m").Publish({live_}).ok());
    executor_.RunAll();
  }
  // ... on a second device.
  void LoadOnTwoDevices() {
    Load();
    AttachL1(1);
  }
  LiveTable& live() { return *live_; }

  // Rows whose elements are all `value`.
  static std::vector<std::byte> Rows(size_t n, float value) {
    const std::vector<float> elements(n * kDim, value);
    std::vector<std::byte> rows(n * kRowBytes);
    if (!rows.empty()) std::memcpy(rows.data(), elements.data(), rows.size());
    return rows;
  }
  static HostRows View(std::vector<std::byte>& rows) {
    return {rows.data(), rows.size() / kRowBytes, kRowBytes, kRowBytes};
  }

  static absl::Status Upsert(TableApplier& applier, const std::vector<Key>& keys, float value) {
    return applier.ApplyDirect({.dim = kDim, .keys = keys, .rows = Rows(keys.size(), value)},
                               Soon());
  }
  static absl::Status Delete(TableApplier& applier, const std::vector<Key>& keys) {
    return applier.ApplyDirect({.keys = keys, .is_delete = true}, Soon());
  }
  static Deadline Soon() { return DeadlineAfter(RealClock(), std::chrono::seconds(30)); }

  // Copies what level 3 has of the keys to levels 2 and 1, as lookups would.
  void Promote(const std::vector<Key>& keys) {
    std::vector<std::byte> rows(keys.size() * kRowBytes);
    std::vector<FetchOutcome> outcomes(keys.size());
    std::vector<Version> versions(keys.size());
    const ApplyEpoch epoch = live_->epochs().published();
    const FetchBatch batch = {
        .keys = keys, .rows = View(rows), .outcomes = outcomes, .versions = versions};
    ASSERT_TRUE(live_->l3().Fetch(batch, kNoDeadline).ok());
    const RowBatch found = {.keys = keys, .rows = View(rows), .versions = versions};
    for (const L2Part& part : live_->l2()) ASSERT_TRUE(part.table().Insert(found, epoch).ok());
    for (size_t cache = 0; cache < caches_.size() && live_->l1(cache) != nullptr; ++cache) {
      ASSERT_TRUE(live_->l1(cache)->InsertIfAbsent(found, epoch).ok());
      ASSERT_TRUE(live_->l1(cache)->Flush(kNoDeadline).ok());
    }
  }

  // What a level has of a key: the first element of its row, kAbsent or kMissing.
  static constexpr float kAbsent = -1;
  static constexpr float kMissing = -2;
  float InL3(Key key) {
    return Read(key, [&](const FetchBatch& b) { return live_->l3().Fetch(b, kNoDeadline); });
  }
  float InL2(Key key, size_t part = 0) {
    return Read(
        key, [&](const FetchBatch& b) { return live_->l2()[part].table().Fetch(b, kNoDeadline); });
  }
  float InL1(Key key, size_t cache = 0) {
    std::vector<std::byte> row(kRowBytes);
    const DeviceCacheQuery query = {.table = live_->l1(cache),
                                    .keys = &key,
                                    .key_count = 1,
                                    .rows = row.data(),
                                    .row_bytes = kRowBytes,
                                    .row_stride_bytes = kRowBytes};
    const DeviceCallLease call = *caches_[cache]->AcquireCall(1);
    EXPECT_TRUE(call->Begin({&query, 1}, {}).ok());
    return call->Misses(kNoDeadline)->keys[0].empty() ? First(row) : kMissing;
  }

  OneTableStore store{TableSpec{.name = "m/t", .dim = kDim}};
  TierFaults l2_faults;
  TierFaults second_l2_faults;
  TierFaults l1_faults;
  TierFaults other_l1_faults;  // of the second device

 private:
  void AttachL1(size_t cache) {
    live_->AttachL1(cache, *caches_[cache]->OpenTable(kRowBytes, 64 << 10),
                    caches_[cache]->device());
  }
  template <typename Fetch>
  static float Read(Key key, const Fetch& fetch) {
    std::vector<std::byte> row(kRowBytes);
    FetchOutcome outcome = FetchOutcome::kMiss;
    EXPECT_TRUE(
        fetch(FetchBatch{.keys = {&key, 1}, .rows = View(row), .outcomes = {&outcome, 1}}).ok());
    if (outcome == FetchOutcome::kHit) return First(row);
    return outcome == FetchOutcome::kAbsent ? kAbsent : kMissing;
  }
  static float First(const std::vector<std::byte>& row) {
    float value = 0;
    std::memcpy(&value, row.data(), sizeof(value));
    return value;
  }

  EpochDomain domain_;
  ManualExecutor executor_;
  std::vector<std::unique_ptr<DeviceCache>> caches_;
  std::shared_ptr<LiveTable> live_;

 public:
  ModelRegistry registry{domain_, executor_};
};

}  // namespace hps
