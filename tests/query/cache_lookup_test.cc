// Sessions with a device cache, on the host's stand-in for one.
#include "query/cache_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "base/circuit_breaker.h"
#include "query/test_query_world.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_cache.h"
#include "types/row_convert.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

class CacheLookupTest : public testing::Test {
 protected:
  CacheLookupTest()
      : cache_(*MakeHostCache(
            {.device = 0, .bytes_max = uint64_t{4} << 20, .calls_max = 1, .call_keys_max = 16})),
        table_(MakeWorldTable({.keys = {1, 2, 3, 4, 5}}, nullptr)),
        world_(0, {cache_.get()}) {
    table_.served->AttachL1(0, *cache_->OpenTable(32, cache_->TableBytes(32, 100)));
    world_.Publish({&table_});
    session_ = world_.NewSession({.device = 0});
  }

  std::unique_ptr<DeviceCache> cache_;
  WorldTable table_;
  World world_;
  std::unique_ptr<LookupSession> session_;
};

TEST_F(CacheLookupTest, RowsRiseThroughTheLevels) {
  EXPECT_THAT(Ask(*session_, {2, 9, 2}).statuses,
              ElementsAre(KeyStatus::kHitL3, KeyStatus::kAbsent, KeyStatus::kHitL3));
  world_.executor().RunAll();
  const WorldAnswer held = Ask(*session_, {2, 9, 2, 3});
  EXPECT_THAT(held.statuses, ElementsAre(KeyStatus::kHitL1, KeyStatus::kAbsent, KeyStatus::kHitL1,
                                         KeyStatus::kHitL3));
  EXPECT_TRUE(StampedRow::Matches(1, 2, 0, held.row(2)));
  EXPECT_EQ(held.counts.total(), 4);
  ASSERT_TRUE(table_.served->l1(0)->Clear().ok());
  EXPECT_EQ(Ask(*session_, {2}).statuses[0], KeyStatus::kHitL2);
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {2}).statuses[0], KeyStatus::kHitL1) << "promoted from L2";
}

TEST_F(CacheLookupTest, DeviceQueriesAreAnsweredOnTheDevice) {
  const std::vector<Key> keys = {5, 4, 77, 5};
  std::vector<std::byte> rows(keys.size() * 32, std::byte{0xcc});
  std::vector<KeyStatus> statuses(keys.size());
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()},
                               .status = {statuses.data(), statuses.size()}};
  for (KeyStatus expected : {KeyStatus::kHitL3, KeyStatus::kHitL1}) {
    LookupCounts counts;
    ASSERT_TRUE(session_->Lookup(DeviceLookupRequest{.queries = {&query, 1}}, &counts).ok());
    EXPECT_THAT(statuses, ElementsAre(expected, expected, KeyStatus::kAbsent, expected));
    EXPECT_EQ(counts[expected], 3);
    EXPECT_TRUE(StampedRow::Matches(1, 5, 0, std::span(rows).last(32)));
    world_.executor().RunAll();
  }
}

