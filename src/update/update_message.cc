#include "update/update_message.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr std::string_view kMagic = "HPSU";
constexpr std::string_view kHugectrMagic = "HCTR";
constexpr uint16_t kFormat = 1;

// The header of format 1, by offset.
constexpr size_t kFormatAt = 4;       // u16
constexpr size_t kKindAt = 6;         // u8
constexpr size_t kDtypeAt = 7;        // u8
constexpr size_t kDimAt = 8;          // u32
constexpr size_t kCountAt = 12;       // u32
constexpr size_t kTimeAt = 16;        // i64
constexpr size_t kNameBytesAt = 24;   // u16
constexpr size_t kReservedAt = 26;    // 6 zeros
constexpr size_t kHeaderBytes = 32;   // the name follows, with zeros up to a multiple of 8
constexpr size_t kChecksumBytes = 8;  // of all bytes before it, at the end
constexpr size_t kFixedBytes = kHeaderBytes + kChecksumBytes;

constexpr size_t kHugectrRowBytesAt = 4;  // u32
constexpr size_t kHugectrHeaderBytes = 8;

constexpr char kReasonPayload[] = "hps/park_reason";
constexpr std::array<std::string_view, kParkReasonCount> kReasonNames = {
    "truncated",   "unknown_format", "newer_format", "checksum",       "wrong_table",
    "wrong_shape", "key_width",      "oversized",    "wrong_partition"};

std::string_view KindName(uint8_t kind) { return kind == 0 ? "upsert" : "delete"; }

absl::Status Parked(ParkReason reason, const std::string& what) {
  absl::Status status = absl::InvalidArgumentError(what);
  const std::string_view name = ParkReasonName(reason);
  status.SetPayload(kReasonPayload, absl::Cord(absl::string_view(name.data(), name.size())));
  return status;
}

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// Bytes of name, keys and rows: at most 2^16 + 2^32 * (8 + kRowBytesMax), which fits 64 bits.
uint64_t BodyBytes(size_t name_bytes, uint64_t count, size_t row_bytes) {
  return RoundUp(name_bytes, 8) + count * (sizeof(Key) + row_bytes);
}

absl::Status CheckShape(const TableSpec& spec, uint32_t dim, uint8_t dtype) {
  if (dim == spec.dim && dtype == static_cast<uint8_t>(spec.dtype)) return absl::OkStatus();
  const bool is_known = dtype >= 1 && dtype <= 3;
  const std::string found = is_known ? std::string(DtypeName(static_cast<Dtype>(dtype)))
                                     : absl::StrCat("element type ", dtype);
  const std::string_view expected = DtypeName(spec.dtype);
  return Parked(ParkReason::kWrongShape,
                absl::StrCat("the message has rows of ", dim, " x ", found, "; table '", spec.name,
                             "' has ", spec.dim, " x ", std::string(expected)));
}

absl::StatusOr<UpdateMessage> DecodeFormat1(std::span<const std::byte> payload,
                                            const TableSpec& spec) {
  const std::byte* data = payload.data();
  if (payload.size() < kFixedBytes) {
    return Parked(ParkReason::kTruncated, absl::StrCat("a message of ", payload.size(),
                                                       " bytes; the shortest has ", kFixedBytes));
  }
  const auto format = LoadLittleEndian<uint16_t>(data + kFormatAt);
  if (format != kFormat) {
    return Parked(ParkReason::kNewerFormat,
                  absl::StrCat("message format ", format, "; this version of hps reads ", kFormat));
  }
  const size_t checksum_at = payload.size() - kChecksumBytes;
  if (LoadLittleEndian<uint64_t>(data + checksum_at) != Checksum(payload.first(checksum_at))) {
    return Parked(ParkReason::kChecksum, "the checksum is not that of the message's bytes");
  }
  const auto kind = LoadLittleEndian<uint8_t>(data + kKindAt);
  const auto name_bytes = LoadLittleEndian<uint16_t>(data + kNameBytesAt);
  const auto count = LoadLittleEndian<uint32_t>(data + kCountAt);
  if (kind > 1) {
    return Parked(ParkReason::kUnknownFormat, absl::StrCat("unknown kind of change: ", kind));
  }
  const bool is_upsert = kind == 0;
  // The name comes first: with another table's shape the sizes below would not fit either.
  const size_t name_room = RoundUp(name_bytes, 8);
  if (name_room > payload.size() - kFixedBytes) {
    return Parked(ParkReason::kTruncated, "the table's name does not fit into the message");
  }
  const std::string_view name = AsText(payload.subspan(kHeaderBytes, name_bytes));
  if (name != spec.name) {
    return Parked(ParkReason::kWrongTable,
                  absl::StrCat("the message is for another table than '", spec.name, "'"));
  }
  if (is_upsert) {
    const absl::Status shape = CheckShape(spec, LoadLittleEndian<uint32_t>(data + kDimAt),
                                          LoadLittleEndian<uint8_t>(data + kDtypeAt));
    if (!shape.ok()) return shape;
  }
  const size_t row_bytes = is_upsert ? spec.row_bytes() : 0;
  const uint64_t expected = kFixedBytes + BodyBytes(name_bytes, count, row_bytes);
  if (expected != payload.size()) {
    return Parked(ParkReason::kTruncated,
                  absl::StrCat("a message of ", payload.size(), " bytes; ", count, " keys to ",
                               std::string(KindName(kind)), " take ", expected));
  }
  const auto body = payload.subspan(kHeaderBytes + name_room);
  return UpdateMessage{.kind = static_cast<UpdateKind>(kind),
                       .count = count,
                       .publish_time_us = LoadLittleEndian<int64_t>(data + kTimeAt),
                       .keys = body.first(count * sizeof(Key)),
                       .key_stride_bytes = sizeof(Key),
                       .rows = body.subspan(count * sizeof(Key), count * row_bytes),
                       .row_stride_bytes = row_bytes};
}

