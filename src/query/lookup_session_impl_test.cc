#include "query/lookup_session_impl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "query/test_served_world.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr auto kTimeoutZero = Duration::zero();

std::vector<Key> Range(Key first, size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

bool IsRow(const WorldAnswer& answer, size_t i, uint64_t stamp, Key key, Version version = 0) {
  return StampedRow::Matches(stamp, key, version, answer.row(i));
}

bool IsZero(std::span<const std::byte> row) {
  return std::all_of(row.begin(), row.end(), [](std::byte b) { return b == std::byte{0}; });
}

class LookupSessionTest : public ServedWorldTest {
 protected:
  WorldTable& Make(WorldTableOptions options) {
    if (options.keys.empty()) options.keys = Range(0, 100);
    return Add(options, nullptr);
  }
};

TEST_F(LookupSessionTest, L3AnswersThenL2DoesAndAbsenceIsRemembered) {
  const WorldTable& a = Make({});
  Serve(a);
  const std::vector<Key> keys = {7, 1000, 3, 7, -1, 1000};
  const WorldAnswer first = Ask(*session_, keys);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_THAT(first.statuses,
              ElementsAre(KeyStatus::kHitL3, KeyStatus::kAbsent, KeyStatus::kHitL3,
                          KeyStatus::kHitL3, KeyStatus::kAbsent, KeyStatus::kAbsent));
  EXPECT_TRUE(IsRow(first, 0, 1, 7) && IsRow(first, 2, 1, 3) && IsRow(first, 3, 1, 7));
  EXPECT_TRUE(IsZero(first.row(1)) && IsZero(first.row(4)) && IsZero(first.row(5)));
  EXPECT_EQ(first.counts[KeyStatus::kHitL3], 3);
  EXPECT_EQ(first.counts[KeyStatus::kAbsent], 3);
  EXPECT_EQ(first.counts.total(), keys.size());
  EXPECT_EQ(a.l3_log->keys_fetched, 4) << "each key is asked once";
  EXPECT_EQ(a.l3_log->unsorted_fetches, 0);

  ASSERT_TRUE(world_.factory().DrainPromotions(std::chrono::seconds(1)).ok());
  const WorldAnswer second = Ask(*session_, keys);
  EXPECT_THAT(second.statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kAbsent, KeyStatus::kHitL2,
                          KeyStatus::kHitL2, KeyStatus::kAbsent, KeyStatus::kAbsent));
  EXPECT_EQ(second.rows, first.rows);
  EXPECT_EQ(a.l3_log->keys_fetched, 4) << "L2 answers what L3 said, absent keys too";
  EXPECT_EQ(world_.statistics().tables[0].keys.total(), 2 * keys.size());
  EXPECT_EQ(world_.statistics().lookups, 2);
}

TEST_F(LookupSessionTest, AnySizeAndStride) {
  const WorldTable& a = Make({});
  Serve(a);
  for (size_t count : {0, 1, 31, 32, 33, 5000}) {
    const size_t stride_bytes = session_->output_row_bytes({0}) + 24;
    const std::vector<Key> keys = Range(-10, count);
    std::vector<std::byte> rows(count * stride_bytes, std::byte{0xcc});
    const HostTableQuery query{.keys = keys, .rows = rows, .row_stride_bytes = stride_bytes};
    LookupCounts counts;
    ASSERT_TRUE(session_->Lookup({.queries = {&query, 1}}, &counts).ok());
    EXPECT_EQ(counts.total(), count);
    for (size_t i = 0; i < count; ++i) {
      const std::span row(rows.data() + i * stride_bytes, stride_bytes);
      const bool present = keys[i] >= 0 && keys[i] < 100;
      ASSERT_TRUE(present ? StampedRow::Matches(1, keys[i], 0, row.first(32))
                          : IsZero(row.first(32)));
      ASSERT_THAT(row.subspan(32), Each(std::byte{0xcc})) << "wrote between the rows";
    }
  }
}

