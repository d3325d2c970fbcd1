#include "update/parked_messages.h"

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/record_codec.h"

namespace hps {
namespace {

constexpr std::string_view kFileMagic = "HPSPARK2";
constexpr uint32_t kRecordMagic = 0x4b524150;  // "PARK"
constexpr size_t kTextBytesMax = 4096;         // of table, topic and detail, each

std::string FilePath(const std::string& store_path) { return store_path + "/parked/messages"; }

uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// A record: "PARK", the checksum of its fields, their size, and the fields.
std::string Encode(const ParkedMessage& message, bool with_payload) {
  std::string detail = message.detail.substr(0, kTextBytesMax);
  std::string_view payload = AsText(message.payload);
  if (!with_payload && !payload.empty()) {
    absl::StrAppend(&detail, " (its ", payload.size(), " bytes were not kept)");
    payload = {};
  }
  RecordWriter fields;
  fields.Add(message.time_ms)
      .Add(message.position.offset)
      .Add(message.position.partition)
      .Add(message.position.generation)
      .Add(static_cast<uint16_t>(message.reason))
      .AddText(std::string_view(message.table).substr(0, kTextBytesMax))
      .AddText(std::string_view(message.topic).substr(0, kTextBytesMax))
      .AddText(detail)
      .AddText(payload);
  return RecordWriter()
      .Add(kRecordMagic)
      .Add(Checksum(fields.text()))
      .AddText(fields.text())
      .text();
}

// nullopt: not of this version, such as a reason that it does not know.
std::optional<ParkedMessage> Decode(std::string_view bytes) {
  RecordReader fields(bytes);
  ParkedMessage message;
  message.time_ms = fields.Take<int64_t>();
  message.position.offset = fields.Take<uint64_t>();
  message.position.partition = fields.Take<uint32_t>();
  message.position.generation = fields.Take<uint16_t>();
  const auto reason = fields.Take<uint16_t>();
  message.reason = static_cast<ParkReason>(reason);
  message.table = fields.TakeText();
  message.topic = fields.TakeText();
  message.detail = fields.TakeText();
  const std::span<const std::byte> payload = AsBytes(fields.TakeText());
  message.payload.assign(payload.begin(), payload.end());
  if (!fields.AtEnd() || reason >= kParkReasonCount) return std::nullopt;
  return message;
}

// The fields of each undamaged record of a file, and where the last complete record ends.
struct Records {
  std::vector<std::string_view> fields;
  uint64_t end = 0;
};

absl::StatusOr<Records> Split(std::string_view bytes, const std::string& path) {
  Records found;
  if (bytes.size() < kFileMagic.size() && kFileMagic.starts_with(bytes)) return found;
  if (!bytes.starts_with(kFileMagic)) {
    return absl::DataLossError(absl::StrCat(
        "parked messages: ", path, " is damaged, of another version or of another program"));
  }
  for (RecordReader rest(bytes.substr(kFileMagic.size()));;) {
    found.end = bytes.size() - rest.size();
    const auto magic = rest.Take<uint32_t>();
    const auto checksum = rest.Take<uint64_t>();
    const std::string_view fields = rest.TakeText();
    if (magic != kRecordMagic || !rest.good()) return found;
    if (Checksum(fields) == checksum) found.fields.push_back(fields);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
  return file.ReadAll();
}

absl::Status MakeDirectory(const std::string& store_path) {
  const std::string directory = store_path + "/parked";
  if (mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return FileError(errno, "can't create", directory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParkedMessages>> ParkedMessages::Open(const std::string& store_path,
                                                                     uint64_t bytes_max) {
  HPS_RETURN_IF_ERROR(MakeDirectory(store_path));
  const std::string path = FilePath(store_path);
  HPS_ASSIGN_OR_RETURN(File file, File::OpenOrCreate(path));
  HPS_ASSIGN_OR_RETURN(const std::string bytes, file.ReadAll());
  const absl::StatusOr<Records> records = Split(bytes, path);
  if (absl::IsDataLoss(records.status())) {
    // A damaged file must not keep the store from being served.
    std::string aside = path + ".damaged";
    for (int i = 2; access(aside.c_str(), F_OK) == 0; ++i)
      aside = absl::StrCat(path, ".damaged", i);
    if (rename(path.c_str(), aside.c_str()) != 0) return FileError(errno, "can't rename", path);
    LogWarning(absl::StrCat(std::string(records.status().message()), "; it is kept as ", aside));
    return Open(store_path, bytes_max);
  }
  HPS_RETURN_IF_ERROR(records.status());
  uint64_t end = records->end;
  if (end == 0) {
    HPS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(kFileMagic)));
    end = kFileMagic.size();
  }
  HPS_RETURN_IF_ERROR(file.Truncate(end));
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
  const absl::Status written = file_.WriteAt(bytes_, AsBytes(record));
  if (!written.ok()) {
    // If this fails too, the next record overwrites what was left.
    static_cast<void>(file_.Truncate(bytes_));
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
  absl::StatusOr<std::string> bytes = ReadFile(path);
  // A server may have cut off the part of a message for which the disk had no room.
  if (absl::IsDataLoss(bytes.status())) bytes = ReadFile(path);
  if (absl::IsNotFound(bytes.status())) return std::vector<ParkedMessage>();
  HPS_RETURN_IF_ERROR(bytes.status());
  HPS_ASSIGN_OR_RETURN(const Records records, Split(*bytes, path));
  std::vector<ParkedMessage> messages;
  for (const std::string_view fields : records.fields) {
    std::optional<ParkedMessage> message = Decode(fields);
    if (message.has_value()) messages.push_back(*std::move(message));
  }
  return messages;
}

absl::Status ReplaceParkedMessages(const std::string& store_path,
                                   std::span<const ParkedMessage> messages) {
  HPS_RETURN_IF_ERROR(MakeDirectory(store_path));
  const std::string path = FilePath(store_path);
  const std::string temporary = path + ".tmp";
  std::string bytes(kFileMagic);
  for (const ParkedMessage& message : messages) bytes += Encode(message, true);
  HPS_ASSIGN_OR_RETURN(const File file, File::OpenOrCreate(temporary));
  HPS_RETURN_IF_ERROR(file.Truncate(0));
  HPS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(bytes)));
  HPS_RETURN_IF_ERROR(file.Sync());
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError(errno, "can't replace", path);
  return SyncDirectory(store_path + "/parked");
}

}  // namespace hps
