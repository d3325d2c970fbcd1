#include "update/update_message.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace hps {
namespace {

constexpr int64_t kTime = 1'700'000'000'123'456;

TableSpec Spec(uint32_t dim = 2, Dtype dtype = Dtype::kFloat32, std::string name = "m/t") {
  return {.name = std::move(name), .dim = dim, .dtype = dtype, .default_row = {}};
}

std::string Encoded(const TableSpec& spec, UpdateKind kind, const std::vector<Key>& keys,
                    std::span<const std::byte> rows) {
  std::string message(EncodedUpdateBytes(spec, kind, keys.size()), '\xff');
  EncodeUpdate(spec, {.kind = kind, .publish_time_us = kTime, .keys = keys, .rows = rows},
               std::as_writable_bytes(std::span(message)));
  return message;
}

std::vector<std::byte> Rows(const TableSpec& spec, size_t count) {
  std::vector<std::byte> rows(count * spec.row_bytes());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i * 7);
  return rows;
}

std::string Upsert(const TableSpec& spec, const std::vector<Key>& keys) {
  return Encoded(spec, UpdateKind::kUpsert, keys, Rows(spec, keys.size()));
}

// Makes the checksum that of the changed bytes.
std::string Resealed(std::string message) {
  const size_t at = message.size() - 8;
  const uint64_t checksum = XXH3_64bits(message.data(), at);
  std::memcpy(&message[at], &checksum, sizeof(checksum));
  return message;
}

void ExpectParked(const std::string& message, const TableSpec& spec, ParkReason reason) {
  const auto decoded = DecodeUpdate(AsBytes(message), spec);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParkReasonOf(decoded.status()), reason) << decoded.status();
}

std::string Hugectr(uint32_t row_bytes, const std::string& body) {
  std::string message = "HCTR";
  message.append(std::string(4, '\0'));
  std::memcpy(&message[4], &row_bytes, sizeof(row_bytes));
  return message + body;
}

TEST(UpdateMessageTest, UpsertsComeBackAsTheyWent) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const size_t count : {0, 1, 31, 32, 33, 1000}) {
      const TableSpec spec = Spec(5, dtype, "model/a-table_1");
      std::vector<Key> keys;
      for (size_t i = 0; i < count; ++i) keys.push_back(static_cast<Key>(i * i) - 7);
      if (count > 0) keys[0] = std::numeric_limits<Key>::min();
      const std::vector<std::byte> rows = Rows(spec, count);
      const std::string message = " " + Encoded(spec, UpdateKind::kUpsert, keys, rows);
      const auto decoded = DecodeUpdate(AsBytes(message).subspan(1), spec);  // not aligned
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(decoded->kind, UpdateKind::kUpsert);
      EXPECT_EQ(decoded->publish_time_us, kTime);
      ASSERT_EQ(decoded->count, count);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(decoded->key(i), keys[i]);
        EXPECT_EQ(std::memcmp(decoded->row(i), &rows[i * spec.row_bytes()], spec.row_bytes()), 0);
      }
    }
  }
}

TEST(UpdateMessageTest, DeletesHaveKeysAlone) {
  const std::string message = Encoded(Spec(), UpdateKind::kDelete, {3, -1}, {});
  // Of a delete the shape does not matter: the table may have been imported with another one.
  const auto decoded = DecodeUpdate(AsBytes(message), Spec(7, Dtype::kFloat16));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->kind, UpdateKind::kDelete);
  ASSERT_EQ(decoded->count, 2u);
  EXPECT_EQ(decoded->key(0), 3);
  EXPECT_EQ(decoded->key(1), -1);
  EXPECT_TRUE(decoded->rows.empty());
}

// The example of docs/updates.md.
TEST(UpdateMessageTest, WritesTheBytesOfTheDocumentedExample) {
  const float row[] = {1.0F, -2.0F};
  const std::string message =
      Encoded(Spec(), UpdateKind::kUpsert, {42}, std::as_bytes(std::span(row)));
  const std::string_view expected(
      "HPSU\x01\x00\x00\x01"
      "\x02\x00\x00\x00\x01\x00\x00\x00"
      "\x40\x22\x20\x18\x24\x0a\x06\x00"
      "\x03\x00\x00\x00\x00\x00\x00\x00"
      "m/t\x00\x00\x00\x00\x00"
      "\x2a\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x80\x3f\x00\x00\x00\xc0"
      "\xd5\x44\xb8\xd2\x1c\x7c\xaf\x47",
      64);
  EXPECT_EQ(message, expected);
}

