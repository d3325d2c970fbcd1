#include "update/parked_messages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/logging.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr std::string_view kFileMagic = "HPSPARK1";
constexpr std::string_view kRecordMagic = "PARK";

// The fixed part of a record, by offset; table, topic, detail, payload and checksum follow it.
constexpr size_t kRecordBytesAt = 4;    // u32: of the whole record
constexpr size_t kTimeAt = 8;           // i64
constexpr size_t kOffsetAt = 16;        // u64
constexpr size_t kPartitionAt = 24;     // u32
constexpr size_t kGenerationAt = 28;    // u16
constexpr size_t kReasonAt = 30;        // u16
constexpr size_t kTableBytesAt = 32;    // u32
constexpr size_t kTopicBytesAt = 36;    // u32
constexpr size_t kDetailBytesAt = 40;   // u32
constexpr size_t kPayloadBytesAt = 44;  // u32
constexpr size_t kRecordFixedBytes = 48;
constexpr size_t kChecksumBytes = 8;    // XXH3-64 of all bytes of the record before it
constexpr size_t kTextBytesMax = 4096;  // of table, topic and detail, each

std::string FilePath(const std::string& store_path) { return store_path + "/parked/messages"; }

absl::Status FileError(std::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("parked messages: ", std::string(what), " ", path));
}

