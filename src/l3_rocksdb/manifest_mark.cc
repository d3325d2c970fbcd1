#include "l3_rocksdb/manifest_mark.h"

#include <cinttypes>
#include <cstdio>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/log_check.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_files.h"

namespace hps {
namespace {

constexpr char kMarkFile[] = "/hps.manifest";

std::string MarkLine(const std::string& body) {
  char crc[9];
  std::snprintf(crc, sizeof(crc), "%08" PRIx32, Crc32c(body));
  return absl::StrCat(body, " ", crc, "\n");
}

struct Mark {
  uint64_t number = 0;
  uint64_t bytes = 0;
};

bool ParseMark(const std::string& line, Mark& mark) {
  if (std::sscanf(line.c_str(), "MANIFEST-%" SCNu64 " %" SCNu64, &mark.number, &mark.bytes) != 2)
    return false;
  const size_t body_length = line.rfind(' ');
  return body_length != std::string::npos && MarkLine(line.substr(0, body_length)) == line;
}

}  // namespace

absl::Status WriteManifestMark(rocksdb::DB& db, const std::string& store) {
  std::vector<std::string> files;
  uint64_t manifest_bytes = 0;
  HPS_RETURN_IF_ERROR(FromRocksStatus(db.GetLiveFiles(files, &manifest_bytes, false),
                                      absl::StrCat("store '", store, "': listing its files")));
  for (const std::string& file : files) {
    if (!file.starts_with("/MANIFEST-")) continue;
    return WriteFileDurably(db.GetEnv(), store + kMarkFile,
                            MarkLine(absl::StrCat(file.substr(1), " ", manifest_bytes)));
  }
  return absl::InternalError(absl::StrCat("store '", store, "': RocksDB names no MANIFEST"));
}

absl::Status CheckManifestMark(rocksdb::Env* env, const std::string& store) {
  std::string line;
  const rocksdb::Status read = rocksdb::ReadFileToString(env, store + kMarkFile, &line);
  if (read.IsNotFound() || read.IsPathNotFound()) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromRocksStatus(read, absl::StrCat("reading '", store, kMarkFile, "'")));
  Mark mark;
  if (!ParseMark(line, mark))
    return absl::DataLossError(absl::StrCat("store '", store, "': hps.manifest is damaged"));
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
        " of MANIFEST-", mark.number, ", which it had when the tables last changed"));
  }
  // Behind the mark, a record may have been torn when the process or the machine ended.
  HPS_ASSIGN_OR_RETURN(const std::optional<LogDamage> damage, CheckLog(env, manifest, false));
  if (!damage.has_value() || number != mark.number || damage->offset >= mark.bytes)
    return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("store '", store, "': ", current, " is damaged: ",
                                          damage->what, " at byte ", damage->offset));
}

}  // namespace hps