// HugeCTR's messages have no count, no element type and no checksum: only the row's size can be
// compared.
absl::StatusOr<UpdateMessage> DecodeHugectr(std::span<const std::byte> payload,
                                            const TableSpec& spec) {
  if (payload.size() < kHugectrHeaderBytes) {
    return Parked(ParkReason::kTruncated,
                  absl::StrCat("a message of ", payload.size(), " bytes; HugeCTR's header has ",
                               kHugectrHeaderBytes));
  }
  const auto body = payload.subspan(kHugectrHeaderBytes);
  if (body.empty()) return UpdateMessage{};  // a beacon
  const uint64_t row_bytes = LoadLittleEndian<uint32_t>(payload.data() + kHugectrRowBytesAt);
  if (row_bytes != spec.row_bytes()) {
    return Parked(ParkReason::kWrongShape,
                  absl::StrCat("the message has rows of ", row_bytes, " bytes; table '", spec.name,
                               "' has ", spec.row_bytes()));
  }
  const size_t record_bytes = sizeof(Key) + row_bytes;
  if (body.size() % record_bytes != 0) {
    const bool is_narrow = body.size() % (sizeof(uint32_t) + row_bytes) == 0;
    return Parked(
        is_narrow ? ParkReason::kKeyWidth : ParkReason::kTruncated,
        absl::StrCat(body.size(), " bytes of records; one has ", record_bytes,
                     is_narrow ? " (the size fits keys of 32 bits, which are not read)" : ""));
  }
  return UpdateMessage{.kind = UpdateKind::kUpsert,
                       .count = static_cast<uint32_t>(body.size() / record_bytes),
                       .keys = body,
                       .key_stride_bytes = record_bytes,
                       .rows = body.subspan(sizeof(Key)),
                       .row_stride_bytes = record_bytes};
}

}  // namespace

std::string_view ParkReasonName(ParkReason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}

std::optional<ParkReason> ParkReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  if (!payload.has_value()) return std::nullopt;
  for (size_t i = 0; i < kParkReasonCount; ++i) {
    if (*payload == absl::string_view(kReasonNames[i].data(), kReasonNames[i].size())) {
      return static_cast<ParkReason>(i);
    }
  }
  return std::nullopt;
}

absl::StatusOr<UpdateMessage> DecodeUpdate(std::span<const std::byte> payload,
                                           const TableSpec& spec) {
  if (payload.size() > kUpdateMessageBytesMax) {
    return Parked(ParkReason::kOversized,
                  absl::StrCat("a message of ", payload.size(), " bytes; at most ",
                               kUpdateMessageBytesMax, " are read"));
  }
  const std::string_view magic = AsText(payload.first(std::min(payload.size(), kMagic.size())));
  if (magic == kMagic) return DecodeFormat1(payload, spec);
  if (magic == kHugectrMagic) return DecodeHugectr(payload, spec);
  return Parked(ParkReason::kUnknownFormat,
                "the message begins with neither \"HPSU\" nor \"HCTR\"");
}

