#include "query/fetch/direct_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "query/test_query_world.h"

namespace hps {
namespace {

using testing::Each;

constexpr size_t kRowBytes = 32;
constexpr KeyStatus kUntouched{0xcc};

// One query of one table, of whose L2 a third of the keys are rows, and a third known to be absent.
class DirectFetchTest : public testing::Test {
 protected:
  explicit DirectFetchTest(Dtype dtype = Dtype::kFloat32)
      : dim_(kRowBytes / ElementBytes(dtype)),
        table_(MakeWorldTable({.dim = static_cast<uint32_t>(dim_), .dtype = dtype}, nullptr)) {
    std::vector<Key> rows, absent;
    for (Key key = 0; key < 300; key += 3) rows.push_back(key);
    for (Key key = 1; key < 300; key += 3) absent.push_back(key);
    EXPECT_TRUE(table_.l2->Insert(StampedQuery(1, rows, 0, kRowBytes).batch(), 0).ok());
    const std::vector<uint8_t> all_absent(absent.size(), 1);
    StampedQuery batch(1, absent, 0, kRowBytes);
    RowBatch of_absent = batch.batch();
    of_absent.absent = all_absent;
    EXPECT_TRUE(table_.l2->Insert(of_absent, 0).ok());
    work_.table = table_.served.get();
    work_.counters = &counters_;
    work_.first_query = work_.last_query = &query_;
    work_.asks_l2[0] = true;
  }

  // Keys from a range that is walked again and again, so that there are duplicates.
  void Prepare(size_t key_count, bool as_float32, size_t stride_bytes) {
    keys_.resize(key_count);
    for (size_t i = 0; i < key_count; ++i) keys_[i] = static_cast<Key>((i * 7) % 300);
    statuses_.assign(key_count, kUntouched);
    rows_.assign(key_count * stride_bytes, std::byte{0xcc});
    query_ = QueryLookup();
    query_.table = &work_;
    query_.keys = keys_.data();
    query_.key_count = key_count;
    query_.status = statuses_.data();
    query_.out = OutputRows(*table_.served, as_float32, rows_.data(), stride_bytes);
  }

  void ExpectAnswers(const DirectFetch& fetch, size_t out_bytes, size_t stride_bytes) {
    LookupCounts expected;
    for (size_t i = 0; i < keys_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "position " << i << ", key " << keys_[i]);
      const auto row = std::span(rows_).subspan(i * stride_bytes, stride_bytes);
      EXPECT_THAT(row.subspan(out_bytes), Each(std::byte{0xcc})) << "wrote between the rows";
      ASSERT_EQ(fetch.IsAnswered(i), keys_[i] % 3 != 2);
      if (keys_[i] % 3 == 2) {
        ASSERT_EQ(statuses_[i], kUntouched);
        continue;
      }
      std::vector<std::byte> wanted(out_bytes);
      if (keys_[i] % 3 == 0) {
        const std::vector<std::byte> native = Stamped(1, keys_[i], 0, kRowBytes);
        OutputRows(*table_.served, query_.out.converts(), wanted.data(), out_bytes)
            .Write(0, native.data());
      }
      ASSERT_TRUE(std::ranges::equal(row.first(out_bytes), wanted));
      ASSERT_EQ(statuses_[i], keys_[i] % 3 == 0 ? KeyStatus::kHitL2 : KeyStatus::kAbsent);
      ++expected[statuses_[i]];
    }
    EXPECT_EQ(query_.counts.by_status, expected.by_status);
    EXPECT_EQ(fetch.answered_all(), expected.total() == keys_.size());
  }

  const size_t dim_;
  const WorldTable table_;
  LookupCounters counters_;
  TableLookup work_;
  QueryLookup query_;
  std::vector<Key> keys_;
  std::vector<KeyStatus> statuses_;
  std::vector<std::byte> rows_;
};

class ConvertingFetchTest : public DirectFetchTest {
 protected:
  ConvertingFetchTest() : DirectFetchTest(Dtype::kBfloat16) {}
};

TEST_F(DirectFetchTest, EveryPositionIsAnsweredInItsPlace) {
  DirectFetch fetch(1000, 0);
  for (const size_t key_count : {0, 1, 2, 31, 32, 33, 1000}) {
    for (const size_t stride_bytes : {kRowBytes, kRowBytes + 8}) {
      Prepare(key_count, false, stride_bytes);
      ASSERT_TRUE(fetch.Fetch(work_, query_, kNoDeadline));
      ExpectAnswers(fetch, kRowBytes, stride_bytes);
    }
  }
}

// Rows are converted 256 at a time.
TEST_F(ConvertingFetchTest, EveryPositionIsAnsweredInItsPlace) {
  const size_t out_bytes = dim_ * sizeof(float);
  DirectFetch fetch(1000, kRowBytes);
  for (const size_t key_count : {0, 1, 31, 255, 256, 257, 512, 1000}) {
    Prepare(key_count, true, out_bytes + 8);
    ASSERT_TRUE(query_.out.converts());
    ASSERT_TRUE(fetch.Fetch(work_, query_, kNoDeadline));
    ExpectAnswers(fetch, out_bytes, out_bytes + 8);
  }
}

TEST_F(DirectFetchTest, AllHitsAreAnsweredAlsoWithoutStatuses) {
  DirectFetch fetch(2, 0);
  Prepare(2, false, kRowBytes);
  keys_ = {3, 6};
  query_.status = nullptr;
  ASSERT_TRUE(fetch.Fetch(work_, query_, kNoDeadline));
  EXPECT_TRUE(fetch.answered_all());
  EXPECT_EQ(query_.counts[KeyStatus::kHitL2], 2);
  EXPECT_TRUE(StampedRow::Matches(1, 6, 0, std::span(rows_).last(kRowBytes)));
}

TEST_F(DirectFetchTest, AnL2ThatIsPassedByOrCanBlockIsNotAsked) {
  DirectFetch fetch(8, 0);
  Prepare(8, false, kRowBytes);
  work_.asks_l2[0] = false;
  EXPECT_FALSE(fetch.Fetch(work_, query_, kNoDeadline));
  work_.asks_l2[0] = true;
  table_.l2_faults->set_can_block(true);
  EXPECT_FALSE(fetch.Fetch(work_, query_, kNoDeadline));
  EXPECT_TRUE(work_.asks_l2[0]) << "it can be asked in a way that may block";
  EXPECT_EQ(table_.l2_log->fetches, 0);
  EXPECT_THAT(rows_, Each(std::byte{0xcc}));
}

TEST_F(ConvertingFetchTest, AnL2ThatFailsHalfWayHasAnsweredNothing) {
  DirectFetch fetch(600, kRowBytes);
  Prepare(600, true, dim_ * sizeof(float));
  const ApplyEpoch open = table_.served->epochs().Begin();
  table_.l2_faults->Plan(TierOperation::kFetch, {.calls_skipped = 1, .times = 1});
  EXPECT_FALSE(fetch.Fetch(work_, query_, kNoDeadline));
  EXPECT_THAT(statuses_, Each(kUntouched));
  EXPECT_EQ(query_.counts.total(), 0);
  ErrorCounts errors{};
  EXPECT_EQ(counters_.l2_errors().AddTo(&errors), 1);
  EXPECT_TRUE(table_.served->l2()[0].health().quarantined());
  const uint64_t fetches = table_.l2_log->fetches;
  EXPECT_FALSE(fetch.Fetch(work_, query_, kNoDeadline)) << "not in this call any more";
  EXPECT_EQ(table_.l2_log->fetches, fetches);
  table_.served->epochs().Publish(open);
}

}  // namespace
}  // namespace hps