TEST_F(LookupSessionTest, ManyTablesInOneCallWithTheirOwnDefaultRows) {
  const WorldTable& a = Make({});
  const WorldTable& b = Make({.name = "m/b",
                              .stamp = 2,
                              .dim = 4,
                              .dtype = Dtype::kFloat16,
                              .default_row = std::vector<std::byte>(8, std::byte{0x3c}),
                              .has_l2 = false});
  world_.Publish({&a, &b});
  session_ = world_.NewSession();
  EXPECT_EQ(session_->FindTable("m/b")->value, 1);
  EXPECT_EQ(*session_->FindTable("b"), *session_->FindTable("m/b"));
  EXPECT_EQ(session_->tables()[1].dim, 4);
  const std::vector<Key> keys = {5, 500};
  std::vector<std::byte> rows_a(64), rows_b(16), rows_a2(64);
  const std::vector<HostTableQuery> queries = {{.table = {1}, .keys = keys, .rows = rows_b},
                                               {.table = {0}, .keys = keys, .rows = rows_a},
                                               {.table = {0}, .keys = keys, .rows = rows_a2}};
  LookupCounts counts;
  ASSERT_TRUE(session_->Lookup({.queries = queries}, &counts).ok());
  EXPECT_EQ(counts[KeyStatus::kHitL3], 3);
  EXPECT_EQ(counts[KeyStatus::kAbsent], 3);
  EXPECT_TRUE(StampedRow::Matches(1, 5, 0, std::span(rows_a).first(32)));
  EXPECT_TRUE(StampedRow::Matches(2, 5, 0, std::span(rows_b).first(8)));
  EXPECT_THAT(std::span(rows_b).last(8), Each(std::byte{0x3c}));
  EXPECT_EQ(rows_a, rows_a2);
  EXPECT_EQ(a.l3_log->keys_fetched, 2) << "no key is asked twice in a call";
}

// Two features that share a table. Catches queries that were each a table to the levels below: keys
// were fetched twice, and the hit rate was that of each query.
TEST_F(LookupSessionTest, ATableThatIsNamedTwiceIsAskedOnce) {
  for (bool l2_blocks : {false, true}) {
    const WorldTable& a = Make({.l2_blocks = l2_blocks});
    Serve(a);
    Ask(*session_, {1, 2, 3});
    world_.executor().RunAll();
    const uint64_t asked_of_l2 = a.l2_log->keys_fetched;
    const std::vector<Key> first = {7, 1, 8, 7};
    const std::vector<Key> second = {8, 2, 777, 3, 7};
    std::vector<std::byte> rows_a(4 * 32), rows_b(5 * 32);
    std::vector<KeyStatus> statuses_a(4), statuses_b(5);
    const std::vector<HostTableQuery> queries = {
        {.keys = first, .rows = rows_a, .status = statuses_a},
        {.keys = second, .rows = rows_b, .status = statuses_b}};
    LookupCounts counts;
    // 3 of the 6 unique keys are held; of the first query's 1 of 3.
    HostLookupRequest request{.queries = queries, .hit_rate_threshold = 0.51};
    ASSERT_TRUE(session_->Lookup(request, &counts).ok());
    EXPECT_EQ(a.l3_log->keys_fetched, 3 + 3);
    if (l2_blocks) {
      EXPECT_EQ(a.l2_log->keys_fetched - asked_of_l2, 6);
    }
    EXPECT_THAT(statuses_a, ElementsAre(KeyStatus::kHitL3, KeyStatus::kHitL2, KeyStatus::kHitL3,
                                        KeyStatus::kHitL3));
    EXPECT_THAT(statuses_b, ElementsAre(KeyStatus::kHitL3, KeyStatus::kHitL2, KeyStatus::kAbsent,
                                        KeyStatus::kHitL2, KeyStatus::kHitL3));
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(StampedRow::Matches(1, first[i], 0, std::span(rows_a).subspan(i * 32, 32)));
    EXPECT_TRUE(StampedRow::Matches(1, 7, 0, std::span(rows_b).last(32)));
    EXPECT_EQ(counts[KeyStatus::kHitL3], 5);
    EXPECT_EQ(counts[KeyStatus::kHitL2], 3);
    EXPECT_EQ(counts.total(), 9);
    world_.executor().RunAll();
    ASSERT_TRUE(a.l2->Erase(std::vector<Key>{7, 8, 777}).ok());
    request.hit_rate_threshold = 0.5;
    ASSERT_TRUE(session_->Lookup(request, &counts).ok());
    EXPECT_EQ(counts[KeyStatus::kDefaultPending], 6) << "half of all its keys are held";
    session_.reset();
    world_.executor().RunAll();
  }
}

