#include "query/fetch/staged_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "query/test_query_world.h"

namespace hps {
namespace {

constexpr Duration kSendWaitMax = std::chrono::seconds(1);

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

constexpr size_t kRowBytes = 32;

// A device on which every key misses; keeps what it is sent.
class MissingCall final : public DeviceCall {
 public:
  struct Answer {
    KeyStatus status = kUnanswered;
    std::vector<std::byte> row;
    bool reprobe = false;
  };

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream) override {
    keys_.clear();
    begin_.assign(1, 0);
    positions_.clear();
    row_bytes_.clear();
    size_t key_count = 0;
    for (const DeviceCacheQuery& query : queries) {
      keys_.emplace_back(query.keys, query.key_count);
      key_count += query.key_count;
      begin_.push_back(key_count);
      positions_.push_back(query.key_count);
      row_bytes_.push_back(query.row_bytes);
    }
    staging_.assign(staging_rows * kRowBytes, std::byte{0xcc});
    staged_bytes_ = 0;
    known_.assign(queries.size(), 0);
    is_brought_.assign(staging_.size(), false);
    rows_brought.clear();
    answers.assign(key_count, {});
    rows_sent.clear();
    return absl::OkStatus();
  }
  DeviceMissesSoFar Peek(size_t query) override {
    size_t& known = known_[query];
    known = std::min(known + known_at_a_time, keys_[query].size());
    return {keys_[query].first(known), known == keys_[query].size()};
  }
  absl::StatusOr<DeviceMisses> Misses(Deadline) override { return DeviceMisses{keys_, positions_}; }
  HostRows Staging(size_t query, size_t row_count) override {
    const size_t row_bytes = row_bytes_[query];
    const bool has_room = row_count * row_bytes <= staging_.size() - staged_bytes_;
    const HostRows rows = {.data = staging_.data() + staged_bytes_,
                           .row_count = has_room ? row_count : 0,
                           .row_bytes = row_bytes,
                           .stride_bytes = row_bytes};
    staged_bytes_ += rows.row_count * row_bytes;
    return rows;
  }
  absl::Status CopyAhead(const HostRows& rows) override {
    rows_brought.push_back(rows.row_count);
    const size_t begin = PlaceOf(rows.data);
    for (size_t at = begin; at < begin + rows.row_count * rows.row_bytes; ++at) {
      EXPECT_FALSE(is_brought_.at(at)) << "brought twice";
      is_brought_[at] = true;
    }
    return absl::OkStatus();
  }
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override {
    rows_sent.emplace_back();
    for (const DeviceRowPiece& piece : pieces) {
      rows_sent.back().push_back(piece.statuses.size());
      for (size_t i = 0; i < piece.statuses.size(); ++i) {
        if (piece.statuses[i] == kUnanswered) continue;
        Answer& answer = answers[begin_[piece.query] + piece.first + i];
        EXPECT_EQ(answer.status, kUnanswered) << "answered twice";
        answer.status = piece.statuses[i];
        answer.reprobe = piece.reprobe;
        const size_t row_bytes = row_bytes_[piece.query];
        EXPECT_EQ(piece.rows.row_bytes, piece.rows.row_count > 0 ? row_bytes : 0);
        for (size_t at = 0; piece.on_device && at < row_bytes; ++at)
          EXPECT_TRUE(is_brought_.at(PlaceOf(piece.rows.row(i)) + at));
        if (answer.status == KeyStatus::kHitL2)
          answer.row.assign(piece.rows.row(i), piece.rows.row(i) + row_bytes);
      }
    }
    return absl::OkStatus();
  }
  absl::Status ConvertToFloat32() override { return absl::OkStatus(); }
  absl::Status Wait(Deadline) override { return absl::OkStatus(); }
  LookupCounts counts(size_t) const override { return {}; }
  void Return() override {}

  std::vector<Answer> answers;                 // by the number of the miss
  std::vector<std::vector<size_t>> rows_sent;  // of each piece of each Finish
  std::vector<size_t> rows_brought;            // of each CopyAhead
  size_t known_at_a_time = SIZE_MAX / 2;       // misses that a Peek finds
  size_t staging_rows = 10'000;

 private:
  size_t PlaceOf(const std::byte* row) const { return static_cast<size_t>(row - staging_.data()); }