uint64_t PayloadRows(std::span<const std::byte> payload) {
  const std::string_view text = AsText(payload);
  if (text.starts_with(kMagic) && payload.size() >= kFixedBytes) {
    const uint64_t room = (payload.size() - kFixedBytes) / sizeof(Key);
    return std::min<uint64_t>(LoadLittleEndian<uint32_t>(&payload[kCountAt]), room);
  }
  if (text.starts_with(kHugectrMagic) && payload.size() >= kHugectrHeaderBytes) {
    const uint64_t row_bytes = LoadLittleEndian<uint32_t>(&payload[kHugectrRowBytesAt]);
    return (payload.size() - kHugectrHeaderBytes) / (sizeof(Key) + row_bytes);
  }
  return 0;
}

size_t EncodedUpdateBytes(const TableSpec& spec, UpdateKind kind, size_t count) {
  const size_t row_bytes = kind == UpdateKind::kUpsert ? spec.row_bytes() : 0;
  return kFixedBytes + BodyBytes(spec.name.size(), count, row_bytes);
}

size_t UpdateKeysIn(const TableSpec& spec, UpdateKind kind, size_t bytes_max) {
  const size_t fixed = EncodedUpdateBytes(spec, kind, 0);
  if (bytes_max < fixed) return 0;
  return (bytes_max - fixed) / (EncodedUpdateBytes(spec, kind, 1) - fixed);
}

void EncodeUpdate(const TableSpec& spec, const UpdateContent& content, std::span<std::byte> out) {
  const auto& [kind, publish_time_us, keys, rows] = content;
  HPS_CHECK(out.size() == EncodedUpdateBytes(spec, kind, keys.size()));
  HPS_CHECK(rows.size() == (kind == UpdateKind::kUpsert ? keys.size() * spec.row_bytes() : 0));
  std::byte* data = out.data();
  std::memset(data, 0, kHeaderBytes + RoundUp(spec.name.size(), 8));
  std::memcpy(data, kMagic.data(), kMagic.size());
  StoreLittleEndian<uint16_t>(data + kFormatAt, kFormat);
  StoreLittleEndian<uint8_t>(data + kKindAt, static_cast<uint8_t>(kind));
  StoreLittleEndian<uint8_t>(data + kDtypeAt, static_cast<uint8_t>(spec.dtype));
  StoreLittleEndian<uint32_t>(data + kDimAt, spec.dim);
  StoreLittleEndian<uint32_t>(data + kCountAt, static_cast<uint32_t>(keys.size()));
  StoreLittleEndian<int64_t>(data + kTimeAt, publish_time_us);
  StoreLittleEndian<uint16_t>(data + kNameBytesAt, static_cast<uint16_t>(spec.name.size()));
  static_assert(kReservedAt + 6 == kHeaderBytes);
  std::memcpy(data + kHeaderBytes, spec.name.data(), spec.name.size());
  std::byte* body = data + kHeaderBytes + RoundUp(spec.name.size(), 8);
  if (!keys.empty()) std::memcpy(body, keys.data(), keys.size_bytes());
  if (!rows.empty()) std::memcpy(body + keys.size_bytes(), rows.data(), rows.size());
  const size_t checksum_at = out.size() - kChecksumBytes;
  StoreLittleEndian<uint64_t>(data + checksum_at, Checksum(out.first(checksum_at)));
}

uint32_t UpdatePartition(Key key, uint32_t partition_count) {
  return static_cast<uint32_t>(HashKey(key, kStreamHashSeed) % partition_count);
}

absl::Status CheckPartition(const UpdateMessage& message, uint32_t partition,
                            uint32_t partition_count) {
  for (size_t i = 0; i < message.count; ++i) {
    const uint32_t right = UpdatePartition(message.key(i), partition_count);
    if (right == partition) continue;
    return Parked(ParkReason::kWrongPartition,
                  absl::StrCat("key ", message.key(i), " belongs into partition ", right, " of ",
                               partition_count, ", the message is in partition ", partition));
  }
  return absl::OkStatus();
}

std::string UpdateTopic(std::string_view table) {
  std::string topic = absl::StrCat("hps_et.", absl::string_view(table.data(), table.size()));
  const size_t slash = topic.find('/');
  if (slash != std::string::npos) topic[slash] = '.';
  return topic;
}

std::optional<std::string> TableOfTopic(std::string_view topic) {
  constexpr std::string_view kPrefix = "hps_et.";
  if (!topic.starts_with(kPrefix)) return std::nullopt;
  std::string table(topic.substr(kPrefix.size()));
  const size_t dot = table.find('.');
  if (dot == std::string::npos) return std::nullopt;
  table[dot] = '/';
  if (!ValidateTableName(table).ok()) return std::nullopt;
  return table;
}

}  // namespace hps