TEST_F(LookupSessionTest, ConvertsInTheLastCopyAtEveryLevel) {
  WorldTableOptions options{.dim = 3, .dtype = Dtype::kBfloat16, .keys = {1}};
  options.default_row = {std::byte{0x80}, std::byte{0x3f}, std::byte{},
                         std::byte{},     std::byte{0x80}, std::byte{0xbf}};
  const WorldTable& a = Make(options);
  world_.Publish({&a});
  session_ = world_.NewSession({.output_dtype = Dtype::kFloat32});
  EXPECT_EQ(session_->output_row_bytes({0}), 12);
  const std::vector<std::byte> native = Stamped(1, 1, 0, 6);
  std::vector<std::byte> expected(12);
  ConvertToFloat32(Dtype::kBfloat16, native.data(), 3, expected.data());
  for (KeyStatus level : {KeyStatus::kHitL3, KeyStatus::kHitL2}) {
    const WorldAnswer answer = Ask(*session_, {2, 1, 1});
    EXPECT_THAT(answer.statuses, ElementsAre(KeyStatus::kAbsent, level, level));
    EXPECT_TRUE(std::ranges::equal(answer.row(1), expected));
    EXPECT_TRUE(std::ranges::equal(answer.row(2), expected));
    float defaults[3];
    std::memcpy(defaults, answer.row(0).data(), sizeof(defaults));
    EXPECT_THAT(defaults, ElementsAre(1.0F, 0.0F, -1.0F));
    EXPECT_EQ(answer.counts.total(), 3);
    world_.executor().RunAll();
  }
}

TEST_F(LookupSessionTest, LostRowsAreNeverAbsent) {
  const WorldTable& a = Make({.lost_keys = {5, 5000}});
  Serve(a);
  for (int i = 0; i < 2; ++i) {
    const WorldAnswer answer = Ask(*session_, {4, 5, 5000});
    EXPECT_EQ(answer.statuses[1], KeyStatus::kDefaultDegraded);
    EXPECT_EQ(answer.statuses[2], KeyStatus::kDefaultDegraded);
    EXPECT_TRUE(IsZero(answer.row(1)));
    world_.executor().RunAll();
  }
}

TEST_F(LookupSessionTest, TimeoutZeroTakesWhatL2Holds) {
  const WorldTable& a = Make({});
  Serve(a);
  Ask(*session_, {1, 2});
  world_.executor().RunAll();
  const WorldAnswer answer = Ask(*session_, {1, 2, 3}, 0, {.timeout = kTimeoutZero});
  EXPECT_THAT(answer.statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kDefaultDegraded));
  EXPECT_EQ(a.l3_log->keys_fetched, 2);
  EXPECT_EQ(world_.statistics().deadlines_exceeded, 0) << "nobody asked to wait";
}

