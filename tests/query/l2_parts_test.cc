// Lookups over a level 2 of two parts: one that can't block, as memory, and then one that can, as
// Redis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "query/test_query_world.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;

constexpr uint64_t kStamp = 1;
constexpr size_t kRowBytes = 32;

std::vector<Key> Range(size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

// A table whose keys 0 to 39 are in level 3, asked on a device or on the host.
class L2PartsWorldTest : public testing::Test {
 protected:
  explicit L2PartsWorldTest(bool on_device) : on_device_(on_device) { Serve({}); }

  void Serve(WorldTableOptions options, const World::Options& world = {}) {
    session_.reset();
    world_.reset();
    options.keys = Range(40);
    options.has_second = options.has_l2;
    world_ = std::make_unique<World>(0, std::vector<DeviceCache*>{cache_.get()}, world);
    table_ = std::make_unique<WorldTable>(MakeWorldTable(options, &executor()));
    if (on_device()) {
      table_->served->AttachL1(0,
                               *cache_->OpenTable(kRowBytes, cache_->TableBytes(kRowBytes, 100)));
    }
    world_->Publish({table_.get()});
    session_ = world_->NewSession(on_device() ? SessionOptions{.device = 0} : SessionOptions());
    executor().RunAll();
  }
  ~L2PartsWorldTest() override {
    session_.reset();
    world_.reset();
  }

  bool on_device() const { return on_device_; }
  ManualExecutor& executor() { return world_->executor(); }
  L2Part& part(size_t number) { return table_->served->l2()[number]; }

  void Insert(LossyTable& part, const std::vector<Key>& keys, Version version = 0) {
    StampedQuery rows(kStamp, keys, version, kRowBytes);
    ASSERT_TRUE(part.Insert(rows.batch(), table_->served->epochs().begun()).ok());
  }
  // The version of a key in a part; -1: it is not there.
  static int64_t VersionIn(LossyTable& part, Key key) {
    FetchOutcome outcome = FetchOutcome::kMiss;
    Version version = 0;
    std::vector<std::byte> row(kRowBytes);
    EXPECT_TRUE(part.Fetch({.keys = {&key, 1},
                            .rows = {row.data(), 1, kRowBytes, kRowBytes},
                            .outcomes = {&outcome, 1},
                            .versions = {&version, 1}},
                           kNoDeadline)
                    .ok());
    if (outcome != FetchOutcome::kHit) return -1;
    EXPECT_TRUE(StampedRow::Matches(kStamp, key, version, row));
    return static_cast<int64_t>(version);
  }
  bool IsIn(LossyTable& part, Key key) { return VersionIn(part, key) >= 0; }

  WorldAnswer Lookup(const std::vector<Key>& keys, HostLookupRequest request = {},
                     Version version = 0) {
    const WorldAnswer answer = Ask(*session_, keys, 0, std::move(request));
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    for (size_t i = 0; i < keys.size(); ++i) {
      const KeyStatus status = answer.statuses[i];
      if (status < KeyStatus::kHitL1 || status > KeyStatus::kHitL3) continue;
      EXPECT_TRUE(StampedRow::Matches(kStamp, keys[i], version, answer.row(i)))
          << "key " << keys[i];
    }
    return answer;
  }

  const bool on_device_;
  const std::unique_ptr<DeviceCache> cache_ =
      *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20, .call_keys_max = 256});
  std::unique_ptr<WorldTable> table_;
  std::unique_ptr<World> world_;
  std::unique_ptr<LookupSession> session_;
};

class L2PartsTest : public L2PartsWorldTest, public testing::WithParamInterface<bool> {
 protected:
  L2PartsTest() : L2PartsWorldTest(GetParam()) {}
};

// On the host a lookup asks level 2 itself.
class L2PartsInBackgroundTest : public L2PartsWorldTest {
 protected:
  L2PartsInBackgroundTest() : L2PartsWorldTest(/*on_device=*/true) {}
};

INSTANTIATE_TEST_SUITE_P(, L2PartsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "OnDevice" : "OnHost"; });