TEST(UpdateMessageTest, EveryCutAndEveryFlippedBitIsParked) {
  const TableSpec spec = Spec();
  const std::string message = Upsert(spec, {1, 2, 3});
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_FALSE(DecodeUpdate(AsBytes(message.substr(0, size)), spec).ok()) << size;
  }
  EXPECT_FALSE(DecodeUpdate(AsBytes(message + "x"), spec).ok());
  for (size_t bit = 0; bit < message.size() * 8; ++bit) {
    std::string flipped = message;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeUpdate(AsBytes(flipped), spec).ok()) << bit;
  }
}

TEST(UpdateMessageTest, ReasonsOfFormat1) {
  const TableSpec spec = Spec();
  const std::string message = Upsert(spec, {1, 2, 3});
  ExpectParked("", spec, ParkReason::kUnknownFormat);
  ExpectParked("XXXX" + message.substr(4), spec, ParkReason::kUnknownFormat);
  ExpectParked(message.substr(0, 39), spec, ParkReason::kTruncated);
  std::string changed = message;
  changed[4] = 2;
  ExpectParked(Resealed(changed), spec, ParkReason::kNewerFormat);
  changed = message;
  changed[50] = '!';
  ExpectParked(changed, spec, ParkReason::kChecksum);
  changed = message;
  changed[6] = 2;
  ExpectParked(Resealed(changed), spec, ParkReason::kUnknownFormat);
  changed = message;
  changed[12] = 4;  // the count
  ExpectParked(Resealed(changed), spec, ParkReason::kTruncated);
  changed[13] = changed[14] = changed[15] = '\xff';
  ExpectParked(Resealed(changed), spec, ParkReason::kTruncated);
  changed = message;
  changed[24] = changed[25] = '\xff';  // the name's size
  ExpectParked(Resealed(changed), spec, ParkReason::kTruncated);
  ExpectParked(message, Spec(2, Dtype::kFloat32, "m/other"), ParkReason::kWrongTable);
  ExpectParked(message, Spec(3), ParkReason::kWrongShape);
  ExpectParked(message, Spec(2, Dtype::kFloat16), ParkReason::kWrongShape);
  ExpectParked(std::string(kUpdateMessageBytesMax + 1, 'x'), spec, ParkReason::kOversized);
}

TEST(UpdateMessageTest, ReadsHugectrsMessages) {
  const TableSpec spec = Spec();
  std::string body;
  for (Key key = -2; key < 3; ++key) {
    const float row[] = {static_cast<float>(key), 0.5F};
    body.append(AsText(std::as_bytes(std::span(&key, 1))));
    body.append(AsText(std::as_bytes(std::span(row))));
  }
  const std::string message = Hugectr(8, body);
  const auto decoded = DecodeUpdate(AsBytes(message), spec);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->count, 5u);
  EXPECT_EQ(decoded->publish_time_us, 0);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(decoded->key(i), static_cast<Key>(i) - 2);
    float first = 0;
    std::memcpy(&first, decoded->row(i), sizeof(first));
    EXPECT_EQ(first, static_cast<float>(decoded->key(i)));
  }

  const auto beacon = DecodeUpdate(AsBytes(Hugectr(99, "")), spec);
  ASSERT_TRUE(beacon.ok()) << beacon.status();
  EXPECT_EQ(beacon->count, 0u);
  ExpectParked("HCTR123", spec, ParkReason::kTruncated);
  ExpectParked(Hugectr(12, body), spec, ParkReason::kWrongShape);
  ExpectParked(Hugectr(8, body + "x"), spec, ParkReason::kTruncated);
  ExpectParked(Hugectr(8, std::string(12, 'x')), spec, ParkReason::kKeyWidth);
  ExpectParked(Hugectr(0, body), spec, ParkReason::kWrongShape);
}

TEST(UpdateMessageTest, RandomBytesNeverCrash) {
  std::mt19937_64 random(20261123);
  const TableSpec spec = Spec(3);
  const std::string message = Upsert(spec, {5, 6, 7, 8});
  for (int i = 0; i < 20'000; ++i) {
    std::string mutant = message;
    for (uint64_t n = random() % 6; n > 0; --n) {
      mutant[random() % mutant.size()] = static_cast<char>(random());
    }
    if (random() % 3 == 0) mutant.resize(random() % (mutant.size() + 40) + 8);
    const std::string sealed = Resealed(mutant);  // what was decoded refers to it
    const auto decoded = DecodeUpdate(AsBytes(sealed), spec);
    if (!decoded.ok()) continue;
    uint64_t sum = 0;  // every byte can be read
    for (size_t k = 0; k < decoded->count; ++k) {
      sum += static_cast<uint64_t>(decoded->key(k));
      if (!decoded->rows.empty()) sum += static_cast<uint64_t>(decoded->row(k)[11]);
    }
    EXPECT_LE(decoded->count, 1000u) << sum;
  }
}