// Would catch a level that writes into the caller's buffer after the caller has left with it.
TEST_F(LookupSessionTest, ALateLevelWritesOnlyItsScratch) {
  const WorldTable& a = Make({});
  Serve(a);
  world_.executor().Hold(true);
  WorldAnswer answer = Ask(*session_, {1, 2}, 0, {.timeout = std::chrono::milliseconds(5)});
  EXPECT_THAT(answer.statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(answer.counts[KeyStatus::kDefaultDegraded], 2);
  EXPECT_EQ(world_.statistics().deadlines_exceeded, 1);
  answer.rows.assign(answer.rows.size(), std::byte{0x77});
  answer.statuses.assign(2, KeyStatus::kAbsent);
  world_.executor().Hold(false);
  world_.executor().RunAll();
  EXPECT_THAT(answer.rows, Each(std::byte{0x77}));
  EXPECT_THAT(answer.statuses, Each(KeyStatus::kAbsent));
  EXPECT_EQ(Ask(*session_, {1, 2}).counts.total(), 2) << "the scratch has come back";
}

TEST_F(LookupSessionTest, ThresholdDecidesWhetherToWait) {
  const WorldTable& a = Make({});
  Serve(a);
  Ask(*session_, {1, 2, 3});
  world_.executor().RunAll();
  const std::vector<Key> keys = {1, 1, 2, 3, 4};  // 4 positions hit, 1 key misses: 0.8
  struct Case {
    double threshold;
    KeyStatus expected;
  };
  for (const Case& c : {Case{0.81, KeyStatus::kHitL3}, Case{0.8, KeyStatus::kDefaultPending},
                        Case{0.0, KeyStatus::kDefaultPending}, Case{1.0, KeyStatus::kHitL3}}) {
    const WorldAnswer answer = Ask(*session_, keys, 0, {.hit_rate_threshold = c.threshold});
    EXPECT_EQ(answer.statuses[4], c.expected) << c.threshold;
    EXPECT_EQ(answer.counts[KeyStatus::kHitL2], 4);
    ASSERT_TRUE(world_.factory().DrainPromotions(std::chrono::seconds(1)).ok());
    const WorldAnswer later = Ask(*session_, keys);
    EXPECT_EQ(later.statuses[4], KeyStatus::kHitL2) << "inserted in the background";
    EXPECT_TRUE(IsRow(later, 4, 1, 4));
    ASSERT_TRUE(a.l2->Erase(std::vector<Key>{4}).ok());
  }
}

TEST_F(LookupSessionTest, WithoutAnUpperLevelThereIsNothingToInsertInto) {
  const WorldTable& a = Make({.has_l2 = false, .hit_rate_threshold = 0.0});
  Serve(a);
  EXPECT_THAT(Ask(*session_, {1, 2}).statuses, Each(KeyStatus::kHitL3));
}

TEST_F(LookupSessionTest, AFailedL3DegradesAndRecovers) {
  const WorldTable& a = Make({});
  Serve(a);
  Ask(*session_, {1});
  world_.executor().RunAll();
  a.l3_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kFail, .times = 1});
  const WorldAnswer answer = Ask(*session_, {1, 2, 3000});
  EXPECT_TRUE(answer.status.ok()) << "a level that fails is no error";
  EXPECT_THAT(answer.statuses, ElementsAre(KeyStatus::kHitL2, KeyStatus::kDefaultDegraded,
                                           KeyStatus::kDefaultDegraded));
  EXPECT_EQ(world_.statistics().l3_errors, 1);
  const auto unavailable = static_cast<size_t>(absl::StatusCode::kUnavailable);
  EXPECT_EQ(world_.statistics().l3_errors_by_code[unavailable], 1);
  world_.executor().RunAll();
  EXPECT_THAT(Ask(*session_, {1, 2, 3000}).statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL3, KeyStatus::kAbsent))
      << "nothing was remembered of the failure";
}

TEST_F(LookupSessionTest, AnL2ThatBlocksIsAskedInJobsOncePerKey) {
  const WorldTable& a = Make({.l2_blocks = true});
  Serve(a);
  Ask(*session_, {1, 2});
  world_.executor().RunAll();
  const uint64_t asked = a.l2_log->keys_fetched;
  const WorldAnswer answer = Ask(*session_, {2, 1, 2, 3, 1, 777});
  EXPECT_THAT(answer.statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL2, KeyStatus::kHitL2,
                          KeyStatus::kHitL3, KeyStatus::kHitL2, KeyStatus::kAbsent));
  EXPECT_EQ(a.l2_log->keys_fetched - asked, 4);
  EXPECT_TRUE(IsRow(answer, 0, 1, 2) && IsRow(answer, 4, 1, 1) && IsRow(answer, 3, 1, 3));
}