TEST(CacheLookupWideningTest, DeviceQueriesOfASessionForFloat32AreWidened) {
  auto cache = *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20});
  WorldTableOptions options{.dim = 3, .dtype = Dtype::kBfloat16, .keys = {1, 2}};
  options.default_row = {std::byte{0x80}, std::byte{0x3f}, std::byte{},
                         std::byte{},     std::byte{0x80}, std::byte{0xbf}};
  const WorldTable a = MakeWorldTable(options, nullptr);
  const WorldTable b = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = {1, 2}}, nullptr);
  World world(0, {cache.get()});
  a.served->AttachL1(0, *cache->OpenTable(6, cache->TableBytes(6, 100)));
  b.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a, &b});
  const auto session = world.NewSession({.device = 0, .output_dtype = Dtype::kFloat32});
  const std::vector<Key> keys = {2, 77, 1, 2};
  std::vector<std::byte> rows(keys.size() * 12), wide_rows(keys.size() * 32);
  std::vector<KeyStatus> statuses(keys.size());
  const DeviceTableQuery narrow{.table = {0},
                                .keys = {keys.data(), keys.size()},
                                .rows = {rows.data(), rows.size()},
                                .status = {statuses.data(), statuses.size()}};
  const DeviceTableQuery wide{.table = {1},
                              .keys = {keys.data(), keys.size()},
                              .rows = {wide_rows.data(), wide_rows.size()}};
  const std::array queries = {narrow, wide};
  for (const KeyStatus level : {KeyStatus::kHitL3, KeyStatus::kHitL1}) {
    ASSERT_TRUE(session->Lookup(DeviceLookupRequest{.queries = queries}, nullptr).ok());
    EXPECT_THAT(statuses, ElementsAre(level, KeyStatus::kAbsent, level, level));
    std::vector<std::byte> native(6), expected(12);
    StampedRow::Write(1, 2, 0, native);
    ConvertToFloat32(Dtype::kBfloat16, native.data(), 3, expected.data());
    EXPECT_TRUE(std::ranges::equal(std::span(rows).first(12), expected));
    EXPECT_TRUE(std::ranges::equal(std::span(rows).last(12), expected));
    float defaults[3];
    std::memcpy(defaults, rows.data() + 12, sizeof(defaults));
    EXPECT_THAT(defaults, ElementsAre(1.0F, 0.0F, -1.0F));
    EXPECT_TRUE(StampedRow::Matches(2, 1, 0, std::span(wide_rows).subspan(64, 32)));
    world.executor().RunAll();
  }
}

// With pieces of three rows and sends of nine, through staging that holds six of the sixteen.
TEST(CacheLookupPiecesTest, EveryMissIsAnsweredOnceWhateverItsPieceAndLevel) {
  for (const size_t staging_bytes : {size_t{1} << 20, size_t{6 * 32}, size_t{0}}) {
    auto cache = *MakeHostCache({.device = 0,
                                 .bytes_max = uint64_t{4} << 20,
                                 .call_keys_max = 64,
                                 .call_staging_bytes = staging_bytes});
    std::vector<Key> present(40);
    std::iota(present.begin(), present.end(), 0);
    const WorldTable a = MakeWorldTable({.keys = present}, nullptr);
    const WorldTable b = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = present}, nullptr);
    World world(0, {cache.get()}, {.tuning = kTinyPieces});
    for (const WorldTable* table : {&a, &b})
      table->served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
    world.Publish({&a, &b});
    const auto session = world.NewSession({.device = 0});
    Ask(*session, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20}, 0);
    Ask(*session, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1);
    world.executor().RunAll();
    const auto clear_l1 = [&] {
      for (const WorldTable* table : {&a, &b}) ASSERT_TRUE(table->served->l1(0)->Clear().ok());
    };
    clear_l1();
    const std::vector<Key> keys = {9, 3, 500, 3, 1, 30, 2, 0, 20, 4, 5, 6, 7, 31};
    for (const bool twice : {false, true}) {
      const uint64_t asked_before = a.l2_log->keys_fetched;
      std::vector<HostTableQuery> queries;
      std::vector<std::vector<std::byte>> rows(3, std::vector<std::byte>(keys.size() * 32));
      std::vector<std::vector<KeyStatus>> statuses(3, std::vector<KeyStatus>(keys.size()));
      for (const uint32_t number : {0, 1, 2}) {
        if (number == 2 && !twice) continue;
        queries.push_back({.table = {number % 2},
                           .keys = keys,
                           .rows = rows[number],
                           .status = statuses[number]});
      }
      LookupCounts counts;
      ASSERT_TRUE(session->Lookup({.queries = queries}, &counts).ok());
      EXPECT_EQ(a.l2_log->keys_fetched - asked_before, 13) << "each unique key once";
      EXPECT_EQ(counts.total(), keys.size() * queries.size());
      for (size_t q = 0; q < queries.size(); ++q) {
        for (size_t i = 0; i < keys.size(); ++i) {
          SCOPED_TRACE(testing::Message() << "query " << q << ", key " << keys[i]);
          if (keys[i] == 500) {
            EXPECT_EQ(statuses[q][i], KeyStatus::kAbsent);
            continue;
          }
          const bool in_l2 = keys[i] < 10 || (keys[i] == 20 && q != 1);
          EXPECT_EQ(statuses[q][i], in_l2 ? KeyStatus::kHitL2 : KeyStatus::kHitL3);
          EXPECT_TRUE(StampedRow::Matches(q == 1 ? 2 : 1, keys[i], 0,
                                          std::span(rows[q]).subspan(i * 32, 32)));
        }
      }
      world.executor().RunAll();
      EXPECT_EQ(Ask(*session, keys, 0).counts[KeyStatus::kHitL1], 13) << "all were promoted";
      for (const WorldTable* table : {&a, &b})
        ASSERT_TRUE(table->l2->Erase(std::vector<Key>{20, 30, 31, 500}).ok());
      ASSERT_TRUE(a.l2->Insert(StampedQuery(1, {20}, 0, 32).batch(), 0).ok());
      clear_l1();
    }
  }
}