  std::vector<std::span<const Key>> keys_;
  std::vector<size_t> begin_;
  std::vector<uint64_t> positions_;
  std::vector<size_t> row_bytes_;  // by query
  std::vector<std::byte> staging_;
  size_t staged_bytes_ = 0;
  std::vector<size_t> known_;
  std::vector<bool> is_brought_;
};

class MissingCache final : public DeviceCache {
 public:
  int device() const override { return 0; }
  uint64_t TableBytes(size_t, uint64_t) const override { return 0; }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t, uint64_t) override {
    return absl::ResourceExhaustedError("holds nothing");
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t) override { return DeviceCallLease(&call); }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t) override {
    return absl::ResourceExhaustedError("there is one call");
  }
  absl::Status PinHostMemory(std::span<std::byte>) override {
    return absl::UnimplementedError("reads no memory");
  }
  void UnpinHostMemory(std::span<std::byte>) override {}
  bool AwaitReturnedCalls() override { return true; }

  MissingCall call;
};

// Of L2, keys that are multiples of 3 are rows, and those that leave 1 are known to be absent.
WorldTable MakeTable(uint64_t stamp, size_t row_bytes = kRowBytes) {
  const auto dim = static_cast<uint32_t>(row_bytes / sizeof(float));
  WorldTable table = MakeWorldTable({.stamp = stamp, .dim = dim}, nullptr);
  std::vector<Key> rows, absent;
  for (Key key = 0; key < 3000; key += 3) rows.push_back(key);
  for (Key key = 1; key < 3000; key += 3) absent.push_back(key);
  EXPECT_TRUE(table.l2->Insert(StampedQuery(stamp, rows, 0, row_bytes).batch(), 0).ok());
  const std::vector<uint8_t> all_absent(absent.size(), 1);
  StampedQuery batch(stamp, absent, 0, row_bytes);
  RowBatch of_absent = batch.batch();
  of_absent.absent = all_absent;
  EXPECT_TRUE(table.l2->Insert(of_absent, 0).ok());
  return table;
}

class StagedFetchTest : public testing::Test {
 protected:
  static constexpr size_t kKeysMax = 4000;
  static constexpr size_t kHelpers = 4;

  StagedFetchTest() { Use(executor_, kTinyPieces); }
  ~StagedFetchTest() override { executor_.RunAll(); }

  void Use(Executor& executor, const StagedFetchTuning& tuning) {
    fetch_.reset();
    service_ = *FetchService::Create(
        {.fetch_executor = &executor, .promote_executor = &executor, .scratch_count = 2});
    teams_.push_back(std::make_unique<ForkJoinPool>(
        ForkJoinPool::Options{.executor = &executor, .helpers_max = kHelpers}));
    fetch_ = std::make_unique<StagedFetch>(*service_, kKeysMax, teams_.back()->Acquire(), tuning);
  }

  // A call with one query of `key_count` keys for each table; or two for each.
  void Begin(const std::vector<const WorldTable*>& tables, size_t key_count, bool twice = false) {
    arena_.Reset();
    keys_.resize(key_count);
    std::iota(keys_.begin(), keys_.end(), 0);
    const size_t queries_each = twice ? 2 : 1;
    works_.assign(tables.size(), TableLookup());
    queries_.assign(tables.size() * queries_each, QueryLookup());
    for (size_t t = 0; t < tables.size(); ++t) {
      works_[t].table = tables[t]->served.get();
      works_[t].counters = &counters_;
      works_[t].queries = queries_.data();
      works_[t].asks_l2[0] = true;
      works_[t].first_query = &queries_[t * queries_each];
      works_[t].last_query = &queries_[t * queries_each + queries_each - 1];
      if (twice) works_[t].first_query->next_of_table = works_[t].last_query;
    }
    for (size_t q = 0; q < queries_.size(); ++q) {
      queries_[q].table = &works_[q / queries_each];
      queries_[q].keys = keys_.data();
      queries_[q].key_count = key_count;
    }
    for (TableLookup& work : works_) work.hit_rate_threshold = threshold_;
    ASSERT_TRUE(lookup_.Begin(queries_, MemorySpace::kDevice, {}).ok());
    fetch_->Begin(lookup_, works_);
    if (ahead_) fetch_->FetchAhead(works_, kNoDeadline);
    ASSERT_TRUE(lookup_.TakeMisses(queries_, works_, arena_, kNoDeadline).ok());
  }

