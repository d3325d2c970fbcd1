// Sessions whose device reads missing rows from level 2's memory by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "testing/await.h"
#include "tests/query/test_direct_world.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr uint64_t kStamp = 4;
constexpr size_t kRows = 4000;
constexpr uint32_t kDim = 128;
constexpr size_t kRowBytes = kDim * sizeof(float);

class DirectSessionsTest : public DirectWorldTest {
 protected:
  void SetUp() override {
    DirectWorldTest::SetUp();
    if (IsSkipped()) return;
    fetch_ = *WorkerPool::Create({.name = "fetch", .thread_count = 2});
    promote_ = *WorkerPool::Create({.name = "promote"});
    SessionFactory::Options options;
    options.fetch_executor = fetch_.get();
    options.promote_executor = promote_.get();
    options.timeout = std::chrono::minutes(1);  // nothing degrades because a machine is busy
    options.caches = {cache_.get()};
    factory_ = *SessionFactory::Create(options);
    model_ = std::make_unique<LiveModel>("m", factory_->epoch_domain(), *promote_);
    // Level 3 has all rows, and level 2 all but the last tenth of them.
    const TableSpec spec{.name = "m/t", .dim = kDim};
    auto l3 = std::make_unique<PlainDurableTable>(spec, 1);
    StampedQuery rows(kStamp, KeysFrom(0, kRows), 1, kRowBytes);
    ASSERT_TRUE(l3->Write({.upserts = rows.batch()}).ok());
    LiveTable::Parts parts;
    parts.l3 = std::move(l3);
    parts.l2.push_back({.table = OpenLevel2(kStamp, kRowBytes, kRows + kRows / 8, kInLevel2)});
    if (has_second_part_) {
      second_faults_.set_can_block(true);
      parts.l2.push_back(
          {.table = WithFaults(std::make_unique<PlainLossyTable>(), &second_faults_)});
    }
    table_ = std::make_shared<LiveTable>(std::move(parts));
    table_->AttachL1(0, *cache_->OpenTable(kRowBytes, cache_->TableBytes(kRowBytes, kRows)));
    ASSERT_TRUE(model_->Publish({table_}).ok());
  }
  void TearDown() override {
    fetch_.reset();
    promote_.reset();
  }

  std::unique_ptr<LookupSession> NewSession(const SessionOptions& options = {.device = 0}) {
    return *factory_->NewSession(*model_, options);
  }

  // Calls in which the device did not answer everything by itself.
  uint64_t calls_with_pieces() const { return faults_.calls(TierOperation::kFinish); }

  void ExpectRows(const WorldAnswer& answer, const std::vector<Key>& keys, Version version = 1) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    for (size_t i = 0; i < keys.size(); ++i)
      ASSERT_TRUE(StampedRow::Matches(kStamp, keys[i], version, answer.row(i))) << keys[i];
  }

  // No reads of level 2 are left behind: the next ones get the same place.
  void ExpectNoReads() {
    const std::optional<size_t> reads = table_->l2_direct()->BeginDirectReads();
    ASSERT_TRUE(reads.has_value());
    table_->l2_direct()->EndDirectReads(*reads);
    EXPECT_EQ(reads, first_reads_.value_or(*reads));
    first_reads_ = reads;
  }

  void ClearLevel1() {
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    ASSERT_TRUE(table_->l1(0)->Clear().ok());
    ASSERT_TRUE(table_->l1(0)->Flush(kNoDeadline).ok());
  }

  static constexpr size_t kInLevel2 = kRows - kRows / 10;

  bool has_second_part_ = false;  // of level 2: empty, and not read by devices
  TierFaults second_faults_;

  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> model_;
  std::shared_ptr<LiveTable> table_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::optional<size_t> first_reads_;
};