// More answers than are collected before they are sent.
TEST(CacheLookupPiecesTest, ManyQueriesAreAllAnswered) {
  constexpr size_t kQueries = 300;
  auto cache = *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20});
  std::vector<Key> keys(kQueries);
  std::iota(keys.begin(), keys.end(), 0);
  const WorldTable a = MakeWorldTable({.keys = keys}, nullptr);
  World world(0, {cache.get()});
  a.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a});
  const auto session = world.NewSession({.device = 0});
  std::vector<std::byte> rows(kQueries * 32);
  std::vector<HostTableQuery> queries;
  for (size_t q = 0; q < kQueries; ++q) {
    queries.push_back(
        {.keys = std::span(keys).subspan(q, 1), .rows = std::span(rows).subspan(q * 32, 32)});
  }
  LookupCounts counts;
  ASSERT_TRUE(session->Lookup({.queries = queries}, &counts).ok());
  EXPECT_EQ(counts[KeyStatus::kHitL3], kQueries);
  for (size_t q = 0; q < kQueries; ++q)
    EXPECT_TRUE(StampedRow::Matches(1, keys[q], 0, std::span(rows).subspan(q * 32, 32)));
  EXPECT_EQ(world.statistics().tables[0].l1.errors, 0);
}

// L2 fails for some pieces of a call: their keys go to L3, the others' answers stand.
TEST(CacheLookupPiecesTest, APieceThatL2FailsIsFetchedBelow) {
  auto cache = *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20});
  std::vector<Key> keys(40);
  std::iota(keys.begin(), keys.end(), 0);
  const WorldTable a = MakeWorldTable({.keys = keys}, nullptr);
  World world(0, {cache.get()}, {.tuning = kTinyPieces});
  a.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a});
  const auto session = world.NewSession({.device = 0});
  Ask(*session, keys);
  world.executor().RunAll();
  ASSERT_TRUE(a.served->l1(0)->Clear().ok());
  const ApplyEpoch open = a.served->epochs().Begin();
  a.l2_faults->Plan(TierOperation::kFetch, {.calls_skipped = 2, .times = 3});
  const WorldAnswer answer = Ask(*session, keys);
  EXPECT_EQ(answer.counts[KeyStatus::kHitL3], 3 * 4);
  EXPECT_EQ(answer.counts[KeyStatus::kHitL2], 40 - 3 * 4);
  for (size_t i = 0; i < keys.size(); ++i)
    EXPECT_TRUE(StampedRow::Matches(1, keys[i], 0, answer.row(i)));
  EXPECT_EQ(world.statistics().tables[0].l2.errors, 1) << "one for the call";
  EXPECT_TRUE(a.served->l2()[0].health().quarantined());
  a.served->epochs().Publish(open);
}

