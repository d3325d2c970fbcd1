#include "query/fetch/staged_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "query/test_query_world.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr size_t kRowBytes = 32;
constexpr size_t kKeys = 12;

// One query for keys 0 to 11. Level 1 lacks all of them; level 2 holds the even keys.
class StagedPiecesTest : public testing::Test {
 protected:
  StagedPiecesTest() {
    std::iota(keys_.begin(), keys_.end(), 0);
    const std::vector<Key> even = {0, 2, 4, 6, 8, 10};
    EXPECT_TRUE(table_.l2->Insert(StampedQuery(1, even, 0, kRowBytes).batch(), 0).ok());
    work_.table = table_.served.get();
    work_.first_query = work_.last_query = &query_;
    query_.staged_status = statuses_;
  }

  void Add(size_t first, size_t count) {
    pieces_.Add(work_, first, std::span(keys_).subspan(first, count),
                {.data = rows_.data() + first * kRowBytes,
                 .row_count = count,
                 .row_bytes = kRowBytes,
                 .stride_bytes = kRowBytes});
  }

  const WorldTable table_ = MakeWorldTable({}, nullptr);
  std::vector<Key> keys_ = std::vector<Key>(kKeys);
  std::vector<std::byte> rows_ = std::vector<std::byte>(kKeys * kRowBytes);
  std::vector<KeyStatus> statuses_ = std::vector<KeyStatus>(kKeys, KeyStatus{0xcc});
  QueryLookup query_;
  TableLookup work_;
  StagedPieces pieces_{kKeys};
};

TEST_F(StagedPiecesTest, APieceWritesOnlyWhatIsItsOwn) {
  Add(0, 4);
  Add(4, 4);
  EXPECT_EQ(pieces_.work().pieces, 2u);
  EXPECT_EQ(pieces_.work().rows, 8u);
  EXPECT_EQ(pieces_.work().bytes, 8 * kRowBytes);
  pieces_.RunPiece(1);
  const StagedPiece& piece = pieces_[1];
  EXPECT_TRUE(piece.is_fetched());
  EXPECT_FALSE(pieces_[0].is_fetched());
  EXPECT_EQ(piece.hit_count, 2u);
  EXPECT_EQ(piece.absent_count, 0u);
  EXPECT_THAT(std::span(statuses_).subspan(4, 4),
              ElementsAre(KeyStatus::kHitL2, kUnanswered, KeyStatus::kHitL2, kUnanswered));
  EXPECT_THAT(std::span(statuses_).first(4), Each(KeyStatus{0xcc}));
  EXPECT_THAT(std::span(statuses_).subspan(8), Each(KeyStatus{0xcc}));
  EXPECT_TRUE(StampedRow::Matches(1, 6, 0, std::span(rows_).subspan(6 * kRowBytes, kRowBytes)));
  EXPECT_EQ(pieces_.outcomes_of(work_)[4], FetchOutcome::kHit);
}

TEST_F(StagedPiecesTest, WhatIsFetchedGoesUpToTheFirstPieceThatIsNot) {
  for (size_t first = 0; first < kKeys; first += 4) Add(first, 4);
  pieces_.RunPiece(1);
  EXPECT_EQ(pieces_.TakeFetched().pieces, 0u);
  pieces_.RunPiece(0);
  EXPECT_EQ(pieces_.TakeFetched().pieces, 2u);
  EXPECT_EQ(pieces_.TakeFetched().bytes, 8 * kRowBytes);
  EXPECT_FALSE(pieces_.are_all_fetched());
  pieces_.RunPiece(2);
  EXPECT_EQ(pieces_.TakeFetched().pieces, 3u);
  EXPECT_TRUE(pieces_.are_all_fetched());
  pieces_.Begin();
  EXPECT_TRUE(pieces_.are_all_fetched());
  EXPECT_TRUE(pieces_.all().empty());
  Add(0, 4);
  EXPECT_EQ(pieces_.TakeFetched().pieces, 0u) << "a piece of the last call was in its place";
}

TEST_F(StagedPiecesTest, APieceThatFailsAnswersNothing) {
  table_.l2_faults->Plan(TierOperation::kFetch, {.times = 1});
  Add(0, 4);
  pieces_.RunPiece(0);
  EXPECT_TRUE(pieces_[0].is_fetched());
  EXPECT_NE(pieces_[0].code, absl::StatusCode::kOk);
  EXPECT_EQ(pieces_[0].hit_count, 0u);
  EXPECT_THAT(std::span(statuses_).first(4), Each(kUnanswered));
}

}  // namespace
}  // namespace hps
