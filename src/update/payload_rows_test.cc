#include "update/payload_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "update/update_message.h"

namespace hps {
namespace {

std::vector<std::byte> PayloadOf(size_t count) {
  const TableSpec spec{.name = "m/t", .dim = 2};
  std::vector<std::byte> message(EncodedUpdateBytes(spec, UpdateKind::kUpsert, count));
  const std::vector<Key> keys(count, 7);
  const std::vector<std::byte> rows(count * spec.row_bytes());
  EncodeUpdate(spec, {.keys = keys, .rows = rows}, message);
  return message;
}

TEST(PayloadRows, CountsBothFormats) {
  for (const size_t count : {0, 1, 33}) EXPECT_EQ(PayloadRows(PayloadOf(count)), count);
  std::string hugectr("HCTR\x08\0\0\0", 8);
  EXPECT_EQ(PayloadRows(AsBytes(hugectr)), 0u);
  hugectr += std::string(5 * 16, 'x');
  EXPECT_EQ(PayloadRows(AsBytes(hugectr)), 5u);
}

TEST(PayloadRows, DamagedMessagesHaveNoMoreRowsThanRoom) {
  std::vector<std::byte> message = PayloadOf(3);
  StoreLittleEndian<uint32_t>(&message[12], UINT32_MAX);
  EXPECT_LE(PayloadRows(message), message.size() / sizeof(Key));
  EXPECT_EQ(PayloadRows(std::span(message).first(39)), 0u);
  EXPECT_EQ(PayloadRows({}), 0u);
  EXPECT_EQ(PayloadRows(AsBytes(std::string_view("HCTR"))), 0u);
  EXPECT_EQ(PayloadRows(AsBytes(std::string_view("something else that is long enough to read"))),
            0u);
}

}  // namespace
}  // namespace hps