// Quarantine is a state: after a failure L2 is bypassed until the change that was open has been
// published, also when it would answer again and its circuit breaker has closed.
TEST_F(LookupSessionTest, AFailedL2IsBypassedUntilTheOpenChangeIsPublished) {
  for (bool blocks : {false, true}) {
    const WorldTable& a = Make({.l2_blocks = blocks});
    Serve(a);
    Ask(*session_, {1});
    world_.executor().RunAll();
    ASSERT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2);
    const ApplyEpoch open = a.served->epochs().Begin();
    a.l2_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kFail, .times = 1});
    EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3);
    EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3) << "still bypassed";
    world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
    EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3) << "still in quarantine";
    EXPECT_EQ(a.l2_faults->injected(TierOperation::kFetch), 1);
    a.served->epochs().Publish(open);
    EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2);
    session_.reset();
    world_.executor().RunAll();
  }
}

TEST_F(LookupSessionTest, WithoutScratchTheLevelCountsAsDown) {
  World world(0, {}, {.scratch_count = 2});
  const WorldTable& a = Make({.has_l2 = false});
  world.Publish({&a});
  const auto session = world.NewSession();
  world.executor().RunAll();
  world.executor().Hold(true);
  const HostLookupRequest hasty{.timeout = std::chrono::milliseconds(1)};
  EXPECT_THAT(Ask(*session, {1}, 0, hasty).statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_THAT(Ask(*session, {2}, 0, hasty).statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(world.executor().queued_count(), 2);
  EXPECT_THAT(Ask(*session, {3}, 0, hasty).statuses, Each(KeyStatus::kDefaultDegraded));
  EXPECT_EQ(world.executor().queued_count(), 2) << "no third job was to be had";
  world.executor().Hold(false);
  world.executor().RunAll();
  EXPECT_THAT(Ask(*session, {1, 2, 3}, 0, hasty).statuses, Each(KeyStatus::kHitL3));
}

TEST_F(LookupSessionTest, MoreMissesThanScratchGoInWaves) {
  World world(7, {}, {.scratch_count = 2});
  const WorldTable& a = Make({.dim = 4096, .keys = Range(0, 900)});  // 128 rows a job
  world.Publish({&a});
  const auto session = world.NewSession();
  const std::vector<Key> keys = Range(-50, 1000);
  const WorldAnswer answer = Ask(*session, keys);
  EXPECT_EQ(answer.counts[KeyStatus::kHitL3], 900);
  EXPECT_EQ(answer.counts[KeyStatus::kAbsent], 100);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (answer.statuses[i] != KeyStatus::kHitL3) continue;
    ASSERT_TRUE(IsRow(answer, i, 1, keys[i]));
  }
  EXPECT_EQ(a.l3_log->keys_fetched, 1000);
}

TEST_F(LookupSessionTest, PromotionsBeyondTheMaximumAreDroppedAndCounted) {
  World world(0, {}, {.scratch_count = 4});  // two of four scratches may promote
  const WorldTable& a = Make({.name = "m/a"});
  const WorldTable& b = Make({.name = "m/b"});
  const WorldTable& c = Make({.name = "m/c"});
  world.Publish({&a, &b, &c});
  const auto session = world.NewSession();
  const std::vector<Key> keys = {1};
  std::vector<HostTableQuery> queries;
  std::vector<std::vector<std::byte>> rows(3, std::vector<std::byte>(32));
  for (uint32_t i = 0; i < 3; ++i) queries.push_back({.table = {i}, .keys = keys, .rows = rows[i]});
  LookupCounts counts;
  ASSERT_TRUE(session->Lookup({.queries = queries}, &counts).ok());
  EXPECT_EQ(counts[KeyStatus::kHitL3], 3);
  // Two jobs went out first and were promoted while the third was fetched.
  world.executor().RunAll();
  EXPECT_EQ(world.statistics().promotions_dropped, 0);
  const HostLookupRequest in_background{.hit_rate_threshold = 0.0};
  EXPECT_EQ(Ask(*session, {10}, 0, in_background).statuses[0], KeyStatus::kDefaultPending);
  EXPECT_EQ(Ask(*session, {11}, 0, in_background).statuses[0], KeyStatus::kDefaultPending);
  EXPECT_EQ(Ask(*session, {12}, 0, in_background).statuses[0], KeyStatus::kDefaultDegraded)
      << "a third is refused, and so it is not pending";
  EXPECT_EQ(Ask(*session, {13}).statuses[0], KeyStatus::kHitL3) << "half is left for answering";
  EXPECT_EQ(world.statistics().promotions_dropped, 1);
  world.executor().RunAll();
  EXPECT_EQ(Ask(*session, {10}).statuses[0], KeyStatus::kHitL2);
  EXPECT_EQ(Ask(*session, {13}).statuses[0], KeyStatus::kHitL3) << "its promotion was dropped";
}

TEST_F(LookupSessionTest, ASwitchUnderARunningCallIsNeverAMix) {
  const WorldTable& a1 = Make({.name = "m/a", .stamp = 1, .incarnation = 1, .has_l2 = false});
  const WorldTable& b1 = Make({.name = "m/b", .stamp = 1, .incarnation = 2, .has_l2 = false});
  const WorldTable& a2 = Make({.name = "m/a", .stamp = 2, .incarnation = 3, .has_l2 = false});
  const WorldTable& b2 = Make({.name = "m/b", .stamp = 2, .incarnation = 4, .has_l2 = false});
  world_.Publish({&a1, &b1});
  session_ = world_.NewSession();
  // The model switches while the first table is being fetched, before the second one is.
  a1.l3_faults->Plan(TierOperation::kFetch, {.fault = TierFault::kNone, .times = 1, .before = [&] {
                                               world_.Publish({&b2, &a2});
                                             }});
  const std::vector<Key> keys = {1, 2};
  for (uint64_t stamp : {1, 2}) {
    std::vector<std::byte> rows_a(64), rows_b(64);
    const std::vector<HostTableQuery> queries = {{.table = {0}, .keys = keys, .rows = rows_a},
                                                 {.table = {1}, .keys = keys, .rows = rows_b}};
    LookupCounts counts;
    ASSERT_TRUE(session_->Lookup({.queries = queries}, &counts).ok());
    EXPECT_TRUE(StampedRow::Matches(stamp, 1, 0, std::span(rows_a).first(32)));
    EXPECT_TRUE(StampedRow::Matches(stamp, 2, 0, std::span(rows_b).last(32)));
  }
}

TEST_F(LookupSessionTest, OldLevelsAreFreedByATaskOnceTheirCallsAreDone) {
  WorldTable& a1 = Make({.incarnation = 1});
  WorldTable& a2 = Make({.stamp = 2, .incarnation = 2});
  world_.Publish({&a1});
  session_ = world_.NewSession();
  a1.served.reset();
  world_.executor().Hold(true);
  Ask(*session_, {1}, 0, {.timeout = std::chrono::milliseconds(1)});  // its job stays queued
  world_.Publish({&a2});
  EXPECT_FALSE(a1.l3_log->destroyed) << "the queued job pins it";
  world_.executor().Hold(false);
  world_.executor().RunAll();
  EXPECT_TRUE(a1.l3_log->destroyed);
  EXPECT_TRUE(a1.l2_log->destroyed);
  const WorldAnswer answer = Ask(*session_, {1});
  EXPECT_TRUE(IsRow(answer, 0, 2, 1)) << "the table's number names the new incarnation";
}

TEST_F(LookupSessionTest, PromotionsOfARetiredIncarnationAreDropped) {
  const WorldTable& a1 = Make({.incarnation = 1});
  const WorldTable& a2 = Make({.stamp = 2, .incarnation = 2});
  Serve(a1);
  Ask(*session_, {1});
  ASSERT_EQ(world_.executor().queued_count(), 1);
  world_.Publish({&a2});
  world_.executor().RunAll();
  EXPECT_EQ(a1.l2_log->inserts, 0);
  EXPECT_EQ(a2.l2_log->inserts, 0);
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3);
}