  // Each key is answered as L2 has it, or stays open; those for which `failed` is true stay open.
  void ExpectAnswers(const std::function<bool(Key)>& failed = [](Key) { return false; }) {
    for (size_t t = 0; t < works_.size(); ++t) {
      std::vector<uint32_t> open;
      for (uint32_t i = 0; i < keys_.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "table " << t << ", key " << keys_[i]);
        const MissingCall::Answer& answer = cache_.call.answers[t * keys_.size() + i];
        if (keys_[i] % 3 == 2 || failed(keys_[i])) {
          ASSERT_EQ(answer.status, kUnanswered);
          open.push_back(i);
        } else if (keys_[i] % 3 == 1) {
          ASSERT_EQ(answer.status, KeyStatus::kAbsent);
        } else {
          ASSERT_EQ(answer.status, KeyStatus::kHitL2);
          ASSERT_TRUE(StampedRow::Matches(t + 1, keys_[i], 0, answer.row));
        }
        ASSERT_EQ(queries_[t].staged_status[i], kUnanswered) << "what is sent is marked so";
      }
      EXPECT_TRUE(std::ranges::equal(works_[t].misses.pending(), open));
      EXPECT_FALSE(works_[t].asks_l2[0]) << "it is asked once";
    }
  }

  bool ahead_ = false;  // Begin fetches what it can while the device probes
  double threshold_ = 1.0;
  ManualExecutor executor_;
  MissingCache cache_;
  LookupCounters counters_;
  const WorldTable a_ = MakeTable(1);
  const WorldTable b_ = MakeTable(2);
  std::vector<std::unique_ptr<ForkJoinPool>> teams_;
  std::unique_ptr<FetchService> service_;
  CacheLookup lookup_{cache_, kKeysMax};
  std::unique_ptr<StagedFetch> fetch_;
  MissArena arena_{kKeysMax, 4};
  std::vector<Key> keys_;
  std::vector<TableLookup> works_;
  std::vector<QueryLookup> queries_;
};

TEST_F(StagedFetchTest, EveryMissIsFetchedOnceAndSent) {
  for (const size_t key_count : {0, 1, 31, 32, 33, 1000}) {
    SCOPED_TRACE(key_count);
    const uint64_t fetched = a_.l2_log->keys_fetched;
    Begin({&a_, &b_}, key_count);
    fetch_->Fetch(works_, kSendWaitMax);
    if (key_count > 0) ExpectAnswers();
    EXPECT_EQ(a_.l2_log->keys_fetched - fetched, key_count);
    executor_.RunAll();
  }
}

TEST_F(StagedFetchTest, HelpersAndTheCallerShareThePieces) {
  auto pool = *WorkerPool::Create({.name = "helpers", .thread_count = 3});
  Use(*pool, kTinyPieces);
  for (int call = 0; call < 50; ++call) {
    ahead_ = call % 2 == 0;
    Begin({&a_, &b_}, 500);
    fetch_->Fetch(works_, kSendWaitMax);
    ExpectAnswers();
  }
  pool.reset();  // its last task ends before the teams do
}

// Pieces have four rows, of 32 bytes each.
TEST_F(StagedFetchTest, AnswersAreSentTogetherFromTheRowsThatAreThere) {
  Use(executor_, {.piece_bytes = 128, .send_bytes = 300});
  Begin({&a_}, 40);
  fetch_->Fetch(works_, kSendWaitMax);
  EXPECT_THAT(cache_.call.rows_sent,
              ElementsAre(ElementsAre(12), ElementsAre(12), ElementsAre(12), ElementsAre(4)));
  EXPECT_THAT(cache_.call.rows_brought, IsEmpty()) << "nobody has fetched ahead";
}

TEST_F(StagedFetchTest, MissesAreFetchedWhileTheDeviceProbes) {
  ahead_ = true;
  for (const size_t at_a_time : {1, 3, 4, 5, 50, 5000}) {
    for (const size_t key_count : {0, 1, 31, 32, 33, 1000}) {
      SCOPED_TRACE(testing::Message() << key_count << " keys, known " << at_a_time << " at a time");
      cache_.call.known_at_a_time = at_a_time;
      const uint64_t fetched = a_.l2_log->keys_fetched;
      Begin({&a_, &b_}, key_count);
      EXPECT_EQ(queries_[0].fetched_ahead, key_count);
      EXPECT_EQ(queries_[1].fetched_ahead, key_count);
      EXPECT_THAT(cache_.call.rows_sent, IsEmpty()) << "the probe may still be at work";
      fetch_->Fetch(works_, kSendWaitMax);
      if (key_count > 0) ExpectAnswers();
      EXPECT_EQ(a_.l2_log->keys_fetched - fetched, key_count);
      executor_.RunAll();
    }
  }
}

