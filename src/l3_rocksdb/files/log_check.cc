#include "l3_rocksdb/files/log_check.h"

#include <rocksdb/file_checksum.h>

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kBlockBytes = 32 << 10;
constexpr size_t kHeaderBytes = 7;  // CRC, length, type
// Types of a whole record, and of the parts of a record that crosses the end of a block. The other
// types belong to options that a store does not use.
constexpr uint8_t kFull = 1;
constexpr uint8_t kFirst = 2;
constexpr uint8_t kMiddle = 3;
constexpr uint8_t kLast = 4;

// RocksDB stores CRCs rotated, because the CRC of data that contains CRCs is weak.
uint32_t Mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

// `rest` is a record without its CRC and length. Returns true if a prefix of it has the CRC: the
// record is complete, and its length, which no CRC covers, is damaged. A torn record matches by
// chance in less than one of 10^5 cases.
bool HasRecordOfOtherLength(std::string_view rest, uint32_t masked_crc) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : rest) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
    if (Mask(~crc) == masked_crc) return true;
  }
  return false;
}

bool IsZero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

// Checks a log block by block.
class LogChecker {
 public:
  explicit LogChecker(bool may_be_torn) : may_be_torn_(may_be_torn) {}

  // `block` has kBlockBytes, or less if it is the last one.
  std::optional<LogDamage> Add(std::string_view block, bool is_last) {
    const uint64_t block_offset = offset_;
    for (size_t offset = 0; offset < block.size();) {
      offset_ = block_offset + offset;
      const size_t room_bytes = kBlockBytes - offset;
      size_t record_bytes = 0;
      if (const char* what = Check(block.substr(offset), room_bytes, record_bytes))
        return LogDamage{zeros_from_.value_or(offset_), what};
      if (record_bytes == 0) break;
      offset += record_bytes;
    }
    offset_ = block_offset + block.size();
    if (is_last && is_in_parts_ && !may_be_torn_)
      return LogDamage{parts_from_, "the last record is incomplete"};
    return std::nullopt;
  }

 private:
  // Checks the record at the begin of `rest`, the remainder of a block. Returns a description of
  // the damage or null. `room_bytes` is the distance to the end of a full block. `record_bytes`
  // stays 0 if no record follows.
  const char* Check(std::string_view rest, size_t room_bytes, size_t& record_bytes) {
    if (zeros_from_.has_value()) return IsZero(rest) ? nullptr : "zeros in place of a record";
    if (room_bytes < kHeaderBytes)
      return IsZero(rest) ? nullptr : "the unused end of a block is not zero";
    if (rest.size() < kHeaderBytes) return may_be_torn_ ? nullptr : "a record is truncated";
    // Preallocated space, or space whose content a power cut has lost. Allowed only at the end of
    // the log.
    if (IsZero(rest.substr(0, kHeaderBytes))) {
      zeros_from_ = offset_;
      return may_be_torn_ && IsZero(rest) ? nullptr : "zeros in place of a record";
    }
    const auto type = static_cast<uint8_t>(rest[6]);
    if (type < kFull || type > kLast) return "a record has an unknown type";
    const auto stored_crc = LoadLittleEndian<uint32_t>(rest.data());
    const size_t bytes = kHeaderBytes + LoadLittleEndian<uint16_t>(rest.data() + 4);
    if (bytes > room_bytes) return "a record is longer than its block";
    // The CRC covers the type and everything after it.
    if (bytes > rest.size()) {
      if (!may_be_torn_) return "a record is truncated";
      return HasRecordOfOtherLength(rest.substr(6), stored_crc) ? "a record's length is wrong"
                                                                : nullptr;
    }
    if (stored_crc != Mask(Crc32c(rest.substr(6, bytes - 6))))
      return "a record's checksum is wrong";
    record_bytes = bytes;
    return CheckOrder(type);
  }

  const char* CheckOrder(uint8_t type) {
    const bool continues = type == kMiddle || type == kLast;
    if (continues != is_in_parts_)
      return continues ? "a record lacks its first part"
                       : "the previous record lacks its last part";
    if (type == kFirst) parts_from_ = offset_;
    is_in_parts_ = type == kFirst || type == kMiddle;
    return nullptr;
  }

  const bool may_be_torn_;
  uint64_t offset_ = 0;  // in the file
  bool is_in_parts_ = false;
  uint64_t parts_from_ = 0;
  std::optional<uint64_t> zeros_from_{};
};

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static const std::shared_ptr<rocksdb::FileChecksumGenFactory> factory =
      rocksdb::GetFileChecksumGenCrc32cFactory();
  const auto generator = factory->CreateFileChecksumGenerator({});
  generator->Update(bytes.data(), bytes.size());
  generator->Finalize();
  const std::string checksum = generator->GetChecksum();
  return __builtin_bswap32(LoadLittleEndian<uint32_t>(checksum.data()));
}

std::optional<LogDamage> CheckLogBytes(std::string_view log, bool may_be_torn) {
  LogChecker checker(may_be_torn);
  while (!log.empty()) {
    const std::string_view block = log.substr(0, kBlockBytes);
    log.remove_prefix(block.size());
    if (std::optional<LogDamage> damage = checker.Add(block, log.empty())) return damage;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<LogDamage>> CheckLog(rocksdb::Env* env, const std::string& path,
                                                  bool may_be_torn) {
  const std::string what = absl::StrCat("reading '", path, "'");
  uint64_t file_bytes = 0;
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->GetFileSize(path, &file_bytes), what));
  std::unique_ptr<rocksdb::SequentialFile> file;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env->NewSequentialFile(path, &file, rocksdb::EnvOptions()), what));
  LogChecker checker(may_be_torn);
  std::string buffer(kBlockBytes, '\0');
  for (uint64_t offset = 0; offset < file_bytes; offset += kBlockBytes) {
    rocksdb::Slice read;
    HPS_RETURN_IF_ERROR(FromRocksStatus(file->Read(kBlockBytes, &read, buffer.data()), what));
    const bool is_last = read.size() < kBlockBytes || offset + read.size() >= file_bytes;
    std::optional<LogDamage> damage = checker.Add({read.data(), read.size()}, is_last);
    if (damage.has_value()) return damage;
    if (is_last) break;
  }
  return std::nullopt;
}

}  // namespace hps