TEST_F(DirectSessionsTest, MissesAreAnsweredWithoutTheHostAndPromoted) {
  const auto session = NewSession();
  ExpectNoReads();
  std::vector<Key> keys = KeysFrom(100, 300);
  keys.insert(keys.end(), {100, 101, 102});
  const WorldAnswer first = Ask(*session, keys);
  ExpectRows(first, keys);
  EXPECT_THAT(first.statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(first.counts[KeyStatus::kHitL2], keys.size());
  EXPECT_EQ(first.counts.total(), keys.size());
  EXPECT_EQ(calls_with_pieces(), 0u) << "the host has sent no row";
  ExpectNoReads();

  ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  ASSERT_TRUE(table_->l1(0)->Flush(kNoDeadline).ok());
  const WorldAnswer second = Ask(*session, keys);
  ExpectRows(second, keys);
  EXPECT_THAT(second.statuses, Each(KeyStatus::kHitL1));
  const std::vector<TableStatistics> statistics = model_->Statistics();
  EXPECT_EQ(statistics[0].keys[KeyStatus::kHitL2], keys.size());
  EXPECT_EQ(statistics[0].keys[KeyStatus::kHitL1], keys.size());
}

class DirectSessionsOfTwoPartsTest : public DirectSessionsTest {
 protected:
  DirectSessionsOfTwoPartsTest() { has_second_part_ = true; }
};

TEST_F(DirectSessionsOfTwoPartsTest, TheDeviceReadsTheFirstPart) {
  const auto session = NewSession();
  std::vector<Key> keys = KeysFrom(100, 300);
  const WorldAnswer first = Ask(*session, keys);
  ExpectRows(first, keys);
  EXPECT_THAT(first.statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(calls_with_pieces(), 0u) << "the host has sent no row";
  EXPECT_EQ(second_faults_.calls(TierOperation::kFetch), 0u);
  ExpectNoReads();
  StampedQuery rows(kStamp, {kRows - 2, kRows - 1}, 1, kRowBytes);
  ASSERT_TRUE(table_->l2()[1].table().Insert(rows.batch(), 0).ok());
  keys = {0, kRows - 1, 1, kRows - 3, -3, kRows - 2};
  const WorldAnswer mixed = Ask(*session, keys);
  EXPECT_THAT(mixed.statuses,
              testing::ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kHitL2,
                                   KeyStatus::kHitL3, KeyStatus::kAbsent, KeyStatus::kHitL2));
  for (const size_t i : {0, 1, 2, 3, 5})
    EXPECT_TRUE(StampedRow::Matches(kStamp, keys[i], 1, mixed.row(i))) << keys[i];
  EXPECT_EQ(second_faults_.calls(TierOperation::kFetch), 1u);
  ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  EXPECT_EQ(table_->l2()[0].table().Statistics().absent_entries, 1u) << "and the rows";
  ClearLevel1();
  keys = {0, kRows - 1, 1, kRows - 3, kRows - 2};
  EXPECT_THAT(Ask(*session, keys).statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(second_faults_.calls(TierOperation::kFetch), 1u);
}

TEST_F(DirectSessionsTest, WhatLevel2LacksComesFromLevel3AndTheHostIsAskedForAWhile) {
  const auto session = NewSession();
  ExpectNoReads();
  std::vector<Key> keys = KeysFrom(0, 100);
  keys[7] = kRows - 1;  // in level 3 only
  keys[9] = -3;         // nowhere
  const WorldAnswer answer = Ask(*session, keys);
  ASSERT_TRUE(answer.status.ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(answer.statuses[i], i == 7   ? KeyStatus::kHitL3
                                  : i == 9 ? KeyStatus::kAbsent
                                           : KeyStatus::kHitL2);
    if (i != 9) {
      ASSERT_TRUE(StampedRow::Matches(kStamp, keys[i], 1, answer.row(i)));
    }
  }
  ClearLevel1();
  keys = KeysFrom(0, 100);
  const uint64_t before = calls_with_pieces();
  ExpectRows(Ask(*session, keys), keys);
  EXPECT_GT(calls_with_pieces(), before) << "reads in vain are not tried again at once";
  ClearLevel1();
  const uint64_t then = calls_with_pieces();
  ExpectRows(Ask(*session, keys), keys);
  EXPECT_EQ(calls_with_pieces(), then) << "but later";
  ExpectNoReads();
}

TEST_F(DirectSessionsTest, WhileAChangeIsUnderWayTheHostAnswers) {
  const auto session = NewSession();
  const std::vector<Key> keys = KeysFrom(0, 50);
  const ApplyEpoch epoch = table_->epochs().Begin();
  ASSERT_TRUE(table_->l2()[0].table().RaiseWatermarks(keys, epoch, kNoDeadline).ok());
  ASSERT_TRUE(table_->l1(0)->RaiseWatermarks(keys, epoch, kNoDeadline).ok());
  StampedQuery rows(kStamp, keys, 2, kRowBytes);
  ASSERT_TRUE(table_->l3().Write({.upserts = rows.batch()}).ok());
  ASSERT_TRUE(table_->l2()[0].table().Update(rows.batch()).ok());
  const WorldAnswer during = Ask(*session, keys);
  ExpectRows(during, keys, 2);
  EXPECT_GT(calls_with_pieces(), 0u) << "level 1 must be asked again";
  table_->epochs().Publish(epoch);
  ClearLevel1();
  ExpectRows(Ask(*session, keys), keys, 2);
  ClearLevel1();
  const uint64_t before = calls_with_pieces();
  ExpectRows(Ask(*session, keys), keys, 2);
  EXPECT_EQ(calls_with_pieces(), before);
}

// A lookup that does not wait for its misses, one that names a table twice, one in pieces, and one
// of many misses are answered by the host, as without pinned memory.
TEST_F(DirectSessionsTest, WhatTheHostDoesBetterIsLeftToIt) {
  const std::vector<Key> keys = KeysFrom(0, 60);
  {
    const auto session = NewSession();
    const WorldAnswer pending = Ask(*session, keys, 0, {.hit_rate_threshold = 0.0});
    EXPECT_THAT(pending.statuses, Each(KeyStatus::kDefaultPending));
  }
  ClearLevel1();
  {
    const auto session = NewSession();
    std::vector<std::byte> first(keys.size() * kRowBytes), second(keys.size() * kRowBytes);
    const HostTableQuery queries[] = {{.keys = keys, .rows = first},
                                      {.keys = keys, .rows = second}};
    LookupCounts counts;
    ASSERT_TRUE(session->Lookup({.queries = queries}, &counts).ok());
    EXPECT_EQ(counts[KeyStatus::kHitL2], 2 * keys.size());
    for (const auto& rows : {first, second}) {
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_TRUE(StampedRow::Matches(kStamp, keys[i], 1,
                                        std::span(rows).subspan(i * kRowBytes, kRowBytes)));
      }
    }
  }
  ClearLevel1();
  {
    const auto session = NewSession({.device = 0, .keys_max = 100});
    const std::vector<Key> many = KeysFrom(0, 1000);
    ExpectRows(Ask(*session, many), many);
  }
  {
    const auto session = NewSession();
    ClearLevel1();
    const std::vector<Key> many = KeysFrom(0, 3000);
    ExpectRows(Ask(*session, many), many);  // the first one is a guess
    ClearLevel1();
    const uint64_t before = calls_with_pieces();
    ExpectRows(Ask(*session, many), many);
    EXPECT_GT(calls_with_pieces(), before);
  }
  ExpectNoReads();
}

// Catches: reads of level 2 that do not end, after which it runs out of slots.
TEST_F(DirectSessionsTest, ADeviceThatFailsLeavesNoReadsBehind) {
  const std::vector<Key> keys = KeysFrom(0, 60);
  ExpectNoReads();
  for (const TierOperation step :
       {TierOperation::kAcquireCall, TierOperation::kBegin, TierOperation::kMisses}) {
    for (const TierFault fault : {TierFault::kFail, TierFault::kFailLate}) {
      const auto session = NewSession();
      faults_.Plan(step, {.fault = fault, .status = absl::ResourceExhaustedError("planned")});
      const WorldAnswer answer = Ask(*session, keys);
      faults_.Clear();
      ExpectRows(answer, keys);
      EXPECT_THAT(answer.statuses, Each(KeyStatus::kHitL2));
      ExpectNoReads();
    }
  }
}

// Catches: rows that the host had fetched for a lookup that failed, sent for the next one, whose
// misses the device reads.
TEST_F(DirectSessionsTest, AFailedLookupLeavesNothingToADirectOne) {
  for (const TierFault fault : {TierFault::kFail, TierFault::kFailLate}) {
    ClearLevel1();
    const auto session = NewSession();
    std::vector<Key> lacking = KeysFrom(0, 50);
    lacking[7] = kRows - 1;  // in level 3 only: reads in vain, so that the host is next
    ExpectRows(Ask(*session, lacking), lacking);
    const std::vector<Key> failing = KeysFrom(500, 200);
    faults_.Plan(TierOperation::kMisses,
                 {.fault = fault, .status = absl::ResourceExhaustedError("planned")});
    ExpectRows(Ask(*session, failing), failing);
    faults_.Clear();
    const uint64_t before = calls_with_pieces();
    const std::vector<Key> keys = KeysFrom(1000, 300);
    const WorldAnswer answer = Ask(*session, keys);
    ExpectRows(answer, keys);
    EXPECT_THAT(answer.statuses, Each(KeyStatus::kHitL2));
    EXPECT_EQ(answer.counts[KeyStatus::kHitL2], keys.size());
    EXPECT_EQ(calls_with_pieces(), before) << "the device has answered, and the host sent nothing";
    ExpectNoReads();
  }
}

// Takes note of memory that is to be pinned, and pins none.
class NotingPinner final : public HostMemoryPinner {
 public:
  void Pin(PinnedRegion& region) override { regions.push_back(&region); }
  bool Unpin(PinnedRegion& region) override { return std::erase(regions, &region) == 1; }

  std::vector<PinnedRegion*> regions;
};

// Catches: an unload that has memory pinned of tables which it is about to free.
TEST_F(DirectSessionsTest, TablesOfAnUnloadedModelAreNotPinnedAnyMore) {
  NotingPinner pinner;
  const MemoryTierOptions options{.huge_pages = false, .pinner = &pinner};
  const auto tier = MakeMemoryTier(options);
  EpochDomain domain;
  ManualExecutor reclaim;
  LiveModel model("n", domain, reclaim);
  std::vector<std::shared_ptr<LiveTable>> tables;
  for (const char* const name : {"n/a", "n/b"}) {
    const TableSpec spec{.name = name, .dim = kDim};
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<PlainDurableTable>(spec, 1);
    parts.l2.push_back(
        {.table = *tier->OpenTable(spec, 1, MemoryTierBytesFor(kRows, kRowBytes, options))});
    StampedQuery rows(kStamp, KeysFrom(0, kRows), 1, kRowBytes);
    ASSERT_TRUE(parts.l2[0].table->Insert(rows.batch(), 0).ok());
    tables.push_back(std::make_shared<LiveTable>(std::move(parts)));
  }
  ASSERT_EQ(pinner.regions.size(), 2u);
  const std::shared_ptr<LiveTable> kept = tables[1];
  ASSERT_TRUE(model.Publish(std::move(tables)).ok());
  ASSERT_TRUE(model.Publish({kept}).ok());
  EXPECT_FALSE(pinner.regions[0]->wanted);
  EXPECT_TRUE(pinner.regions[1]->wanted);
  model.Unload();
  EXPECT_FALSE(pinner.regions[1]->wanted);
  reclaim.RunAll();
  EXPECT_EQ(pinner.regions.size(), 1u) << "one is kept here";
}

// Lookups on several threads, with outputs in both memories, while rows change, level 2 evicts
// and is cleared, and level 1 is emptied again and again: no torn row, none of another key, none
// that is older than a change that had ended before the lookup, or than one seen before.
class DirectSessionsConcurrencyTest : public DirectSessionsTest {
 protected:
  void Change() {
    std::mt19937_64 random(7);
    const Deadline deadline = DeadlineAfter(RealClock(), kWaitMax);
    for (uint64_t round = 1; reading_ > 0; ++round) {
      const std::vector<Key> keys =
          KeysFrom(static_cast<Key>(random() % (kRows - 40)), 1 + random() % 40);
      StampedQuery rows(kStamp, keys, ++version_, kRowBytes);
      const ApplyEpoch epoch = table_->epochs().Begin();
      EXPECT_TRUE(table_->l2()[0].table().RaiseWatermarks(keys, epoch, deadline).ok());
      EXPECT_TRUE(table_->l1(0)->RaiseWatermarks(keys, epoch, deadline).ok());
      EXPECT_TRUE(table_->l3().Write({.upserts = rows.batch()}).ok());
      if (round % 16 == 0) {
        EXPECT_TRUE(table_->l2()[0].table().Erase(keys).ok());
      } else {
        EXPECT_TRUE(table_->l2()[0].table().Update(rows.batch()).ok());
      }
      EXPECT_TRUE(table_->l1(0)->Update(rows.batch(), deadline).ok());
      EXPECT_TRUE(table_->l1(0)->Flush(deadline).ok());
      table_->epochs().Publish(epoch);
      table_->l1_health(0).NoteApplied(epoch);
      for (const Key key : keys) ended_[static_cast<size_t>(key)].store(version_);
      const absl::Status cleared[] = {
          round % 8 == 0 ? table_->l1(0)->Clear() : absl::OkStatus(),
          round % 5000 == 0 ? table_->l2()[0].table().Clear() : absl::OkStatus()};
      EXPECT_THAT(cleared, Each(absl::OkStatus()));
      // If a change were always under way, the host would answer everything.
      const uint64_t lookups = lookups_;
      while (reading_ > 0 && lookups_ < lookups + kLookupsPerChange) std::this_thread::yield();
    }
  }

  // On the device, rows and keys are in its memory.
  void Read(uint64_t seed, bool on_device) {
    constexpr size_t kKeys = 200;
    const auto session = NewSession();
    std::mt19937_64 random(seed);
    std::vector<Version> seen(kRows);
    std::vector<std::byte> rows(kKeys * kRowBytes);
    std::byte* const device_keys = memory_->Allocate(kKeys * sizeof(Key));
    std::byte* const device_rows = memory_->Allocate(rows.size());
    const TimePoint end = RealClock().Now() + kWaitMax;
    for (uint64_t read = 0; read < RowsToRead() / 4 && !HasFatalFailure(); read += kKeys) {
      ASSERT_TRUE(RealClock().Now() < end ? testing::AssertionSuccess() : MissedWait(kWaitMax))
          << read << " rows";
      std::vector<Key> keys(kKeys);
      for (Key& key : keys) key = static_cast<Key>(random() % kInLevel2);
      std::vector<Version> ended;
      for (const Key key : keys) ended.push_back(ended_[static_cast<size_t>(key)].load());
      LookupCounts counts;
      if (on_device) {
        memory_->CopyIn(device_keys, std::as_bytes(std::span(keys)));
        const DeviceTableQuery query{
            .keys = {static_cast<const Key*>(static_cast<const void*>(device_keys)), kKeys},
            .rows = {device_rows, rows.size()}};
        const absl::Status status =
            session->Lookup(DeviceLookupRequest{.queries = {&query, 1}}, &counts);
        ASSERT_TRUE(status.ok()) << status;
        memory_->CopyOut(rows, device_rows);
      } else {
        const HostTableQuery query{.keys = keys, .rows = rows};
        const absl::Status status = session->Lookup({.queries = {&query, 1}}, &counts);
        ASSERT_TRUE(status.ok()) << status;
      }
      ASSERT_EQ(counts[KeyStatus::kHitL1] + counts[KeyStatus::kHitL2] + counts[KeyStatus::kHitL3],
                kKeys);
      from_level2_ += counts[KeyStatus::kHitL2];
      ++lookups_;
      std::vector<Version> now = seen;
      for (size_t i = 0; i < kKeys; ++i) {
        const std::optional<Version> version = StampedRow::VersionOf(
            kStamp, keys[i], std::span(rows).subspan(i * kRowBytes, kRowBytes));
        const auto key = static_cast<size_t>(keys[i]);
        ASSERT_TRUE(version.has_value()) << "torn, or another key's: " << key;
        ASSERT_GE(*version, ended[i]) << "older than a change that had ended: " << key;
        ASSERT_GE(*version, seen[key]) << "went back: " << key;
        now[key] = std::max(now[key], *version);
      }
      seen = std::move(now);
    }
    memory_->Free(device_keys);
    memory_->Free(device_rows);
  }

  static constexpr uint64_t kLookupsPerChange = 6;

  std::atomic<size_t> reading_{0};
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> from_level2_{0};
  Version version_ = 1;
  std::vector<std::atomic<Version>> ended_{std::vector<std::atomic<Version>>(kRows)};
};

TEST_F(DirectSessionsConcurrencyTest, RowsAreWholeAndNeverOlder) {
  constexpr size_t kReaders = 4;
  reading_ = kReaders;
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&, reader] {
      Read(reader + 1, reader % 2 == 0);
      --reading_;
    });
  }
  Change();
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(from_level2_, 0u);
  ExpectNoReads();
}

}  // namespace
}  // namespace hps