// P3: an update passes between a promotion's fetch and its insertion.
TEST_F(LookupSessionTest, AStalePromotionIsRefused) {
  const WorldTable& a = Make({});
  Serve(a);
  const WorldAnswer old = Ask(*session_, {1, 2});
  EXPECT_TRUE(IsRow(old, 0, 1, 1, 0));
  ASSERT_EQ(world_.executor().queued_count(), 1) << "the promotion waits";
  StampedQuery change(1, {1}, 9, 32);
  const ApplyEpoch epoch = a.served->epochs().Begin();
  ASSERT_TRUE(a.l2->RaiseWatermarks(change.batch().keys, epoch, kNoDeadline).ok());
  ASSERT_TRUE(a.l3->Write({.upserts = change.batch()}).ok());
  ASSERT_TRUE(a.l2->Update(change.batch()).ok());
  a.served->epochs().Publish(epoch);
  const auto promotion_runs_late = [&] { world_.executor().RunAll(); };
  promotion_runs_late();
  const WorldAnswer now = Ask(*session_, {1, 2});
  EXPECT_EQ(now.statuses[0], KeyStatus::kHitL3) << "the old row was not let in";
  EXPECT_TRUE(IsRow(now, 0, 1, 1, 9));
  EXPECT_EQ(now.statuses[1], KeyStatus::kHitL2);
  world_.executor().RunAll();
  const WorldAnswer promoted = Ask(*session_, {1});
  EXPECT_EQ(promoted.statuses[0], KeyStatus::kHitL2);
  EXPECT_TRUE(IsRow(promoted, 0, 1, 1, 9)) << "a promotion that began after the change is let in";
}

