// Lookups on a device that are cut into pieces, of which the next one is probed while the misses of
// the present one are answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "base/circuit_breaker.h"
#include "query/test_query_world.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

// Two tables, one of which is divided among several pieces; every row is in a level, at random. The
// device has one call for one lookup.
class PiecesTest : public testing::Test {
 protected:
  static constexpr size_t kRowBytes = 32;
  static constexpr size_t kPieceKeys = 16;
  static constexpr Key kRows = 60;  // of each table; the keys from there on are absent

  PiecesTest() {
    for (WorldTable* table : {&a_, &b_})
      table->served->AttachL1(0, *cache_->OpenTable(kRowBytes, cache_->TableBytes(kRowBytes, 200)));
    world_.Publish({&a_, &b_});
    session_ = world_.NewSession({.device = 0, .keys_max = kPieceKeys});
    keys_[0].resize(50);
    keys_[1].resize(23);
    for (std::vector<Key>& keys : keys_) {
      std::iota(keys.begin(), keys.end(), Key{0});
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = keys[i] * 29 % (kRows + 5);
    }
    // A third is in level 1 (and 2), another one in level 2.
    std::vector<Key> some;
    for (Key key = 0; key < kRows; key += 3) some.push_back(key);
    for (const uint32_t table : {0U, 1U}) {
      for (const Key key : some) Ask(*session_, {key}, table);
      StampedQuery rows(table + 1, {1, 4, 7, 10, 13, 16, 19, 22, 25}, 0, kRowBytes);
      EXPECT_TRUE((table == 0 ? a_ : b_).l2->Insert(rows.batch(), 0).ok());
    }
    world_.executor().RunAll();
  }

  static std::vector<Key> AllKeys() {
    std::vector<Key> keys(kRows);
    std::iota(keys.begin(), keys.end(), Key{0});
    return keys;
  }

  // One lookup of all keys of both tables: five pieces. Where it succeeds, each position has its
  // own answer.
  template <MemorySpace kSpace>
  absl::Status AskAll(LookupCounts* counts = nullptr, LookupRequest<kSpace> request = {}) {
    std::vector<TableQuery<kSpace>> queries;
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::vector<KeyStatus>> statuses;
    for (const std::vector<Key>& keys : keys_) {
      rows.emplace_back(keys.size() * kRowBytes, std::byte{0xcc});
      statuses.emplace_back(keys.size(), KeyStatus{0xcc});
    }
    for (uint32_t t = 0; t < 2; ++t) {
      queries.push_back({.table = {t},
                         .keys = {keys_[t].data(), keys_[t].size()},
                         .rows = {rows[t].data(), rows[t].size()},
                         .status = {statuses[t].data(), statuses[t].size()}});
    }
    LookupCounts sum;
    request.queries = queries;
    const absl::Status status = session_->Lookup(request, &sum);
    if (!status.ok()) return status;
    EXPECT_EQ(sum.total(), keys_[0].size() + keys_[1].size());
    for (uint32_t t = 0; t < 2; ++t) {
      for (size_t i = 0; i < keys_[t].size(); ++i) {
        const Key key = keys_[t][i];
        SCOPED_TRACE(testing::Message() << "table " << t << ", key " << key);
        EXPECT_EQ(statuses[t][i] == KeyStatus::kAbsent, key >= kRows);
        EXPECT_LE(statuses[t][i], KeyStatus::kHitL3);
        if (key >= kRows) continue;
        EXPECT_TRUE(StampedRow::Matches(t + 1, key, 0,
                                        std::span(rows[t]).subspan(i * kRowBytes, kRowBytes)));
      }
    }
    if (counts != nullptr) *counts = sum;
    return status;
  }

  TierFaults faults_;
  const std::unique_ptr<DeviceCache> cache_ =
      WithFaults(*MakeHostCache({.device = 0,
                                 .bytes_max = uint64_t{4} << 20,
                                 .calls_max = 1,
                                 .call_keys_max = kPieceKeys}),
                 &faults_);
  WorldTable a_ = MakeWorldTable({.keys = AllKeys()}, nullptr);
  WorldTable b_ = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = AllKeys()}, nullptr);
  World world_{0, {cache_.get()}, {.tuning = kTinyPieces}};
  std::unique_ptr<LookupSession> session_;
  std::vector<Key> keys_[2];
};

// Catches: a device that waits for the host to answer the misses of the last piece.
TEST_F(PiecesTest, TheNextPieceIsProbedBeforeTheMissesOfTheLastOneAreTaken) {
  std::vector<uint64_t> begun;
  faults_.Plan(TierOperation::kMisses, {.fault = TierFault::kNone, .before = [&] {
                                          begun.push_back(faults_.calls(TierOperation::kBegin));
                                        }});
  const uint64_t before = faults_.calls(TierOperation::kBegin);
  LookupCounts counts;
  ASSERT_TRUE(AskAll<MemorySpace::kDevice>(&counts).ok());
  for (const KeyStatus level : {KeyStatus::kHitL1, KeyStatus::kHitL2, KeyStatus::kHitL3})
    EXPECT_GT(counts[level], 0U);
  EXPECT_EQ(faults_.calls(TierOperation::kBegin) - before, 5U);
  ASSERT_FALSE(begun.empty());
  EXPECT_EQ(begun.front() - before, 2U);
  EXPECT_TRUE(std::is_sorted(begun.begin(), begun.end()));
}