// Catches: rows of two tables are copied together as if they had the same width.
TEST_F(StagedFetchTest, RowsOfSeveralWidthsAreBroughtWhole) {
  Use(executor_, {.piece_bytes = 512, .copy_ahead_bytes_min = 1500, .bring_bytes_max = 1500});
  ahead_ = true;
  cache_.call.known_at_a_time = 2;
  const WorldTable wide = MakeTable(2, 4 * kRowBytes);
  Begin({&a_, &wide}, 100);
  EXPECT_THAT(cache_.call.rows_brought, Not(IsEmpty()));
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
}

// A piece of four rows, 128 bytes, comes together in two looks at the device; between them the
// caller fetches the last one.
TEST_F(StagedFetchTest, RowsAreBroughtBeforeTheyAreAnswered) {
  Use(executor_, {.piece_bytes = 128, .copy_ahead_bytes_min = 100, .bring_bytes_max = 256});
  ahead_ = true;
  cache_.call.known_at_a_time = 2;
  Begin({&a_}, 40);
  EXPECT_THAT(cache_.call.rows_brought, ElementsAre(4, 4, 8, 8, 8));
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
  EXPECT_THAT(cache_.call.rows_brought, ElementsAre(4, 4, 8, 8, 8, 8)) << "goes on as it began";
  EXPECT_THAT(cache_.call.rows_sent, ElementsAre(ElementsAre(40)));
}

TEST_F(StagedFetchTest, WhatIsOnItsWayIsAnsweredLast) {
  Use(executor_, {.piece_bytes = 128, .copy_ahead_bytes_min = 100, .bring_bytes_max = 256});
  ahead_ = true;
  cache_.call.known_at_a_time = 2;
  cache_.call.staging_rows = 32;  // the others have to wait for the end of the probe
  Begin({&a_}, 40);
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
  EXPECT_THAT(cache_.call.rows_sent, ElementsAre(ElementsAre(8), ElementsAre(32)));
}

TEST_F(StagedFetchTest, WhatTheStagingHasNoRoomForIsFetchedAfterTheProbe) {
  ahead_ = true;
  for (const size_t staging_rows : {0, 3, 4, 37, 999, 1000, 1004, 1999}) {
    SCOPED_TRACE(staging_rows);
    cache_.call.staging_rows = staging_rows;
    Begin({&a_, &b_}, 1000);
    EXPECT_LE(queries_[0].fetched_ahead + queries_[1].fetched_ahead, staging_rows);
    fetch_->Fetch(works_, kSendWaitMax);
    ExpectAnswers();
    executor_.RunAll();
  }
}

TEST_F(StagedFetchTest, TablesWhoseCallsMayNotWaitAreLeftToTheMissPolicy) {
  ahead_ = true;
  threshold_ = 0.9;
  Begin({&a_}, 100);
  EXPECT_EQ(a_.l2_log->fetches, 0);
  EXPECT_EQ(queries_[0].fetched_ahead, 0);
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
}

TEST_F(StagedFetchTest, HelpersAreCalledWhereTheWorkIsWorthIt) {
  Use(executor_, {.piece_bytes = 128, .alone_max = std::chrono::microseconds(10)});
  Begin({&a_}, 100);  // under 2 us of work
  fetch_->Fetch(works_, kSendWaitMax);
  EXPECT_EQ(executor_.queued_count(), 0);
  ahead_ = true;
  Begin({&a_}, 1);
  EXPECT_EQ(executor_.queued_count(), 0);
  fetch_->DismissHelpers();

  ahead_ = false;
  Begin({&a_}, 3000);  // 54 us: a helper for each 20
  fetch_->Fetch(works_, kSendWaitMax);
  EXPECT_EQ(executor_.queued_count(), 2);
  executor_.RunAll();
  ahead_ = true;
  Begin({&a_}, 1);
  EXPECT_EQ(executor_.queued_count(), 2) << "as many as the last call needed";
  fetch_->DismissHelpers();
  executor_.RunAll();
}