// Whatever the second part does: while the executor is held, no task runs.
TEST_P(L2PartsTest, WhatTheFirstPartHasPostsNoTask) {
  Insert(*table_->l2, Range(40));
  for (const size_t count : {1, 40}) {
    if (on_device()) {
      ASSERT_TRUE(table_->served->l1(0)->Clear().ok());
    }
    executor().Hold(true);
    EXPECT_THAT(Lookup(Range(count)).statuses, Each(KeyStatus::kHitL2));
    EXPECT_EQ(executor().queued_count(), on_device() ? 1u : 0u) << "a promotion into level 1";
    EXPECT_EQ(table_->second_log->fetches, 0u);
    executor().Hold(false);
    executor().RunAll();
  }
}

TEST_P(L2PartsTest, WhatTheFirstPartLacksComesFromTheSecond) {
  Insert(*table_->l2, {1, 2});
  Insert(*table_->second, {2, 3, 4});
  const WorldAnswer answer = Lookup({1, 2, 3, 4, 5, 3, 99});
  EXPECT_THAT(answer.statuses, ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kHitL2,
                                           KeyStatus::kHitL2, KeyStatus::kHitL3, KeyStatus::kHitL2,
                                           KeyStatus::kAbsent));
  EXPECT_EQ(table_->second_log->keys_fetched, 4u) << "3, 4, 5 and 99, each once";
  EXPECT_EQ(table_->l3_log->keys_fetched, 2u) << "5 and 99";
  executor().RunAll();
  for (const Key key : {1, 2, 3, 4, 5}) EXPECT_TRUE(IsIn(*table_->l2, key)) << key;
  EXPECT_TRUE(IsIn(*table_->second, 5));
  EXPECT_FALSE(IsIn(*table_->second, 1)) << "found above it";
  EXPECT_EQ(table_->l2->Statistics().absent_entries, 1u);
  EXPECT_EQ(table_->second->Statistics().absent_entries, 1u);
  const uint64_t fetches = table_->second_log->fetches;
  EXPECT_THAT(Lookup({1, 2, 3, 4, 5}).statuses,
              Each(on_device() ? KeyStatus::kHitL1 : KeyStatus::kHitL2));
  EXPECT_EQ(table_->second_log->fetches, fetches);
}

TEST_P(L2PartsTest, AnAbsentEntryOfTheSecondPartIsCopied) {
  StampedQuery rows(kStamp, {77}, 0, kRowBytes);
  const uint8_t absent = 1;
  RowBatch batch = rows.batch();
  batch.absent = {&absent, 1};
  ASSERT_TRUE(table_->second->Insert(batch, 0).ok());
  EXPECT_EQ(Lookup({77}).statuses[0], KeyStatus::kAbsent);
  EXPECT_EQ(table_->l3_log->fetches, 0u);
  executor().RunAll();
  EXPECT_EQ(table_->l2->Statistics().absent_entries, 1u);
}

TEST_P(L2PartsTest, ATableThatIsNamedTwiceAsksForEachKeyOnce) {
  Insert(*table_->l2, {1});
  Insert(*table_->second, {2});
  const std::vector<Key> keys = {1, 2, 3};
  std::vector<std::vector<std::byte>> rows(2, std::vector<std::byte>(3 * kRowBytes));
  std::vector<std::vector<KeyStatus>> statuses(2, std::vector<KeyStatus>(3));
  std::vector<HostTableQuery> queries;
  for (size_t i = 0; i < 2; ++i)
    queries.push_back({.keys = keys, .rows = rows[i], .status = statuses[i]});
  ASSERT_TRUE(session_->Lookup({.queries = queries}, nullptr).ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_THAT(statuses[i], ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kHitL3));
    for (size_t k = 0; k < 3; ++k)
      EXPECT_TRUE(StampedRow::Matches(kStamp, keys[k], 0, std::span(rows[i]).subspan(k * 32, 32)));
  }
  EXPECT_EQ(table_->second_log->keys_fetched, 2u);
  EXPECT_EQ(table_->l3_log->keys_fetched, 1u);
}