// The promotion's epoch must be the one before the fetch, not that at its posting: the change
// passes while L3 is being read.
TEST_F(LookupSessionTest, AChangeDuringTheFetchRefusesThePromotion) {
  const WorldTable& a = Make({});
  Serve(a);
  StampedQuery change(1, {1}, 9, 32);
  const auto answer_then_change = [&] {
    const ApplyEpoch epoch = a.served->epochs().Begin();
    EXPECT_TRUE(a.l2->RaiseWatermarks(change.batch().keys, epoch, kNoDeadline).ok());
    EXPECT_TRUE(a.l3->Write({.upserts = change.batch()}).ok());
    a.served->epochs().Publish(epoch);
  };
  a.l3_faults->Plan(TierOperation::kFetch,
                    {.fault = TierFault::kNone, .times = 1, .before = answer_then_change});
  EXPECT_TRUE(IsRow(Ask(*session_, {1}), 0, 1, 1, 9));
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3);
}

// L2 takes an older row after the call has asked it in vain, then a change begins and is in L3, but
// not yet in L2. Would catch a session that sees the new row first and then, from L2, the old one.
TEST_F(LookupSessionTest, AnOlderRowThatCameIntoL2MeanwhileIsTheAnswer) {
  for (bool l2_fails : {false, true}) {
    const WorldTable& a = Make({});
    Serve(a);
    StampedQuery older(1, {1}, 0, 32);
    StampedQuery change(1, {1}, 9, 32);
    ApplyEpoch epoch = 0;
    a.l3_faults->Plan(
        TierOperation::kFetch,
        {.fault = TierFault::kNone, .times = 1, .before = [&] {
           EXPECT_TRUE(a.l2->Insert(older.batch(), 0).ok());
           epoch = a.served->epochs().Begin();
           EXPECT_TRUE(a.l2->RaiseWatermarks(change.batch().keys, epoch, kNoDeadline).ok());
           EXPECT_TRUE(a.l3->Write({.upserts = change.batch()}).ok());
         }});
    if (l2_fails) {
      a.l2_faults->Plan(TierOperation::kFetch,
                        {.fault = TierFault::kFail, .calls_skipped = 1, .times = 1});
    }
    const WorldAnswer first = Ask(*session_, {1, 2});
    if (l2_fails) {
      EXPECT_THAT(first.statuses, Each(KeyStatus::kDefaultDegraded));
      EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL3) << "L2 is bypassed";
    } else {
      EXPECT_THAT(first.statuses, ElementsAre(KeyStatus::kHitL2, KeyStatus::kHitL3));
      EXPECT_TRUE(IsRow(first, 0, 1, 1, 0));
      EXPECT_TRUE(IsRow(Ask(*session_, {1}), 0, 1, 1, 0));
    }
    EXPECT_TRUE(a.l2->Update(change.batch()).ok());
    a.served->epochs().Publish(epoch);
    EXPECT_TRUE(IsRow(Ask(*session_, {1}), 0, 1, 1, 9));
    world_.executor().RunAll();
  }
}