TEST_F(PiecesTest, EveryPositionIsAnsweredOnTheHostAndOnTheDevice) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(AskAll<MemorySpace::kHost>().ok());
    EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok());
    world_.executor().RunAll();
  }
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 0U);
}

// Catches: a piece that has been begun, when another one fails, and that is answered twice, or not
// at all, or keeps its call.
TEST_F(PiecesTest, ADeviceThatFailsInAnyStepOfAnyPieceFailsNoLookupOnTheHost) {
  for (const TierOperation step :
       {TierOperation::kAcquireCall, TierOperation::kBegin, TierOperation::kMisses,
        TierOperation::kFinish, TierOperation::kWait}) {
    for (const TierFault fault : {TierFault::kFail, TierFault::kFailLate}) {
      for (const absl::Status& status : {absl::UnavailableError("the device is away"),
                                         absl::ResourceExhaustedError("there is no room")}) {
        for (uint64_t skipped = 0; skipped < 6; ++skipped) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(step) << ", " << status << ", "
                                          << static_cast<int>(fault) << ", after " << skipped);
          for (WorldTable* table : {&a_, &b_})
            ASSERT_TRUE(
                table->served->l1(0)->Erase(std::vector<Key>{29, 30, 58}, kNoDeadline).ok());
          faults_.Plan(step,
                       {.fault = fault, .status = status, .calls_skipped = skipped, .times = 1});
          EXPECT_TRUE(AskAll<MemorySpace::kHost>().ok());
          world_.executor().RunAll();
          world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
          faults_.Plan(step,
                       {.fault = fault, .status = status, .calls_skipped = skipped, .times = 1});
          AskAll<MemorySpace::kDevice>().IgnoreError();
          faults_.Clear();
          world_.executor().manual_clock().Advance(CircuitBreaker::kRest);
          EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok()) << "all calls have come back";
          world_.executor().RunAll();
        }
      }
    }
  }
}

// Catches: a lookup that fails because the device has no second call to spare for it.
TEST_F(PiecesTest, WhereNoCallIsToSpareAPieceIsBegunInItsTurn) {
  for (const uint64_t skipped : {1, 3}) {
    faults_.Plan(TierOperation::kAcquireCall,
                 {.status = absl::ResourceExhaustedError("all are leased"),
                  .calls_skipped = skipped,
                  .times = 1});
    EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok());
    EXPECT_TRUE(AskAll<MemorySpace::kHost>().ok());
    EXPECT_EQ(world_.statistics().tables[0].l1.errors, 0U);
  }
  const DeviceCallLease others = *cache_->AcquireCallAhead(kPieceKeys);
  EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok());
  EXPECT_TRUE(AskAll<MemorySpace::kHost>().ok());
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 0U);
}

// Catches: a lookup that fails because there is no memory for the piece that is prepared ahead.
TEST_F(PiecesTest, WhereThereIsNoMemoryForAPieceAheadItIsBegunInItsTurn) {
  for (const TierOperation step : {TierOperation::kAcquireCall, TierOperation::kBegin}) {
    for (const uint64_t skipped : {1, 2, 4}) {
      const auto plan = [&] {
        faults_.Plan(
            step, {.fault = TierFault::kNone, .calls_skipped = skipped, .times = 1, .before = [] {
                     throw std::bad_alloc();
                   }});
      };
      plan();
      EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok());
      plan();
      EXPECT_TRUE(AskAll<MemorySpace::kHost>().ok());
    }
  }
  faults_.Clear();
  EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok()) << "all calls have come back";
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 0U);
}

// Catches: hits of the next piece that land in outputs which the caller has freed after an error.
TEST_F(PiecesTest, AfterAnErrorTheProbeOfTheNextPieceIsWaitedFor) {
  int callers_stream = 0;  // the host's cache does not look at it
  for (const bool has_stream : {false, true}) {
    uint64_t waits = 0;
    faults_.Plan(TierOperation::kFinish,
                 {.status = absl::ResourceExhaustedError("no room"), .times = 1, .before = [&] {
                    waits = faults_.calls(TierOperation::kMisses);
                  }});
    DeviceLookupRequest request;
    if (has_stream) request.stream.handle = &callers_stream;
    EXPECT_EQ(AskAll<MemorySpace::kDevice>(nullptr, request).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(faults_.calls(TierOperation::kMisses) - waits, has_stream ? 0U : 1U)
        << "the caller's stream orders what is written";
  }
  EXPECT_TRUE(AskAll<MemorySpace::kDevice>().ok()) << "all calls have come back";
}

// Catches: a level 2 that is asked again by the next piece, which was begun before it failed.
TEST_F(PiecesTest, ALevel2ThatFailsForOnePieceIsNotAskedByTheNext) {
  const ApplyEpoch open = a_.served->epochs().Begin();
  a_.l2_faults->Plan(TierOperation::kFetch, {.times = 1});
  const uint64_t asked = a_.l2_faults->calls(TierOperation::kFetch);
  ASSERT_TRUE(AskAll<MemorySpace::kDevice>().ok());
  EXPECT_TRUE(a_.served->l2()[0].health().quarantined());
  const uint64_t of_first_piece = a_.l2_faults->calls(TierOperation::kFetch) - asked;
  ASSERT_TRUE(AskAll<MemorySpace::kDevice>().ok());
  EXPECT_EQ(a_.l2_faults->calls(TierOperation::kFetch) - asked, of_first_piece)
      << "while a change is open";
  a_.served->epochs().Publish(open);
}

}  // namespace
}  // namespace hps
