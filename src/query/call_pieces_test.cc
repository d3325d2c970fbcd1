#include "query/call_pieces.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hps {
namespace {

constexpr size_t kBytesPerRow = 8;

struct Table {
  explicit Table(size_t count) : keys(count), rows(count * kBytesPerRow), statuses(count) {
    std::iota(keys.begin(), keys.end(), Key{0});
  }
  HostTableQuery query(uint32_t index) {
    return {.table = {index}, .keys = keys, .rows = rows, .status = statuses};
  }

  std::vector<Key> keys;
  std::vector<std::byte> rows;
  std::vector<KeyStatus> statuses;
};

// Every key once, in order, with its own row and status; no piece has more than `keys_max` keys,
// and all but the last have so many.
void ExpectWhole(const std::vector<size_t>& counts, size_t keys_max) {
  std::vector<Table> tables;
  std::vector<HostTableQuery> queries;
  for (const size_t count : counts) tables.emplace_back(count);
  for (uint32_t i = 0; i < tables.size(); ++i) queries.push_back(tables[i].query(i));
  CallPieces<MemorySpace::kHost> pieces(queries, keys_max, [](TableIndex) { return kBytesPerRow; });
  std::vector<size_t> seen(counts.size());
  size_t seen_sum = 0;
  const size_t sum = std::accumulate(counts.begin(), counts.end(), size_t{0});
  do {
    size_t in_piece = 0;
    for (const HostTableQuery& query : pieces.piece()) {
      Table& table = tables[query.table.value];
      const size_t first = seen[query.table.value];
      EXPECT_EQ(query.keys.data(), table.keys.data() + first);
      EXPECT_EQ(query.rows.data(), table.rows.data() + first * kBytesPerRow);
      EXPECT_EQ(query.rows.size(), query.keys.size() * kBytesPerRow);
      EXPECT_EQ(query.status.data(), table.statuses.data() + first);
      EXPECT_EQ(query.status.size(), query.keys.size());
      seen[query.table.value] += query.keys.size();
      in_piece += query.keys.size();
    }
    seen_sum += in_piece;
    EXPECT_LE(in_piece, keys_max);
    if (seen_sum < sum) {
      EXPECT_EQ(in_piece, keys_max);
    }
  } while (pieces.Next());
  EXPECT_EQ(seen, counts);
}

TEST(CallPiecesTest, EveryKeyIsInOnePiece) {
  ExpectWhole({5, 5}, 10);
  ExpectWhole({5, 5}, 9);
  ExpectWhole({5, 0, 5, 0}, 5);
  ExpectWhole({100}, 7);
  ExpectWhole({1, 2, 3, 4, 50, 6}, 3);
  ExpectWhole({3, 3}, 1);
}

TEST(CallPiecesTest, ACallThatFitsIsNotCopied) {
  Table table(3);
  const std::vector<HostTableQuery> queries = {table.query(0)};
  CallPieces<MemorySpace::kHost> pieces(queries, 3, [](TableIndex) { return kBytesPerRow; });
  EXPECT_EQ(pieces.piece().data(), queries.data());
  EXPECT_FALSE(pieces.Next());
}

TEST(CallPiecesTest, StridesAndTheEndOfTheLastRowAreKept) {
  std::vector<Key> keys(3);
  std::vector<std::byte> rows(2 * 20 + kBytesPerRow);
  const HostTableQuery query{.keys = keys, .rows = rows, .row_stride_bytes = 20};
  CallPieces<MemorySpace::kHost> pieces({&query, 1}, 2, [](TableIndex) { return kBytesPerRow; });
  EXPECT_EQ(pieces.piece()[0].rows.size(), 40u);
  EXPECT_TRUE(pieces.piece()[0].status.empty());
  ASSERT_TRUE(pieces.Next());
  EXPECT_EQ(pieces.piece()[0].rows.data(), rows.data() + 40);
  EXPECT_EQ(pieces.piece()[0].rows.size(), kBytesPerRow);
  EXPECT_FALSE(pieces.Next());
}

}  // namespace
}  // namespace hps