TEST_P(L2PartsTest, ASecondPartThatHangsCostsOnlyWhatTheFirstLacks) {
  Insert(*table_->l2, {1});
  Insert(*table_->second, {2, 3});
  const ApplyEpoch open = table_->served->epochs().Begin();
  table_->second_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kDelay});
  for (const auto& [key, waited] :
       {std::pair(Key{2}, milliseconds(50)), std::pair(Key{3}, milliseconds(0))}) {
    const TimePoint before = executor().clock().Now();
    EXPECT_THAT(
        Lookup({1, key}, {.timeout = milliseconds(100)}).statuses,
        ElementsAre(testing::AnyOf(KeyStatus::kHitL1, KeyStatus::kHitL2), KeyStatus::kHitL3));
    EXPECT_EQ(executor().clock().Now() - before, waited) << "then it is bypassed";
  }
  EXPECT_EQ(world_->statistics().tables[0].l2.errors, 1u);
  EXPECT_TRUE(world_->statistics().tables[0].l2_bypassed);
  EXPECT_TRUE(part(1).health().quarantined());
  EXPECT_FALSE(part(0).health().quarantined());
  EXPECT_FALSE(part(0).breaker().is_open());
  table_->served->epochs().Publish(open);
}

TEST_P(L2PartsTest, AFirstPartThatFailsLeavesItToTheSecond) {
  Insert(*table_->l2, {1, 2});
  Insert(*table_->second, {1, 2});
  const ApplyEpoch open = table_->served->epochs().Begin();
  table_->l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kFail, .times = 1});
  EXPECT_EQ(Lookup({1}).statuses[0], KeyStatus::kHitL2);
  EXPECT_EQ(Lookup({2}).statuses[0], KeyStatus::kHitL2) << "the first one is in quarantine";
  EXPECT_EQ(table_->second_log->keys_fetched, 2u);
  EXPECT_EQ(table_->l3_log->fetches, 0u);
  EXPECT_TRUE(part(0).health().quarantined());
  EXPECT_FALSE(part(1).health().quarantined());
  table_->served->epochs().Publish(open);
}

// An insertion that was under way when the change began puts the older row into the first part
// after the lookup has missed there; the second part has the newer row. The next lookup would go
// back.
TEST_P(L2PartsTest, TheFirstPartIsAskedAgainWhereAChangeBegan) {
  ApplyEpochs& epochs = table_->served->epochs();
  Insert(*table_->second, {5});
  ApplyEpoch open = 0;
  table_->second_faults->Plan(
      TierOperation::kFetch,
      {.fault = TierFault::kNone, .times = 1, .before = [&] {
         Insert(*table_->l2, {5});
         open = epochs.Begin();
         StampedQuery newer(kStamp, {5}, 1, kRowBytes);
         const Key key = 5;
         for (LossyTable* part : {table_->l2, table_->second})
           ASSERT_TRUE(part->RaiseWatermarks({&key, 1}, open, kNoDeadline).ok());
         ASSERT_EQ(*table_->second->Update(newer.batch()), 1u);
       }});
  EXPECT_EQ(Lookup({5}).statuses[0], KeyStatus::kHitL2) << "version 0";
  EXPECT_EQ(Lookup({5}).statuses[0], KeyStatus::kHitL2) << "version 0";
  StampedQuery newer(kStamp, {5}, 1, kRowBytes);
  ASSERT_EQ(*table_->l2->Update(newer.batch()), 1u);
  epochs.Publish(open);
}

// The row was fetched before the change, or may have been.
TEST_P(L2PartsTest, ACopyOlderThanAChangeIsRefused) {
  ApplyEpochs& epochs = table_->served->epochs();
  Insert(*table_->second, {5});
  table_->second_faults->Plan(
      TierOperation::kFetch,
      {.fault = TierFault::kNone, .times = 1, .before = [&] {
         const Key key = 5;
         const ApplyEpoch open = epochs.Begin();
         ASSERT_TRUE(table_->l2->RaiseWatermarks({&key, 1}, open, kNoDeadline).ok());
         epochs.Publish(open);
       }});
  EXPECT_EQ(Lookup({5}).statuses[0], KeyStatus::kHitL2);
  executor().RunAll();
  EXPECT_FALSE(IsIn(*table_->l2, 5));
  if (on_device()) {
    ASSERT_TRUE(table_->served->l1(0)->Clear().ok());
  }
  EXPECT_EQ(Lookup({5}).statuses[0], KeyStatus::kHitL2);
  executor().RunAll();
  EXPECT_TRUE(IsIn(*table_->l2, 5));
}