// The device fails or hangs in one step of a call. On the host the other levels answer, everything
// once; on the device the call fails. Either way the lease is given back and the cache is passed by
// while a change is open.
TEST(CacheFaultTest, ADeviceThatFailsInAnyStepFailsNoHostLookUp) {
  const absl::Status fault_status = absl::DeadlineExceededError("the device hangs");
  for (const TierOperation step :
       {TierOperation::kAcquireCall, TierOperation::kBegin, TierOperation::kMisses,
        TierOperation::kFinish, TierOperation::kWait}) {
    for (const TierFault fault : {TierFault::kFail, TierFault::kFailLate}) {
      SCOPED_TRACE(testing::Message()
                   << "step " << static_cast<int>(step) << ", fault " << static_cast<int>(fault));
      std::vector<Key> keys(40);
      std::iota(keys.begin(), keys.end(), 0);
      TierFaults faults;
      auto cache = WithFaults(
          *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20, .calls_max = 1}), &faults);
      const WorldTable a = MakeWorldTable({.keys = keys}, nullptr);
      World world(0, {cache.get()}, {.tuning = kTinyPieces});
      a.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
      world.Publish({&a});
      const auto session = world.NewSession({.device = 0});
      Ask(*session, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
      world.executor().RunAll();
      ASSERT_TRUE(a.served->l1(0)->Erase(std::vector<Key>{0, 1, 2, 3, 4, 5}, kNoDeadline).ok());
      const ApplyEpoch open = a.served->epochs().Begin();

      faults.Plan(step, {.fault = fault, .status = fault_status, .times = 1});
      const WorldAnswer answer = Ask(*session, keys);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      // What was fetched before the device failed may be in L2 by now.
      EXPECT_GE(answer.counts[KeyStatus::kHitL2], 12);
      EXPECT_EQ(answer.counts[KeyStatus::kHitL2] + answer.counts[KeyStatus::kHitL3], 40);
      for (size_t i = 0; i < keys.size(); ++i)
        EXPECT_TRUE(StampedRow::Matches(1, keys[i], 0, answer.row(i)));
      EXPECT_EQ(faults.injected(step), 1);
      EXPECT_EQ(world.statistics().tables[0].l1.errors, 1);
      EXPECT_EQ(world.statistics().tables[0].keys.total(), 12 + keys.size()) << "counted once";
      EXPECT_NE(Ask(*session, {11}).statuses[0], KeyStatus::kHitL1) << "passed by";
      a.served->epochs().Publish(open);
      EXPECT_NE(Ask(*session, {11}).statuses[0], KeyStatus::kHitL1) << "not refreshed yet";
      a.served->l1_health(0).NoteApplied(open);
      world.executor().manual_clock().Advance(CircuitBreaker::kRest);
      EXPECT_EQ(Ask(*session, {11}).statuses[0], KeyStatus::kHitL1) << "the lease has come back";

      faults.Plan(step, {.fault = fault, .status = fault_status, .times = 1});
      const absl::Status status = AskOnDevice(*session, {11, 77});
      EXPECT_EQ(status.code(), fault_status.code()) << status;
      faults.Clear();
      EXPECT_TRUE(AskOnDevice(*session, {11, 77}).ok());
    }
  }
}

// Catches a call on a stream of the cache's own that returns with its rows still on their way:
// nobody but the call can wait for those. A caller's stream is for the caller to wait for.
TEST(CacheFaultTest, WithoutAStreamTheRowsAreThereOnReturn) {
  TierFaults faults;
  auto cache = WithFaults(*MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20}), &faults);
  const WorldTable a = MakeWorldTable({.keys = {1, 2}}, nullptr);
  World world(0, {cache.get()});
  a.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a});
  const auto session = world.NewSession({.device = 0});
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(keys.size() * 32);
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()}};
  int callers_stream = 0;  // the host's cache does not look at it
  for (const bool held : {false, true}) {
    SCOPED_TRACE(held ? "all hit" : "all miss");
    DeviceLookupRequest request{.queries = {&query, 1}, .stream = {.handle = &callers_stream}};
    const uint64_t waits = faults.calls(TierOperation::kWait);
    ASSERT_TRUE(session->Lookup(request, nullptr).ok());
    EXPECT_EQ(faults.calls(TierOperation::kWait), waits) << "the stream is the caller's";
    request.stream = {};
    ASSERT_TRUE(session->Lookup(request, nullptr).ok());
    EXPECT_EQ(faults.calls(TierOperation::kWait), waits + 1);
    world.executor().RunAll();
  }
}