// An eviction between an update and a late promotion must not let the old row in: watermarks
// outlive entries.
TEST_F(LookupSessionTest, EvictionThenPromotionKeepsTheOldRowOut) {
  const WorldTable& a = Make({});
  Serve(a);
  Ask(*session_, {1});  // its promotion, of version 0, waits
  StampedQuery change(1, {1}, 9, 32);
  const ApplyEpoch epoch = a.served->epochs().Begin();
  ASSERT_TRUE(a.l2->RaiseWatermarks(change.batch().keys, epoch, kNoDeadline).ok());
  ASSERT_TRUE(a.l3->Write({.upserts = change.batch()}).ok());
  a.served->epochs().Publish(epoch);
  ASSERT_TRUE(a.l2->Insert(change.batch(), epoch).ok());  // a newer promotion came first
  ASSERT_TRUE(a.l2->Erase(change.batch().keys).ok());     // and was evicted
  world_.executor().RunAll();
  EXPECT_TRUE(IsRow(Ask(*session_, {1}), 0, 1, 1, 9));
}

TEST_F(LookupSessionTest, NumbersStayValidOverSwitches) {
  const WorldTable& a = Make({});
  const WorldTable& b = Make({.name = "m/b", .stamp = 2});
  world_.Publish({&a, &b});
  session_ = world_.NewSession();
  const WorldTable& c = Make({.name = "m/c", .stamp = 3});
  world_.Publish({&c, &b});
  EXPECT_EQ(Ask(*session_, {1}, 0).status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(IsRow(Ask(*session_, {1}, 1), 0, 2, 1));
  EXPECT_EQ(session_->FindTable("m/c").status().code(), absl::StatusCode::kNotFound)
      << "a session knows the tables that there were when it was made";
  const WorldTable& wider = Make({.name = "m/b", .stamp = 2, .dim = 9});
  world_.Publish({&wider});
  const WorldAnswer refused = Ask(*session_, {1}, 1);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.rows, Each(std::byte{0xcc}));
  world_.Publish({&b});
  EXPECT_TRUE(Ask(*session_, {1}, 1).status.ok());
}

// Catches: a session without tables, which then says that the model does not have them.
TEST_F(LookupSessionTest, AnUnloadedModelGivesNoSession) {
  const WorldTable& a = Make({});
  world_.Publish({&a});
  world_.model().Unload();
  const absl::Status refused = world_.factory().NewSession(world_.model(), {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("was unloaded"));
  world_.Publish({&a});
  session_ = world_.NewSession();
  EXPECT_TRUE(Ask(*session_, {1}).status.ok());
}

}  // namespace
}  // namespace hps