// A call that does not wait: its keys are fetched from one part after the other, and then from
// level 3.
TEST_P(L2PartsTest, ABackgroundFetchGoesThroughTheParts) {
  Insert(*table_->l2, {1});
  Insert(*table_->second, {2});
  const HostLookupRequest in_background{.hit_rate_threshold = 0.0};
  const WorldAnswer answer = Lookup({1, 2, 3}, in_background);
  if (on_device()) {
    EXPECT_THAT(answer.statuses, Each(KeyStatus::kDefaultPending));
  } else {
    EXPECT_THAT(answer.statuses,
                ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kDefaultPending));
  }
  executor().RunAll();
  EXPECT_EQ(table_->second_log->keys_fetched, 2u);
  EXPECT_EQ(table_->l3_log->keys_fetched, 1u);
  EXPECT_THAT(Lookup({1, 2, 3}).statuses,
              Each(on_device() ? KeyStatus::kHitL1 : KeyStatus::kHitL2));
  for (const Key key : {2, 3}) EXPECT_TRUE(IsIn(*table_->l2, key)) << key;
}

struct NothingTask final : public Task {
  void Run() override {}
};

// Each step of the fetch finds the queue full, and runs where it is.
TEST_F(L2PartsInBackgroundTest, AFetchThatFindsTheQueueFullGoesOnByItself) {
  Serve({}, {.queue_max = 2});
  Insert(*table_->second, {2});
  NothingTask others[2];
  for (const auto& faults : {table_->l2_faults.get(), table_->second_faults.get()}) {
    faults->Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .times = 1, .before = [&] {
                                           for (Task& other : others)
                                             executor().Post(&other).IgnoreError();
                                         }});
  }
  EXPECT_THAT(Lookup({2, 3}, {.hit_rate_threshold = 0.0}).statuses,
              Each(KeyStatus::kDefaultPending));
  executor().RunOne();
  EXPECT_THAT(Lookup({2, 3}).statuses, Each(KeyStatus::kHitL1));
  EXPECT_EQ(world_->statistics().promotions_dropped, 0u);
  executor().RunAll();
}

// Catches: a part that is never used again where no lookup waits for it.
TEST_F(L2PartsInBackgroundTest, AFetchThatProbesAPartClosesItsBreaker) {
  Insert(*table_->second, {2});
  part(1).breaker().NoteFailure(executor().clock().Now());
  executor().manual_clock().Advance(CircuitBreaker::kRest);
  EXPECT_THAT(Lookup({2}, {.hit_rate_threshold = 0.0}).statuses, Each(KeyStatus::kDefaultPending));
  executor().RunAll();
  EXPECT_EQ(table_->second_log->fetches, 1u);
  EXPECT_FALSE(part(1).breaker().is_open());
}

// A part that is bypassed is left out.
TEST_F(L2PartsInBackgroundTest, AFetchPassesAPartThatIsBypassed) {
  part(1).breaker().NoteFailure(executor().clock().Now());
  EXPECT_THAT(Lookup({2}, {.hit_rate_threshold = 0.0}).statuses, Each(KeyStatus::kDefaultPending));
  executor().RunAll();
  EXPECT_EQ(table_->second_log->fetches, 0u);
  EXPECT_FALSE(IsIn(*table_->second, 2)) << "its breaker is open";
  EXPECT_TRUE(IsIn(*table_->l2, 2));
  EXPECT_THAT(Lookup({2}).statuses, Each(KeyStatus::kHitL1));
}

}  // namespace
}  // namespace hps