// Catches a call that runs out of memory and leaves something behind: its lease, its helpers, or
// rows that it has fetched of tables that a switch frees.
TEST(CacheFaultTest, ACallThatRunsOutOfMemoryLeavesNothingBehind) {
  struct Case {
    TierOperation step;
    uint64_t calls_skipped = 0;
  };
  for (const Case& c : {Case{TierOperation::kAcquireCall}, Case{TierOperation::kBegin},
                        Case{TierOperation::kMisses}, Case{TierOperation::kFinish},
                        Case{TierOperation::kFinish, 1}, Case{TierOperation::kWait}}) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(c.step) << " " << c.calls_skipped);
    std::vector<Key> keys(40);
    std::iota(keys.begin(), keys.end(), 0);
    TierFaults faults;
    auto cache = WithFaults(
        *MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20, .calls_max = 1}), &faults);
    WorldTable a = MakeWorldTable({.keys = keys}, nullptr);
    const WorldTable b = MakeWorldTable({.stamp = 2, .incarnation = 2, .keys = keys}, nullptr);
    World world(0, {cache.get()}, {.tuning = kTinyPieces});
    for (const WorldTable* table : {&std::as_const(a), &b})
      table->served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
    world.Publish({&a});
    const auto session = world.NewSession({.device = 0});
    Ask(*session, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    world.executor().RunAll();
    ASSERT_TRUE(a.served->l1(0)->Clear().ok());
    const TierFaultRule no_memory = {
        .fault = TierFault::kNone, .calls_skipped = c.calls_skipped, .times = 1, .before = [] {
          throw std::bad_alloc();
        }};

    faults.Plan(c.step, no_memory);
    const absl::Status refused = Ask(*session, keys).status;
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;

    world.Publish({&b});
    a.served.reset();
    world.executor().RunAll();
    EXPECT_TRUE(a.l3_log->destroyed);
    const WorldAnswer after = Ask(*session, keys);
    EXPECT_EQ(after.counts[KeyStatus::kHitL3], 40);
    EXPECT_TRUE(StampedRow::Matches(2, 39, 0, after.row(39)));
    EXPECT_EQ(world.statistics().tables[0].l1.errors, 0) << "the lease has come back";

    if (c.calls_skipped > 0) continue;
    faults.Plan(c.step, no_memory);
    const absl::Status status = AskOnDevice(*session, {11, 77});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(AskOnDevice(*session, {11, 77}).ok());
  }
}

TEST(CacheFaultTest, AFailureIsOneHoweverManyTablesTheCallNames) {
  TierFaults faults;
  auto cache = WithFaults(*MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20}), &faults);
  const WorldTable a = MakeWorldTable({.keys = {1}}, nullptr);
  const WorldTable b = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = {1}}, nullptr);
  World world(0, {cache.get()});
  for (const WorldTable* table : {&a, &b})
    table->served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a, &b});
  const auto session = world.NewSession({.device = 0});
  faults.Plan(TierOperation::kBegin, {.fault = TierFault::kFail, .times = 1});
  const std::vector<Key> keys = {1};
  std::vector<std::byte> rows_a(32), rows_b(32);
  const std::array<HostTableQuery, 2> queries = {
      {{.table = {0}, .keys = keys, .rows = rows_a}, {.table = {1}, .keys = keys, .rows = rows_b}}};
  ASSERT_TRUE(session->Lookup({.queries = queries}, nullptr).ok());
  EXPECT_EQ(world.statistics().tables[0].l1.errors + world.statistics().tables[1].l1.errors, 1);
}