TEST(UpdateMessageTest, CountsTheKeysThatFit) {
  const TableSpec spec = Spec(16);
  for (const UpdateKind kind : {UpdateKind::kUpsert, UpdateKind::kDelete}) {
    for (const size_t bytes :
         {size_t{0}, size_t{47}, size_t{48}, size_t{56}, size_t{120}, size_t{1} << 20}) {
      const size_t count = UpdateKeysIn(spec, kind, bytes);
      if (count > 0) {
        EXPECT_LE(EncodedUpdateBytes(spec, kind, count), bytes);
      }
      EXPECT_GT(EncodedUpdateBytes(spec, kind, count + 1), bytes);
    }
  }
}

TEST(UpdateMessageTest, TopicsNameTables) {
  EXPECT_EQ(UpdateTopic("dlrm/user"), "hps_et.dlrm.user");
  EXPECT_EQ(TableOfTopic("hps_et.dlrm.user"), "dlrm/user");
  for (const char* topic : {"", "hps_et.", "hps_et.dlrm", "hps_et.dlrm.", "hps_et..t", "x.dlrm.t",
                            "hps_et.a.b.c", "hps_et.a.b c"}) {
    EXPECT_FALSE(TableOfTopic(topic).has_value()) << topic;
  }
}

// HugeCTR's producers and ours agree with these only while nobody changes the hash.
TEST(UpdateMessageTest, PartitionsOfKeysNeverChange) {
  EXPECT_EQ(UpdatePartition(0, 1), 0u);
  std::vector<uint32_t> partitions;
  for (Key key = 0; key < 8; ++key) partitions.push_back(UpdatePartition(key, 7));
  EXPECT_EQ(partitions, (std::vector<uint32_t>{3, 4, 2, 5, 5, 5, 3, 3}));
  EXPECT_EQ(UpdatePartition(-1, 1000), 761u);
}

TEST(UpdateMessageTest, KeysOfOtherPartitionsAreFound) {
  const std::vector<Key> keys = {3, 4, 5};  // of partition 5 of 7
  UpdateMessage message = {
      .count = 3, .keys = std::as_bytes(std::span(keys)), .key_stride_bytes = sizeof(Key)};
  EXPECT_TRUE(CheckPartition(message, 5, 7).ok());
  EXPECT_EQ(ParkReasonOf(CheckPartition(message, 4, 7)), ParkReason::kWrongPartition);
  EXPECT_EQ(ParkReasonOf(CheckPartition(message, 5, 8)), ParkReason::kWrongPartition);
  message.count = 0;
  EXPECT_TRUE(CheckPartition(message, 4, 7).ok());
}

TEST(UpdateMessageTest, PayloadRowsCountsBothFormats) {
  for (const size_t count : {0, 1, 33})
    EXPECT_EQ(PayloadRows(AsBytes(Upsert(Spec(), std::vector<Key>(count, 7)))), count);
  std::string hugectr("HCTR\x08\0\0\0", 8);
  EXPECT_EQ(PayloadRows(AsBytes(hugectr)), 0u);
  hugectr += std::string(5 * 16, 'x');
  EXPECT_EQ(PayloadRows(AsBytes(hugectr)), 5u);
}

TEST(UpdateMessageTest, DamagedMessagesHaveNoMoreRowsThanRoom) {
  std::string message = Upsert(Spec(), {7, 7, 7});
  StoreLittleEndian<uint32_t>(&message[12], UINT32_MAX);
  EXPECT_LE(PayloadRows(AsBytes(message)), message.size() / sizeof(Key));
  EXPECT_EQ(PayloadRows(AsBytes(message).first(39)), 0u);
  EXPECT_EQ(PayloadRows({}), 0u);
  EXPECT_EQ(PayloadRows(AsBytes(std::string_view("HCTR"))), 0u);
  EXPECT_EQ(PayloadRows(AsBytes(std::string_view("something else that is long enough to read"))),
            0u);
}

}  // namespace
}  // namespace hps
