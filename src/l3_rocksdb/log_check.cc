#include "l3_rocksdb/log_check.h"

#include <rocksdb/file_checksum.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kBlockBytes = 32 << 10;
constexpr size_t kHeaderBytes = 7;             // CRC, length, type
constexpr size_t kRecyclableHeaderBytes = 11;  // ... and the log's number
constexpr uint8_t kZeroType = 0;               // space that was set aside
constexpr uint8_t kRecyclableFullType = 5;     // to 8
constexpr uint8_t kRecyclableLastType = 8;

// RocksDB stores CRCs rotated, so that a CRC of data that holds CRCs stays strong.
uint32_t Mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

struct Record {
  size_t bytes = 0;  // with its header; 0 = nothing more in this block
  bool cut = false;  // by the end of the file
  bool good = true;
};

Record CheckRecord(std::string_view block) {
  Record record;
  const auto type = static_cast<uint8_t>(block[6]);
  const size_t length = LoadLittleEndian<uint16_t>(block.data() + 4);
  if (type == kZeroType && length == 0) {
    record.good = std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
    return record;
  }
  const bool recyclable = type >= kRecyclableFullType && type <= kRecyclableLastType;
  record.bytes = (recyclable ? kRecyclableHeaderBytes : kHeaderBytes) + length;
  record.cut = record.bytes > block.size();
  if (record.cut) return record;
  // The CRC covers the type and everything after it.
  const uint32_t stored = LoadLittleEndian<uint32_t>(block.data());
  record.good = stored == Mask(Crc32c(block.substr(6, record.bytes - 6)));
  return record;
}

// Offset of the first damage in one block, if any.
std::optional<LogDamage> CheckBlock(std::string_view block, bool last, bool may_be_torn) {
  size_t offset = 0;
  while (block.size() - offset >= kHeaderBytes) {
    const Record record = CheckRecord(block.substr(offset));
    if (!record.good) return LogDamage{offset, "a record's checksum is wrong"};
    if (record.cut && !(last && may_be_torn))
      return LogDamage{offset, "a record is longer than its block"};
    if (record.cut || record.bytes == 0) return std::nullopt;
    offset += record.bytes;
  }
  return std::nullopt;
}

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

absl::StatusOr<std::optional<LogDamage>> CheckLog(rocksdb::Env* env, const std::string& path,
                                                  bool may_be_torn) {
  const std::string what = absl::StrCat("reading '", path, "'");
  uint64_t file_bytes = 0;
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->GetFileSize(path, &file_bytes), what));
  std::unique_ptr<rocksdb::SequentialFile> file;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env->NewSequentialFile(path, &file, rocksdb::EnvOptions()), what));
  std::string buffer(kBlockBytes, '\0');
  for (uint64_t offset = 0; offset < file_bytes; offset += kBlockBytes) {
    rocksdb::Slice read;
    HPS_RETURN_IF_ERROR(FromRocksStatus(file->Read(kBlockBytes, &read, buffer.data()), what));
    const bool last = offset + read.size() >= file_bytes;
    std::optional<LogDamage> damage = CheckBlock({read.data(), read.size()}, last, may_be_torn);
    if (damage.has_value()) {
      damage->offset += offset;
      return damage;
    }
    if (read.size() < kBlockBytes) break;
  }
  return std::nullopt;
}

}  // namespace hps