// Catches: a writer with too much to do, for which an operator is called to a level that works.
TEST(CacheFaultTest, APromotionThatFindsNoRoomIsDroppedAndNoError) {
  TierFaults faults;
  auto cache = WithFaults(*MakeHostCache({.device = 0, .bytes_max = uint64_t{4} << 20}), &faults);
  const WorldTable a = MakeWorldTable({.keys = {1}}, nullptr);
  World world(0, {cache.get()});
  a.served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&a});
  const auto session = world.NewSession({.device = 0});
  for (const bool is_full : {true, false}) {
    faults.Plan(TierOperation::kInsert, {.fault = TierFault::kFail,
                                         .status = is_full ? absl::ResourceExhaustedError("full")
                                                           : absl::InternalError("!"),
                                         .times = 1});
    Ask(*session, {1});
    world.executor().RunAll();
    EXPECT_EQ(world.statistics().promotions_dropped, 1);
    EXPECT_EQ(world.statistics().tables[0].l1.errors, is_full ? 0 : 1);
  }
}

// The cache's calls take 16 keys: a larger lookup passes by the cache, and stays so while a change
// is open.
TEST_F(CacheLookupTest, ACacheThatFailsIsPassedBy) {
  Ask(*session_, {1});
  world_.executor().RunAll();
  ASSERT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1);
  const ApplyEpoch open = table_.served->epochs().Begin();
  EXPECT_THAT(Ask(*session_, std::vector<Key>(17, 1)).statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2) << "passed by";
  table_.served->epochs().Publish(open);
  table_.served->l1_health(0).NoteApplied(open);  // refreshed
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1);
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 1);
  EXPECT_EQ(world_.statistics().tables[0].keys.total(), 1 + 1 + 17 + 1 + 1);
}

// With a threshold of 0 nobody waits for L2; but where L1 can't hold anything L2 is the top level.
TEST_F(CacheLookupTest, WhereL1IsPassedByL2DecidesAboutWaiting) {
  const HostLookupRequest never_wait{.hit_rate_threshold = 0.0};
  Ask(*session_, {1});
  world_.executor().RunAll();
  ASSERT_TRUE(table_.served->l1(0)->Clear().ok());
  const ApplyEpoch open = table_.served->epochs().Begin();
  table_.served->l1_health(0).Quarantine();
  EXPECT_THAT(Ask(*session_, {1, 2}, 0, never_wait).statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kDefaultPending));
  world_.executor().RunAll();
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kHitL2));
  table_.served->epochs().Publish(open);
  table_.served->l1_health(0).NoteApplied(open);  // refreshed
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kDefaultPending));
  world_.executor().RunAll();
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kHitL1));
}

// Catches a session that keeps its lease after an error until its next call, while others find
// none.
TEST(CacheFaultTest, ACallThatFailsGivesItsLeaseBack) {
  TierFaults faults;
  const auto cache = WithFaults(
      *MakeHostCache(
          {.device = 0, .bytes_max = uint64_t{4} << 20, .calls_max = 1, .call_keys_max = 16}),
      &faults);
  const WorldTable good = MakeWorldTable({.keys = {1, 2}}, nullptr);
  const WorldTable odd = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = {1}}, nullptr);
  World world(0, {cache.get()});
  for (const WorldTable* table : {&good, &odd})
    table->served->AttachL1(0, *cache->OpenTable(32, cache->TableBytes(32, 100)));
  world.Publish({&good, &odd});
  const auto failing = world.NewSession({.device = 0});
  const auto session = world.NewSession({.device = 0});
  faults.Plan(TierOperation::kBegin, {.status = absl::InvalidArgumentError("!"), .times = 1});
  EXPECT_EQ(Ask(*failing, {1}, 1).statuses[0], KeyStatus::kHitL3);
  EXPECT_EQ(world.statistics().tables[1].l1.errors, 1);
  Ask(*session, {2});
  world.executor().RunAll();
  EXPECT_EQ(Ask(*session, {2}).statuses[0], KeyStatus::kHitL1);
  EXPECT_EQ(world.statistics().tables[0].l1.errors, 0);
}

}  // namespace
}  // namespace hps