// Catches: a call does not call its helpers because the call before called as many, although those
// have been dismissed.
TEST_F(StagedFetchTest, EachCallThatIsNotFetchedAheadCallsItsHelpers) {
  Use(executor_, {.piece_bytes = 128, .alone_max = std::chrono::microseconds(10)});
  for (int call = 0; call < 3; ++call) {
    Begin({&a_}, 3000);
    fetch_->Fetch(works_, kSendWaitMax);
    ExpectAnswers();
    EXPECT_EQ(executor_.queued_count(), 2);
    executor_.RunAll();
  }
}

// Catches: a call without a helper because the device has read the misses of the call before.
TEST_F(StagedFetchTest, ACallThatTheDeviceAnswersLeavesTheNumberOfHelpers) {
  Use(executor_, {.piece_bytes = 128, .alone_max = std::chrono::microseconds(10)});
  Begin({&a_}, 3000);
  fetch_->Fetch(works_, kSendWaitMax);
  executor_.RunAll();
  Begin({&a_}, 100);
  queries_[0].direct = true;
  works_[0].misses.ClearPending();
  fetch_->Fetch(works_, kSendWaitMax);
  EXPECT_THAT(cache_.call.rows_sent, IsEmpty());
  EXPECT_EQ(executor_.queued_count(), 0);
  ahead_ = true;
  Begin({&a_}, 1);
  EXPECT_EQ(executor_.queued_count(), 2) << "as many as the host's last call needed";
  fetch_->DismissHelpers();
  executor_.RunAll();
}

// Catches: pieces of a failed call are sent as answers of the next call. That one does not call
// FetchAhead, because the device may read level 2.
TEST_F(StagedFetchTest, ACallThatComesToNothingLeavesNothingToTheNext) {
  ahead_ = true;
  Begin({&a_}, 60);
  ASSERT_EQ(queries_[0].fetched_ahead, 60);
  fetch_->DismissHelpers();
  lookup_.Abandon();
  const uint64_t fetched = a_.l2_log->keys_fetched;
  ahead_ = false;
  Begin({&a_}, 100);
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
  EXPECT_EQ(a_.l2_log->keys_fetched - fetched, 100) << "each of its own misses, and no other";
}

TEST_F(StagedFetchTest, APieceThatFailsStaysOpenAndTheOthersStand) {
  const ApplyEpoch open = a_.served->epochs().Begin();
  Begin({&a_}, 40);
  a_.l2_faults->Plan(TierOperation::kFetch, {.calls_skipped = 2, .times = 3});
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers([](Key key) { return key >= 8 && key < 20; });
  ErrorCounts errors{};
  EXPECT_EQ(counters_.l2_errors().AddTo(&errors), 1) << "one for the call";
  EXPECT_TRUE(a_.served->l2()[0].health().quarantined());
  a_.served->epochs().Publish(open);
}

// What is not for it is left to others, untouched.
TEST_F(StagedFetchTest, AnL2ThatCanBlockOrIsPassedByIsNotAsked) {
  const auto expect_untouched = [&] {
    fetch_->Fetch(works_, kSendWaitMax);
    EXPECT_THAT(cache_.call.rows_sent, IsEmpty());
    EXPECT_EQ(works_[0].misses.pending().size(), 40);
    EXPECT_EQ(a_.l2_log->fetches, 0);
  };
  Begin({&a_}, 40, true);  // two queries of one table
  expect_untouched();
  EXPECT_TRUE(works_[0].asks_l2[0]);
  Begin({&a_}, 40);
  works_[0].asks_l2[0] = false;
  expect_untouched();
  Begin({&a_}, 40);
  a_.l2_faults->set_can_block(true);
  expect_untouched();
  EXPECT_TRUE(works_[0].asks_l2[0]);
}

// The device may have taken the older row between its probe and the answer.
TEST_F(StagedFetchTest, PiecesThatAChangeHasMetAreProbedAgain) {
  ApplyEpoch open = 0;
  Begin({&a_}, 40);
  a_.l2_faults->Plan(TierOperation::kFetch,
                     {.fault = TierFault::kNone, .calls_skipped = 4, .times = 1, .before = [&] {
                        open = a_.served->epochs().Begin();
                      }});
  fetch_->Fetch(works_, kSendWaitMax);
  ExpectAnswers();
  EXPECT_FALSE(cache_.call.answers[0].reprobe);
  EXPECT_TRUE(cache_.call.answers[39].reprobe);
  a_.served->epochs().Publish(open);
}

}  // namespace
}  // namespace hps
