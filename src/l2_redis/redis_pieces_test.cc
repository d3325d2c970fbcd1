#include "l2_redis/redis_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

class RedisPiecesTest : public testing::Test {
 protected:
  RedisPiecesTest() {
    for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = static_cast<Key>(i * i);
  }

  // The commands of a request.
  std::string Bytes(size_t request) const {
    const RedisRequest& of = pieces_.requests[request];
    return pieces_.bytes.substr(of.begin, of.end - of.begin);
  }
  std::string Names(const RedisPiece& piece) const {
    std::string names;
    for (const uint32_t i : pieces_.PositionsOf(piece))
      names_.AppendName(piece.partition, piece.generation, keys_[i], names);
    return names;
  }
  std::string ChangeName(const RedisPiece& piece) const {
    std::string name;
    names_.AppendChangeName(piece.partition, piece.generation, name);
    return name;
  }

  const RowNames names_{"hps", 1, 7};
  const std::unique_ptr<SlotMap> slots_ = std::make_unique<SlotMap>();
  std::vector<Key> keys_ = std::vector<Key>(1000);
  RedisPieces pieces_;
};

TEST_F(RedisPiecesTest, EachKeyIsInOnePieceOfItsPartition) {
  slots_->EndEpoch(names_.slot(3));
  for (const size_t keys_max : {size_t{1}, size_t{31}, size_t{1000}}) {
    pieces_.Divide(names_, *slots_, keys_, keys_max);
    ASSERT_EQ(pieces_.requests.size(), pieces_.pieces.size());
    std::set<uint32_t> seen;
    std::map<size_t, size_t> count_of;  // pieces by partition
    for (size_t i = 0; i < pieces_.pieces.size(); ++i) {
      const RedisPiece& piece = pieces_.pieces[i];
      EXPECT_GT(piece.count, 0u);
      EXPECT_LE(piece.count, keys_max);
      EXPECT_EQ(pieces_.requests[i].slot, names_.slot(piece.partition));
      EXPECT_EQ(pieces_.requests[i].epoch, piece.partition == 3 ? 1u : 0u);
      ++count_of[piece.partition];
      for (const uint32_t position : pieces_.PositionsOf(piece)) {
        EXPECT_EQ(names_.PartitionOf(keys_[position]), piece.partition);
        EXPECT_TRUE(seen.insert(position).second);
      }
    }
    EXPECT_EQ(seen.size(), keys_.size());
    EXPECT_EQ(count_of.size(), names_.partition_count());
    if (keys_max == 1000) {
      EXPECT_EQ(pieces_.pieces.size(), names_.partition_count());
    }
  }
}

TEST_F(RedisPiecesTest, APartitionWithoutKeysHasAPieceOnRequest) {
  const std::vector<Key> one = {5};
  for (const std::vector<Key>& keys : {std::vector<Key>{}, one}) {
    pieces_.Divide(names_, *slots_, keys, keys.size(), /*with_empty=*/true);
    ASSERT_EQ(pieces_.pieces.size(), names_.partition_count());
    size_t count = 0;
    for (const RedisPiece& piece : pieces_.pieces) count += piece.count;
    EXPECT_EQ(count, keys.size());
    pieces_.Divide(names_, *slots_, keys, 512);
    EXPECT_EQ(pieces_.pieces.size(), keys.size());
  }
}

TEST_F(RedisPiecesTest, KeepsPiecesAsTheyWereBeforeTheirRequestsWereSent) {
  pieces_.Divide(names_, *slots_, keys_, 31);
  pieces_.WriteErasures();
  for (RedisRequest& request : pieces_.requests) request.sent = request.answered = true;
  const std::vector<RedisPiece> before = pieces_.pieces;
  const std::vector<size_t> kept = {0, 3, before.size() - 1};
  pieces_.Keep(kept);
  ASSERT_EQ(pieces_.pieces.size(), kept.size());
  ASSERT_EQ(pieces_.requests.size(), kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(pieces_.pieces[i].first, before[kept[i]].first);
    EXPECT_EQ(pieces_.requests[i].slot, names_.slot(before[kept[i]].partition));
    EXPECT_FALSE(pieces_.requests[i].sent || pieces_.requests[i].answered);
  }
  pieces_.Keep({});
  EXPECT_TRUE(pieces_.pieces.empty());
}

TEST_F(RedisPiecesTest, WritesCommands) {
  const RedisScript script = {.text = "return 1", .sha1 = "abc"};
  for (int round = 0; round < 2; ++round) {  // the second reuses the pieces
    pieces_.Divide(names_, *slots_, keys_, 31);
    for (size_t i = 0; i < pieces_.pieces.size(); ++i) pieces_.pieces[i].generation = i;
    pieces_.WriteFetches();
    for (size_t i = 0; i < pieces_.pieces.size(); ++i) {
      const RedisPiece& piece = pieces_.pieces[i];
      EXPECT_EQ(Bytes(i), absl::StrCat("*", piece.count + 2, "\r\n$4\r\nMGET\r\n",
                                       ChangeName(piece), Names(piece)));
    }
    pieces_.WriteErasures();
    for (size_t i = 0; i < pieces_.pieces.size(); ++i) {
      const RedisPiece& piece = pieces_.pieces[i];
      EXPECT_EQ(Bytes(i), absl::StrCat("*", piece.count + 1, "\r\n$3\r\nDEL\r\n", Names(piece)));
    }
  }
  pieces_.Divide(names_, *slots_, std::span(keys_).first(1), 31);
  const RedisPiece& piece = pieces_.pieces.front();
  for (const bool with_text : {false, true}) {
    pieces_.WriteRequests([&](size_t) {
      pieces_.AppendScript({script, with_text}, piece, /*argument_count=*/2);
    });
    EXPECT_EQ(Bytes(0), absl::StrCat("*7\r\n",
                                     with_text ? "$4\r\nEVAL\r\n$8\r\nreturn 1\r\n"
                                               : "$7\r\nEVALSHA\r\n$3\r\nabc\r\n",
                                     "$1\r\n2\r\n", ChangeName(piece), Names(piece)));
  }
}

TEST_F(RedisPiecesTest, EachPartOfAFetchHasItsOwn) {
  RedisPieces& first = ThreadPieces<RedisPieces>();
  RedisPieces& third = ThreadPieces<RedisPieces>(2);
  EXPECT_NE(&first, &third);
  EXPECT_EQ(&first, &ThreadPieces<RedisPieces>(0));
  EXPECT_EQ(&third, &ThreadPieces<RedisPieces>(2));
}

}  // namespace
}  // namespace hps
