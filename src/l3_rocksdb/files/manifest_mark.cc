#include "l3_rocksdb/files/manifest_mark.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/files/log_check.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr char kMarkFile[] = "/hps.manifest";

std::string MarkLine(const std::string& body) {
  char crc[9];
  std::snprintf(crc, sizeof(crc), "%08" PRIx32, Crc32c(body));
  return absl::StrCat(body, " ", crc, "\n");
}

bool ParseLine(const std::string& line, ManifestMark& mark) {
  if (std::sscanf(line.c_str(), "MANIFEST-%" SCNu64 " %" SCNu64, &mark.number, &mark.bytes) != 2)
    return false;
  const size_t body_length = line.rfind(' ');
  return body_length != std::string::npos && MarkLine(line.substr(0, body_length)) == line;
}

ManifestMark ParseMark(const std::string& content) {
  ManifestMark mark;
  const size_t middle = content.size() / 2;
  const size_t first_end = std::min(content.find('\n'), content.size() - 1) + 1;
  // Candidates: both copies at their regular positions, and the first line of a truncated file.
  for (const std::string& copy :
       {content.substr(0, middle), content.substr(middle), content.substr(0, first_end)}) {
    if (!ParseLine(copy, mark)) continue;
    mark.state =
        content == copy + copy ? ManifestMark::State::kWhole : ManifestMark::State::kOneCopy;
    return mark;
  }
  return {.state = ManifestMark::State::kDamaged};
}

// The name of the MANIFEST that CURRENT names.
absl::StatusOr<std::string> CurrentManifest(rocksdb::Env* env, const std::string& store) {
  std::string current;
  const rocksdb::Status read = rocksdb::ReadFileToString(env, store + "/CURRENT", &current);
  HPS_RETURN_IF_ERROR(FromRocksStatus(read, absl::StrCat("reading '", store, "/CURRENT'")));
  while (current.ends_with('\n')) current.pop_back();
  return current;
}

uint64_t NumberOf(const std::string& manifest) {
  uint64_t number = 0;
  return std::sscanf(manifest.c_str(), "MANIFEST-%" SCNu64, &number) == 1 ? number : 0;
}

}  // namespace

absl::Status WriteManifestMark(rocksdb::DB& db, const std::string& store) {
  std::vector<std::string> files;
  uint64_t manifest_bytes = 0;
  HPS_RETURN_IF_ERROR(FromRocksStatus(db.GetLiveFiles(files, &manifest_bytes, false),
                                      absl::StrCat("store '", store, "': listing its files")));
  for (const std::string& file : files) {
    if (!file.starts_with("/MANIFEST-")) continue;
    // After a failed change of the MANIFEST, RocksDB 7.8 names one that CURRENT does not name,
    // until it makes another one.
    HPS_ASSIGN_OR_RETURN(const std::string current, CurrentManifest(db.GetEnv(), store));
    if (NumberOf(current) < NumberOf(file.substr(1))) {
      return absl::UnavailableError(absl::StrCat("store '", store, "': CURRENT names ", current,
                                                 ", and RocksDB ", file.substr(1),
                                                 ": hps.manifest stays as it was"));
    }
    const std::string line = MarkLine(absl::StrCat(file.substr(1), " ", manifest_bytes));
    return WriteFileDurably(db.GetEnv(), store + kMarkFile, line + line);
  }
  return absl::InternalError(absl::StrCat("store '", store, "': RocksDB names no MANIFEST"));
}

absl::Status WriteManifestMark(rocksdb::Env* env, const std::string& store) {
  HPS_ASSIGN_OR_RETURN(const std::string current, CurrentManifest(env, store));
  uint64_t bytes = 0;
  const rocksdb::Status sized = env->GetFileSize(store + "/" + current, &bytes);
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(sized, absl::StrCat("reading the MANIFEST of '", store, "'")));
  const std::string line = MarkLine(absl::StrCat(current, " ", bytes));
  return WriteFileDurably(env, store + kMarkFile, line + line);
}

absl::StatusOr<ManifestMark> ReadManifestMark(rocksdb::Env* env, const std::string& store) {
  std::string content;
  const rocksdb::Status read = rocksdb::ReadFileToString(env, store + kMarkFile, &content);
  if (IsGone(read)) return ManifestMark();
  HPS_RETURN_IF_ERROR(FromRocksStatus(read, absl::StrCat("reading '", store, kMarkFile, "'")));
  return ParseMark(content);
}

absl::Status CheckManifestMark(rocksdb::Env* env, const std::string& store) {
  HPS_ASSIGN_OR_RETURN(const ManifestMark mark, ReadManifestMark(env, store));
  if (mark.state == ManifestMark::State::kDamaged) {
    return absl::DataLossError(absl::StrCat("store '", store, "': hps.manifest is damaged; ",
                                            "run `hps verify --repair`"));
  }
  if (mark.state == ManifestMark::State::kOneCopy)
    LogWarning(absl::StrCat("store '", store, "': one copy of hps.manifest is damaged"));
  return CheckManifest(env, store, mark);
}

absl::Status CheckManifest(rocksdb::Env* env, const std::string& store, const ManifestMark& mark) {
  if (mark.state != ManifestMark::State::kWhole && mark.state != ManifestMark::State::kOneCopy)
    return absl::OkStatus();
  std::string current;
  uint64_t number = 0;
  const rocksdb::Status found = rocksdb::ReadFileToString(env, store + "/CURRENT", &current);
  if (!found.ok() && !IsDamage(found))
    return FromRocksStatus(found, absl::StrCat("reading '", store, "/CURRENT'"));
  if (!found.ok() || std::sscanf(current.c_str(), "MANIFEST-%" SCNu64, &number) != 1)
    return absl::DataLossError(absl::StrCat("store '", store, "': CURRENT can't be read"));
  uint64_t bytes = 0;
  while (current.ends_with('\n')) current.pop_back();
  const std::string manifest = store + "/" + current;
  const rocksdb::Status sized = env->GetFileSize(manifest, &bytes);
  if (!sized.ok() && !IsDamage(sized))
    return FromRocksStatus(sized, absl::StrCat("reading '", manifest, "'"));
  const bool shorter = number == mark.number && bytes < mark.bytes;
  if (!sized.ok() || number < mark.number || shorter) {
    return absl::DataLossError(absl::StrCat(
        "store '", store, "': ", current, " has ", bytes, " bytes, expected at least ", mark.bytes,
        " of MANIFEST-", mark.number, ", its length at the last change of tables"));
  }
  // After the marked length, the last record may be torn if the process or the machine stopped.
  HPS_ASSIGN_OR_RETURN(const std::optional<LogDamage> damage, CheckLog(env, manifest, false));
  if (!damage.has_value() || number != mark.number || damage->offset >= mark.bytes)
    return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("store '", store, "': ", current, " is damaged: ",
                                          damage->what, " at byte ", damage->offset));
}

}  // namespace hps
