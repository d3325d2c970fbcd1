#include "update/stream_write.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace hps {
namespace {

TEST(StreamWriteTest, MergesMessagesOfOneKind) {
  const TableSpec spec = {.name = "m/t", .dim = 1};
  const auto encoded = [&](UpdateKind kind, const std::vector<Key>& keys) {
    const std::vector<float> elements(kind == UpdateKind::kDelete ? 0 : keys.size(), 2.5F);
    std::string message(EncodedUpdateBytes(spec, kind, keys.size()), '\0');
    EncodeUpdate(spec,
                 {.kind = kind,
                  .publish_time_us = 1,
                  .keys = keys,
                  .rows = std::as_bytes(std::span(elements))},
                 std::as_writable_bytes(std::span(message)));
    return message;
  };
  const auto append = [&](const std::string& bytes, Version version, StreamWrite& write) {
    const auto message = DecodeUpdate(AsBytes(std::string_view(bytes)), spec);
    EXPECT_TRUE(message.ok()) << message.status();
    return AppendMessage(*message, spec, version, write);
  };
  StreamWrite upserts;
  EXPECT_TRUE(append(encoded(UpdateKind::kUpsert, {1, 2}), 7, upserts));
  EXPECT_TRUE(append(encoded(UpdateKind::kUpsert, {3}), 8, upserts));
  EXPECT_FALSE(append(encoded(UpdateKind::kDelete, {1}), 9, upserts));
  const std::vector<StreamPosition> positions = {{.offset = 9}};
  const DurableWrite rows = DurableWriteOf(upserts, spec, positions);
  EXPECT_EQ(std::vector<Key>(rows.upserts.keys.begin(), rows.upserts.keys.end()),
            (std::vector<Key>{1, 2, 3}));
  EXPECT_EQ(std::vector<Version>(rows.upserts.versions.begin(), rows.upserts.versions.end()),
            (std::vector<Version>{7, 7, 8}));
  float third = 0;
  std::memcpy(&third, rows.upserts.rows.row(2), sizeof(third));
  EXPECT_EQ(third, 2.5F);
  EXPECT_TRUE(rows.deletes.empty());
  EXPECT_EQ(rows.positions.size(), 1u);

  StreamWrite deletes;
  EXPECT_TRUE(append(encoded(UpdateKind::kDelete, {1}), 9, deletes));
  EXPECT_TRUE(append(encoded(UpdateKind::kDelete, {5}), 10, deletes));
  const DurableWrite gone = DurableWriteOf(deletes, spec, positions);
  EXPECT_TRUE(gone.upserts.keys.empty());
  EXPECT_EQ(std::vector<Key>(gone.deletes.begin(), gone.deletes.end()), (std::vector<Key>{1, 5}));
  EXPECT_EQ(std::vector<Version>(gone.delete_versions.begin(), gone.delete_versions.end()),
            (std::vector<Version>{9, 10}));
}

}  // namespace
}  // namespace hps
