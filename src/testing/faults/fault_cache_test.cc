#include "testing/faults/fault_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

using Calls = std::vector<std::string>;

constexpr size_t kRowBytes = 32;

// Records its calls, and does nothing.
class NotingTable final : public DeviceCacheTable {
 public:
  explicit NotingTable(Calls* calls) : calls_(calls) {}

  size_t row_bytes() const override { return kRowBytes; }
  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch&, ApplyEpoch epoch) override {
    calls_->emplace_back("InsertIfAbsent");
    return epoch;
  }
  absl::Status Update(const RowBatch&, Deadline) override { return Note("Update"); }
  absl::Status UpdateFrom(size_t, const FillUpdate&, Deadline) override {
    return Note("UpdateFrom");
  }
  absl::Status Erase(std::span<const Key>, Deadline) override { return Note("Erase"); }
  absl::Status RaiseWatermarks(std::span<const Key>, ApplyEpoch, Deadline) override {
    return Note("RaiseWatermarks");
  }
  absl::StatusOr<size_t> Dump(uint64_t*, std::span<Key> out, Deadline) override {
    calls_->emplace_back("Dump");
    return out.size();
  }
  absl::Status Clear() override { return Note("Clear"); }
  absl::Status Flush(Deadline) override { return Note("Flush"); }
  LevelStatistics Statistics() const override { return {.entries = 7}; }

 private:
  absl::Status Note(const std::string& call) {
    calls_->push_back(call);
    return absl::OkStatus();
  }

  Calls* const calls_;
};

// The same for a call; it records the tables of its queries.
class NotingCall final : public DeviceCall {
 public:
  explicit NotingCall(Calls* calls) : calls_(calls) {}

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream) override {
    tables.clear();
    for (const DeviceCacheQuery& query : queries) tables.push_back(query.table);
    return Note("Begin");
  }
  DeviceMissesSoFar Peek(size_t) override { return {.probed = true}; }
  absl::StatusOr<DeviceMisses> Misses(Deadline) override {
    calls_->emplace_back("Misses");
    return DeviceMisses{};
  }
  HostRows Staging(size_t, size_t row_count) override { return {.row_count = row_count}; }
  absl::Status CopyAhead(const HostRows&) override { return Note("CopyAhead"); }
  absl::Status Finish(std::span<const DeviceRowPiece>) override { return Note("Finish"); }
  absl::Status ConvertToFloat32() override { return Note("ConvertToFloat32"); }
  absl::Status Wait(Deadline) override { return Note("Wait"); }
  LookupCounts counts(size_t) const override { return {}; }
  void Return() override { calls_->emplace_back("Return"); }

  std::vector<const DeviceCacheTable*> tables;

 private:
  absl::Status Note(const std::string& call) {
    calls_->push_back(call);
    return absl::OkStatus();
  }

  Calls* const calls_;
};

class NotingCache final : public DeviceCache {
 public:
  explicit NotingCache(Calls* calls) : call(calls), calls_(calls) {}

  int device() const override { return 3; }
  uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const override {
    return row_bytes * row_count;
  }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t, uint64_t) override {
    calls_->emplace_back("OpenTable");
    auto table = std::make_unique<NotingTable>(calls_);
    opened = table.get();
    return table;
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t) override {
    calls_->emplace_back("AcquireCall");
    return DeviceCallLease(&call);
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t) override {
    calls_->emplace_back("AcquireCallAhead");
    return DeviceCallLease(&call);
  }
  absl::Status PinHostMemory(std::span<std::byte>) override {
    return absl::UnimplementedError("reads no memory");
  }
  void UnpinHostMemory(std::span<std::byte>) override {}
  bool AwaitReturnedCalls() override { return true; }

  NotingCall call;
  const DeviceCacheTable* opened = nullptr;

 private:
  Calls* const calls_;
};

class FaultyCacheTest : public testing::Test {
 protected:
  FaultyCacheTest() {
    auto real = std::make_unique<NotingCache>(&calls_);
    real_ = real.get();
    cache_ = WithFaults(std::move(real), &faults_);
    table_ = *cache_->OpenTable(kRowBytes, 1 << 20);
    calls_.clear();
  }

  // Calls every operation of the table.
  std::vector<absl::Status> DoAll(Deadline deadline = kNoDeadline) {
    uint64_t cursor = 0;
    return {table_->InsertIfAbsent({}, 5).status(),
            table_->Update({}, deadline),
            table_->UpdateFrom(1, {}, deadline),
            table_->Erase({}, deadline),
            table_->RaiseWatermarks({}, 5, deadline),
            table_->Dump(&cursor, {}, deadline).status(),
            table_->Clear(),
            table_->Flush(deadline)};
  }
  void PlanAll(TierFault fault) {
    for (size_t i = 0; i < kTierOperationCount; ++i)
      faults_.Plan(static_cast<TierOperation>(i), {.fault = fault});
  }

