// The messages of an update stream: changed rows of one table, as a training job publishes them.
//
// Two formats are read, told apart by the first four bytes; the first one is written
// (docs/updates.md has it byte by byte, with examples):
//
//   "HPSU"   format 1 of hps: table, element type, dim, upsert or delete, publish time, checksum
//   "HCTR"   HugeCTR's: row size, then key and row by turns; keys of 64 bits
//
// A message is one change: all of its keys are upserted or all are deleted. Of a key that occurs
// twice the last row counts.
//
// The functions keep no state and allocate only for errors. Nothing of a message is believed before
// it has been checked, except by PayloadRows; the checksum is checked before the fields are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

// Bytes of one message; a larger one is parked. Kafka's own default is 1 MiB.
inline constexpr size_t kUpdateMessageBytesMax = size_t{16} << 20;

enum class UpdateKind : uint8_t { kUpsert = 0, kDelete = 1 };

// Why a message can't be applied. The names are labels of the metric
// `hps_update_parked_total{reason}`.
enum class ParkReason : uint8_t {
  kTruncated,       // shorter than its fields say, or with bytes left over
  kUnknownFormat,   // neither "HPSU" nor "HCTR"
  kNewerFormat,     // of a version of hps that is newer than this one
  kChecksum,        // damaged on its way
  kWrongTable,      // names another table than that of its topic
  kWrongShape,      // another dim or element type than the table's
  kKeyWidth,        // HugeCTR's with keys of 32 bits
  kOversized,       // more than kUpdateMessageBytesMax
  kWrongPartition,  // of keys that belong into other partitions
};
inline constexpr size_t kParkReasonCount = 9;
std::string_view ParkReasonName(ParkReason reason);

// The reason that DecodeUpdate or CheckPartition gave; nullopt: the status is of something else.
std::optional<ParkReason> ParkReasonOf(const absl::Status& status);

// A message whose fields have been checked. Borrows the payload, which need not be aligned.
struct UpdateMessage {
  UpdateKind kind = UpdateKind::kUpsert;
  uint32_t count = 0;           // keys; 0 of a beacon, which tells only that its producer lives
  int64_t publish_time_us = 0;  // since 1970, by the producer's clock; 0 = HugeCTR's have none
  std::span<const std::byte> keys;
  size_t key_stride_bytes = 0;
  std::span<const std::byte> rows;  // of `count` rows of the table; empty for deletes
  size_t row_stride_bytes = 0;

  Key key(size_t i) const { return LoadLittleEndian<Key>(&keys[i * key_stride_bytes]); }
  const std::byte* row(size_t i) const { return &rows[i * row_stride_bytes]; }
};

// Reads a message of the table `spec`.
// Errors: INVALID_ARGUMENT with a ParkReason; says what was expected and found.
absl::StatusOr<UpdateMessage> DecodeUpdate(std::span<const std::byte> payload,
                                           const TableSpec& spec);

// The number of rows that a message says it has, for rate limits. The message is not checked, so
// the number may be wrong, but it is never more than the message has room for.
uint64_t PayloadRows(std::span<const std::byte> payload);

// Bytes of a message of format 1 for `count` keys of the table.
size_t EncodedUpdateBytes(const TableSpec& spec, UpdateKind kind, size_t count);

// The largest count whose message has at most `bytes_max` bytes; 0 where not even one fits.
size_t UpdateKeysIn(const TableSpec& spec, UpdateKind kind, size_t bytes_max);

// What a message of format 1 says. `rows` are those of the keys one after the other, none of a
// delete.
struct UpdateContent {
  UpdateKind kind = UpdateKind::kUpsert;
  int64_t publish_time_us = 0;
  std::span<const Key> keys{};
  std::span<const std::byte> rows{};
};

// Writes a message of format 1.
// REQUIRES: a valid spec; out.size() == EncodedUpdateBytes; rows as large as `keys` say.
void EncodeUpdate(const TableSpec& spec, const UpdateContent& content, std::span<std::byte> out);

// The partition of a key in a topic: XXH64 of its 8 little-endian bytes with seed 0, modulo the
// number of partitions. REQUIRES: partition_count > 0.
uint32_t UpdatePartition(Key key, uint32_t partition_count);

// Whether a message of the partition changes only keys that belong there. Errors: INVALID_ARGUMENT
// with a ParkReason. REQUIRES: partition_count > 0.
absl::Status CheckPartition(const UpdateMessage& message, uint32_t partition,
                            uint32_t partition_count);

// The table's topic: "hps_et.<model>.<table>".
std::string UpdateTopic(std::string_view table);
// The table of a topic, "<model>/<table>"; nullopt where it is no topic of a table.
std::optional<std::string> TableOfTopic(std::string_view topic);

}  // namespace hps