absl::Status WriteAt(int file, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "parked messages: cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

// The whole file.
absl::StatusOr<std::string> ReadAll(int file, const std::string& path) {
  struct stat status = {};
  if (fstat(file, &status) != 0) return FileError("cannot read", path);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot read", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Encode(const ParkedMessage& message, bool with_payload) {
  const std::string_view table = std::string_view(message.table).substr(0, kTextBytesMax);
  const std::string_view topic = std::string_view(message.topic).substr(0, kTextBytesMax);
  std::string detail = message.detail.substr(0, kTextBytesMax);
  std::string_view payload = AsText(message.payload);
  if (!with_payload && !payload.empty()) {
    absl::StrAppend(&detail, " (its ", payload.size(), " bytes were not kept)");
    payload = {};
  }
  std::string record(kRecordFixedBytes, '\0');
  const size_t total = kRecordFixedBytes + table.size() + topic.size() + detail.size() +
                       payload.size() + kChecksumBytes;
  std::memcpy(record.data(), kRecordMagic.data(), kRecordMagic.size());
  StoreLittleEndian<uint32_t>(&record[kRecordBytesAt], static_cast<uint32_t>(total));
  StoreLittleEndian<int64_t>(&record[kTimeAt], message.time_ms);
  StoreLittleEndian<uint64_t>(&record[kOffsetAt], message.position.offset);
  StoreLittleEndian<uint32_t>(&record[kPartitionAt], message.position.partition);
  StoreLittleEndian<uint16_t>(&record[kGenerationAt], message.position.generation);
  StoreLittleEndian<uint16_t>(&record[kReasonAt], static_cast<uint16_t>(message.reason));
  StoreLittleEndian<uint32_t>(&record[kTableBytesAt], static_cast<uint32_t>(table.size()));
  StoreLittleEndian<uint32_t>(&record[kTopicBytesAt], static_cast<uint32_t>(topic.size()));
  StoreLittleEndian<uint32_t>(&record[kDetailBytesAt], static_cast<uint32_t>(detail.size()));
  StoreLittleEndian<uint32_t>(&record[kPayloadBytesAt], static_cast<uint32_t>(payload.size()));
  record.reserve(total);
  record.append(table).append(topic).append(detail).append(payload);
  const uint64_t checksum = Checksum(record);
  record.resize(total);
  StoreLittleEndian<uint64_t>(&record[total - kChecksumBytes], checksum);
  return record;
}

// The record at the beginning of `bytes`, which may be damaged; empty: there is no whole one.
std::string_view NextRecord(std::string_view bytes) {
  if (bytes.size() < kRecordFixedBytes || !bytes.starts_with(kRecordMagic)) return {};
  const auto total = LoadLittleEndian<uint32_t>(&bytes[kRecordBytesAt]);
  if (total < kRecordFixedBytes + kChecksumBytes || total > bytes.size()) return {};
  return bytes.substr(0, total);
}

// nullopt: damaged.
std::optional<ParkedMessage> Decode(std::string_view record) {
  const size_t checksum_at = record.size() - kChecksumBytes;
  if (LoadLittleEndian<uint64_t>(&record[checksum_at]) != Checksum(record.substr(0, checksum_at))) {
    return std::nullopt;
  }
  const uint64_t table_bytes = LoadLittleEndian<uint32_t>(&record[kTableBytesAt]);
  const uint64_t topic_bytes = LoadLittleEndian<uint32_t>(&record[kTopicBytesAt]);
  const uint64_t detail_bytes = LoadLittleEndian<uint32_t>(&record[kDetailBytesAt]);
  const uint64_t payload_bytes = LoadLittleEndian<uint32_t>(&record[kPayloadBytesAt]);
  const auto reason = LoadLittleEndian<uint16_t>(&record[kReasonAt]);
  if (kRecordFixedBytes + table_bytes + topic_bytes + detail_bytes + payload_bytes != checksum_at ||
      reason >= kParkReasonCount) {
    return std::nullopt;
  }
  std::string_view rest = record.substr(kRecordFixedBytes);
  const auto take = [&rest](uint64_t count) {
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  };
  ParkedMessage message;
  message.table = take(table_bytes);
  message.topic = take(topic_bytes);
  message.detail = take(detail_bytes);
  const std::span<const std::byte> payload = AsBytes(take(payload_bytes));
  message.payload.assign(payload.begin(), payload.end());
  message.position = {.partition = LoadLittleEndian<uint32_t>(&record[kPartitionAt]),
                      .generation = LoadLittleEndian<uint16_t>(&record[kGenerationAt]),
                      .offset = LoadLittleEndian<uint64_t>(&record[kOffsetAt])};
  message.reason = static_cast<ParkReason>(reason);
  message.time_ms = LoadLittleEndian<int64_t>(&record[kTimeAt]);
  return message;
}

// The records of a file, and where the last whole one ends.
struct Records {
  std::vector<std::string_view> records;
  uint64_t end = 0;
};

absl::StatusOr<Records> Split(std::string_view bytes, const std::string& path) {
  Records found;
  if (bytes.size() < kFileMagic.size() && kFileMagic.starts_with(bytes)) return found;
  if (!bytes.starts_with(kFileMagic)) {
    return absl::DataLossError(
        absl::StrCat("parked messages: ", path, " is damaged or of another program"));
  }
  found.end = kFileMagic.size();
  while (true) {
    const std::string_view record = NextRecord(bytes.substr(found.end));
    if (record.empty()) return found;
    found.records.push_back(record);
    found.end += record.size();
  }
}

absl::Status MakeDirectory(const std::string& store_path) {
  const std::string directory = store_path + "/parked";
  if (mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return FileError("cannot create", directory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParkedMessages>> ParkedMessages::Open(const std::string& store_path,
                                                                     uint64_t bytes_max) {
  HPS_RETURN_IF_ERROR(MakeDirectory(store_path));
  const std::string path = FilePath(store_path);
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.number() < 0) return FileError("cannot open", path);
  HPS_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(file.number(), path));
  const absl::StatusOr<Records> records = Split(bytes, path);
  if (absl::IsDataLoss(records.status())) {
    // A damaged file must not keep the store from being served.
    const std::string aside = path + ".damaged";
    if (rename(path.c_str(), aside.c_str()) != 0) return FileError("cannot rename", path);
    LogWarning(absl::StrCat(std::string(records.status().message()), "; it is kept as ", aside));
    return Open(store_path, bytes_max);
  }
  HPS_RETURN_IF_ERROR(records.status());
  uint64_t end = records->end;
  if (end == 0) {
    HPS_RETURN_IF_ERROR(WriteAt(file.number(), kFileMagic, 0));
    end = kFileMagic.size();
  }
  if (ftruncate(file.number(), static_cast<off_t>(end)) != 0)
    return FileError("cannot shorten", path);
  return std::unique_ptr<ParkedMessages>(new ParkedMessages(std::move(file), end, bytes_max));
}

absl::Status ParkedMessages::Add(const ParkedMessage& message) {
  const MutexLock lock(mutex_);
  ++counts_[static_cast<size_t>(message.reason)];
  const auto fits = [&](uint64_t bytes)
                        HPS_REQUIRES(mutex_) { return bytes_ + bytes <= bytes_max_; };
  std::string record;
  if (message.payload.size() <= kUpdateMessageBytesMax && fits(message.payload.size())) {
    record = Encode(message, true);
  }
  if (record.empty() || !fits(record.size())) record = Encode(message, false);
  if (!fits(record.size())) return absl::OkStatus();
  const absl::Status written = WriteAt(file_.number(), record, bytes_);
  if (!written.ok()) {
    // If this fails too, the next record overwrites what was left.
    if (ftruncate(file_.number(), static_cast<off_t>(bytes_)) != 0) return written;
    return written;
  }
  bytes_ += record.size();
  return absl::OkStatus();
}

std::array<uint64_t, kParkReasonCount> ParkedMessages::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

absl::StatusOr<std::vector<ParkedMessage>> ReadParkedMessages(const std::string& store_path) {
  const std::string path = FilePath(store_path);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) {
    if (errno == ENOENT) return std::vector<ParkedMessage>();
    return FileError("cannot open", path);
  }
  HPS_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(file.number(), path));
  HPS_ASSIGN_OR_RETURN(const Records records, Split(bytes, path));
  std::vector<ParkedMessage> messages;
  for (const std::string_view record : records.records) {
    std::optional<ParkedMessage> message = Decode(record);
    if (message.has_value()) messages.push_back(*std::move(message));
  }
  return messages;
}

absl::Status ReplaceParkedMessages(const std::string& store_path,
                                   std::span<const ParkedMessage> messages) {
  HPS_RETURN_IF_ERROR(MakeDirectory(store_path));
  const std::string path = FilePath(store_path);
  const std::string temporary = path + ".tmp";
  const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.number() < 0) return FileError("cannot create", temporary);
  uint64_t bytes = kFileMagic.size();
  HPS_RETURN_IF_ERROR(WriteAt(file.number(), kFileMagic, 0));
  for (const ParkedMessage& message : messages) {
    const std::string record = Encode(message, true);
    HPS_RETURN_IF_ERROR(WriteAt(file.number(), record, bytes));
    bytes += record.size();
  }
  if (fsync(file.number()) != 0) return FileError("cannot write", temporary);
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError("cannot replace", path);
  const Descriptor directory(
      open((store_path + "/parked").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.number() < 0 || fsync(directory.number()) != 0)
    return FileError("cannot sync", path);
  return absl::OkStatus();
}

}  // namespace hps