  const Calls all_ = {"InsertIfAbsent",  "Update", "UpdateFrom", "Erase",
                      "RaiseWatermarks", "Dump",   "Clear",      "Flush"};
  Calls calls_;
  ManualExecutor executor_;
  TierFaults faults_{&executor_};
  NotingCache* real_ = nullptr;
  std::unique_ptr<DeviceCache> cache_;
  std::unique_ptr<DeviceCacheTable> table_;
};

TEST_F(FaultyCacheTest, ChangesNothingWithoutAPlan) {
  for (const absl::Status& status : DoAll()) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls_, all_);
  EXPECT_EQ(*table_->InsertIfAbsent({}, 5), 5u);
  std::vector<Key> keys(33);
  uint64_t cursor = 0;
  EXPECT_EQ(*table_->Dump(&cursor, keys, kNoDeadline), keys.size());
  EXPECT_EQ(table_->row_bytes(), kRowBytes);
  EXPECT_EQ(table_->Statistics().entries, 7u);
  EXPECT_EQ(cache_->device(), 3);
  EXPECT_EQ(cache_->TableBytes(4, 5), 20u);
}

TEST_F(FaultyCacheTest, FailsBeforeAnythingIsDone) {
  PlanAll(TierFault::kFail);
  for (const absl::Status& status : DoAll()) EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::IsUnavailable(cache_->OpenTable(kRowBytes, 1 << 20).status()));
  EXPECT_TRUE(absl::IsUnavailable(cache_->AcquireCall(1).status()));
  EXPECT_EQ(calls_, Calls{});
}

TEST_F(FaultyCacheTest, FailsWhenAllIsDone) {
  PlanAll(TierFault::kFailLate);
  for (const absl::Status& status : DoAll()) EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(calls_, all_);
  calls_.clear();
  EXPECT_TRUE(absl::IsUnavailable(cache_->AcquireCall(1).status()));
  EXPECT_EQ(calls_, (Calls{"AcquireCall", "Return"}));  // the lease is not lost
}

TEST_F(FaultyCacheTest, LeavesChangesOutAndReportsSuccess) {
  PlanAll(TierFault::kDrop);
  for (const absl::Status& status : DoAll()) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls_, (Calls{"InsertIfAbsent", "Dump", "Flush"}));
}

TEST_F(FaultyCacheTest, DoesNothingWhenTheDeadlineIsBeforeTheRelease) {
  PlanAll(TierFault::kDelay);
  const Deadline deadline = DeadlineAfter(executor_.clock(), std::chrono::milliseconds(1));
  uint64_t cursor = 0;
  for (const absl::Status& status :
       {table_->Update({}, deadline), table_->Erase({}, deadline),
        table_->RaiseWatermarks({}, 5, deadline), table_->Dump(&cursor, {}, deadline).status(),
        table_->Flush(deadline)}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
  EXPECT_EQ(calls_, Calls{});
}

TEST_F(FaultyCacheTest, AsksTheCallAboutTheTablesBelow) {
  DeviceCallLease call = *cache_->AcquireCall(1);
  std::vector<DeviceCacheQuery> queries(2);
  queries[0].table = table_.get();  // and none in the other
  ASSERT_TRUE(call->Begin(queries, {}).ok());
  EXPECT_EQ(real_->call.tables, (std::vector<const DeviceCacheTable*>{real_->opened, nullptr}));
  EXPECT_TRUE(call->Misses(kNoDeadline).ok());
  EXPECT_EQ(call->Staging(0, 31).row_count, 31u);
  EXPECT_TRUE(call->Finish({}).ok());
  EXPECT_TRUE(call->Wait(kNoDeadline).ok());
  call.reset();
  EXPECT_EQ(calls_, (Calls{"AcquireCall", "Begin", "Misses", "Finish", "Wait", "Return"}));
}

TEST_F(FaultyCacheTest, FailsTheStepsOfACall) {
  DeviceCallLease call = *cache_->AcquireCall(1);
  PlanAll(TierFault::kFail);
  EXPECT_TRUE(absl::IsUnavailable(call->Begin({}, {})));
  EXPECT_TRUE(absl::IsUnavailable(call->Misses(kNoDeadline).status()));
  EXPECT_TRUE(absl::IsUnavailable(call->Finish({})));
  EXPECT_TRUE(absl::IsUnavailable(call->Wait(kNoDeadline)));
  EXPECT_EQ(calls_, Calls{"AcquireCall"});
  faults_.Clear();
  EXPECT_TRUE(call->Wait(kNoDeadline).ok());
  call.reset();
  EXPECT_EQ(calls_, (Calls{"AcquireCall", "Wait", "Return"}));
}

}  // namespace
}  // namespace hps
