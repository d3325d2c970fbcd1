#include "l3_rocksdb/import/staging.h"

#include <xxhash.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/record_codec.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr uint64_t kManifestMagic = 0x3147415453535048;  // "HPSSTAG1"
constexpr uint32_t kManifestVersion = 2;
constexpr char kManifestName[] = "/manifest";
constexpr char kLockName[] = "/lock";

std::string StagingRoot(const std::string& store) { return store + "/staging"; }

absl::StatusOr<bool> IsReady(rocksdb::Env* env, const std::string& directory) {
  const rocksdb::Status found = env->FileExists(directory + kManifestName);
  if (found.IsNotFound()) return false;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(found, absl::StrCat("looking for '", directory, kManifestName, "'")));
  return true;
}

// Empty when there is no staging directory at all.
absl::StatusOr<std::vector<std::string>> Directories(rocksdb::Env* env, const std::string& store) {
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(StagingRoot(store), &names);
  if (listed.IsNotFound() || listed.IsPathNotFound()) return std::vector<std::string>();
  HPS_RETURN_IF_ERROR(FromRocksStatus(listed, absl::StrCat("listing '", StagingRoot(store), "'")));
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    if (name != "." && name != "..") directories.push_back(StagingRoot(store) + "/" + name);
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

void AddFiles(RecordWriter& record, const std::vector<StagedFile>& files) {
  record.Add(static_cast<uint32_t>(files.size()));
  for (const StagedFile& file : files) {
    record.AddText(file.name).AddText(file.checksum);
    record.AddText(file.first_key).AddText(file.last_key);
  }
}

std::vector<StagedFile> TakeFiles(RecordReader& reader) {
  std::vector<StagedFile> files;
  const uint32_t count = reader.Take<uint32_t>();
  // The checksum has been compared: the count is what was written, but a bad one ends at the end.
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    StagedFile file;
    for (std::string* field : {&file.name, &file.checksum, &file.first_key, &file.last_key})
      *field = std::string(reader.TakeText());
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<StagedImport> ReadManifest(rocksdb::Env* env, const std::string& directory) {
  std::string bytes;
  HPS_RETURN_IF_ERROR(
      FromReadStatus(rocksdb::ReadFileToString(env, directory + kManifestName, &bytes),
                     absl::StrCat("reading '", directory, kManifestName, "'")));
  HPS_ASSIGN_OR_RETURN(StagedImport import, DecodeStagedImport(bytes));
  import.directory = directory;
  return import;
}

// The oldest first.
void SortByOrder(std::vector<StagedImport>& imports) {
  std::sort(imports.begin(), imports.end(),
            [](const StagedImport& a, const StagedImport& b) { return a.order < b.order; });
}

// All directories, by what they are. REQUIRES: the staging lock is held.
struct Staging {
  std::vector<StagedImport> ready;   // oldest first
  std::vector<std::string> damaged;  // their manifests
  std::vector<std::string> not_ready;
};

absl::StatusOr<Staging> ReadStaging(rocksdb::Env* env, const std::string& store) {
  HPS_ASSIGN_OR_RETURN(const std::vector<std::string> directories, Directories(env, store));
  Staging staging;
  for (const std::string& directory : directories) {
    HPS_ASSIGN_OR_RETURN(const bool is_ready, IsReady(env, directory));
    if (!is_ready) {
      staging.not_ready.push_back(directory);
      continue;
    }
    absl::StatusOr<StagedImport> import = ReadManifest(env, directory);
    if (import.ok()) {
      staging.ready.push_back(*std::move(import));
    } else if (absl::IsDataLoss(import.status())) {
      staging.damaged.push_back(directory);
    } else if (absl::IsFailedPrecondition(import.status())) {
      LogWarning(absl::StrCat("'", directory, "' is left: ", import.status().ToString()));
    } else {
      return import.status();
    }
  }
  SortByOrder(staging.ready);
  return staging;
}

uint64_t BytesOf(rocksdb::Env* env, const std::string& directory,
                 const std::vector<StagedFile>& files) {
  uint64_t sum = 0;
  for (const StagedFile& file : files) {
    uint64_t bytes = 0;
    if (env->GetFileSize(directory + "/" + file.name, &bytes).ok()) sum += bytes;
  }
  return sum;
}

PendingImport Describe(rocksdb::Env* env, const StagedImport& import) {
  PendingImport waiting;
  for (const StagedTable& table : import.tables) {
    TableInfo& info = waiting.tables.emplace_back();
    info.spec = table.spec;
    info.incarnation = table.incarnation;
    info.row_count = table.row_count;
    info.bytes = BytesOf(env, import.directory, table.row_files) +
                 BytesOf(env, import.directory, table.key_files);
  }
  return waiting;
}

// REQUIRES: the staging lock is held.
absl::Status RemoveLocked(rocksdb::Env* env, const std::string& directory) {
  HPS_ASSIGN_OR_RETURN(const bool is_ready, IsReady(env, directory));
  if (is_ready) {
    HPS_FAULT_POINT("l3.stage.before_removal");
    HPS_RETURN_IF_ERROR(RemoveFile(env, directory + kManifestName));
    // Else a power cut could bring back what a drop or a newer import has replaced.
    HPS_RETURN_IF_ERROR(SyncDirectory(env, directory));
    HPS_FAULT_POINT("l3.stage.in_removal");
  }
  return RemoveTree(env, directory);
}

// The import stays whole without it: what is left goes with the directory.
void RemoveStagedFile(rocksdb::Env* env, const std::string& directory, const std::string& name) {
  for (const char* suffix : {"", kLinkSuffix}) {
    const absl::Status removed = RemoveFile(env, directory + "/" + name + suffix);
    if (!removed.ok()) LogWarning(removed.ToString());
  }
}

// Not the end of anything when it fails: the next writer tries again.
void RemoveAndLog(rocksdb::Env* env, const std::string& directory, const char* what) {
  const absl::Status removed = RemoveLocked(env, directory);
  LogWarning(absl::StrCat("'", directory, "' held ", what, ": ",
                          removed.ok() ? "removed" : removed.ToString()));
}

// Of these directories, which are not ready, those whose commands have ended.
// REQUIRES: the staging lock is held.
void RemoveRemains(rocksdb::Env* env, const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const absl::StatusOr<bool> held = FileLock::IsHeld(directory + kLockName, 0);
    if (!held.ok()) {
      LogWarning(absl::StrCat("'", directory, "' is left: ", held.status().ToString()));
    } else if (!*held) {
      RemoveAndLog(env, directory, "the remains of an import that ended early");
    }
  }
}

// A newer import of another shape may be refused where the older one fits.
using TableShape = std::tuple<std::string, uint32_t, Dtype>;

std::set<TableShape> ShapesOf(const StagedImport& import) {
  std::set<TableShape> shapes;
  for (const StagedTable& table : import.tables)
    shapes.emplace(table.spec.name, table.spec.dim, table.spec.dtype);
  return shapes;
}

// Of `older`, oldest first, those whose tables are all in newer ones or in `newest`. Tables that
// were imported together switch together: none is taken out alone.
// REQUIRES: the staging lock is held; `newest` is ready, durably.
void RemoveReplaced(rocksdb::Env* env, const std::string& store,
                    const std::vector<StagedImport>& older, const StagedImport& newest) {
  if (older.empty()) return;
  const absl::StatusOr<bool> committing = CommitLockIsHeld(store);
  if (!committing.ok()) LogWarning(committing.status().ToString());
  if (!committing.ok() || *committing) return;
  std::set<TableShape> newer = ShapesOf(newest);
  for (auto import = older.rbegin(); import != older.rend(); ++import) {
    std::set<TableShape> shapes = ShapesOf(*import);
    if (!std::includes(newer.begin(), newer.end(), shapes.begin(), shapes.end())) {
      newer.merge(shapes);
      continue;
    }
    const absl::Status removed = RemoveLocked(env, import->directory);
    if (!removed.ok()) LogWarning(absl::StrCat("a replaced import is left: ", removed.ToString()));
  }
}

}  // namespace

std::string EncodeStagedImport(const StagedImport& import) {
  RecordWriter record;
  record.Add(kManifestMagic).Add(kManifestVersion).Add(import.order);
  record.Add(static_cast<uint32_t>(import.tables.size()));
  for (const StagedTable& table : import.tables) {
    record.AddText(table.spec.name).Add(table.incarnation).Add(table.row_count);
    record.Add(table.spec.dim).Add(static_cast<uint8_t>(table.spec.dtype));
    record.AddText(AsText(table.spec.default_row));
    AddFiles(record, table.row_files);
    AddFiles(record, table.key_files);
  }
  const uint64_t checksum = XXH3_64bits(record.text().data(), record.text().size());
  record.Add(checksum);
  return record.text();
}

absl::StatusOr<StagedImport> DecodeStagedImport(std::string_view bytes) {
  const absl::Status damaged = absl::DataLossError("the manifest of a staged import is damaged");
  if (bytes.size() < sizeof(uint64_t)) return damaged;
  const std::string_view covered = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (LoadLittleEndian<uint64_t>(bytes.data() + covered.size()) !=
      XXH3_64bits(covered.data(), covered.size())) {
    return damaged;
  }
  RecordReader reader(covered);
  if (reader.Take<uint64_t>() != kManifestMagic) return damaged;
  if (reader.Take<uint32_t>() != kManifestVersion)
    return absl::FailedPreconditionError("a staged import was made by another version of hps");
  StagedImport import;
  import.order = reader.Take<uint64_t>();
  const uint32_t table_count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < table_count && reader.good(); ++i) {
    StagedTable table;
    table.spec.name = std::string(reader.TakeText());
    table.incarnation = reader.Take<uint64_t>();
    table.row_count = reader.Take<uint64_t>();
    table.spec.dim = reader.Take<uint32_t>();
    table.spec.dtype = static_cast<Dtype>(reader.Take<uint8_t>());
    const std::span<const std::byte> default_row = AsBytes(reader.TakeText());
    table.spec.default_row.assign(default_row.begin(), default_row.end());
    table.row_files = TakeFiles(reader);
    table.key_files = TakeFiles(reader);
    if (!ValidateTableSpec(table.spec).ok()) return damaged;
    import.tables.push_back(std::move(table));
  }
  if (!reader.AtEnd()) return damaged;
  return import;
}

absl::StatusOr<StagingDirectory> MakeStagingDirectory(rocksdb::Env* env, const std::string& store) {
  HPS_RETURN_IF_ERROR(MakeDirectories(env, StagingRoot(store)));
  // Between making a directory and locking it, it looks like one that was left behind.
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  // Not only at the commit: the room that they take may be what this import lacks to come so far.
  const absl::StatusOr<Staging> others = ReadStaging(env, store);
  if (others.ok()) {
    RemoveRemains(env, others->not_ready);
  } else {
    LogWarning(absl::StrCat("store '", store,
                            "': what ended imports have left stays: ", others.status().ToString()));
  }
  std::random_device random;
  char id[17];
  std::snprintf(id, sizeof(id), "%08x%08x", random(), random());
  StagingDirectory made;
  made.path = StagingRoot(store) + "/" + id;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env->CreateDir(made.path), absl::StrCat("making '", made.path, "'")));
  absl::StatusOr<FileLock> lock = FileLock::Take(made.path + kLockName, 0, RealClock().Now());
  if (!lock.ok()) {
    RemoveAndLog(env, made.path, "an import that could not begin");
    return lock.status();
  }
  made.lock = *std::move(lock);
  return made;
}

absl::Status MarkReady(rocksdb::Env* env, const std::string& store, StagedImport& import,
                       bool& may_be_ready) {
  may_be_ready = false;
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  HPS_ASSIGN_OR_RETURN(const Staging others, ReadStaging(env, store));
  import.order = others.ready.empty() ? 1 : others.ready.back().order + 1;
  HPS_RETURN_IF_ERROR(SyncDirectory(env, import.directory));
  HPS_RETURN_IF_ERROR(SyncDirectory(env, StagingRoot(store)));
  HPS_RETURN_IF_ERROR(SyncDirectory(env, store));
  HPS_FAULT_POINT("l3.stage.before_ready");
  const std::string manifest = import.directory + kManifestName;
  const absl::Status written = WriteFileDurably(env, manifest, EncodeStagedImport(import));
  if (written.ok()) {
    RemoveReplaced(env, store, others.ready, import);
    return absl::OkStatus();
  }
  // It may have its name by now. Nobody has seen it: who looks holds the staging lock.
  const absl::Status taken_back = RemoveFile(env, manifest);
  if (taken_back.ok()) return written;
  may_be_ready = true;
  return absl::Status(written.code(), absl::StrCat(written.message(),
                                                   "; the import may be left staged all the same: ",
                                                   taken_back.message()));
}

absl::StatusOr<TakenImports> TakeReadyImports(rocksdb::Env* env, const std::string& store) {
  TakenImports taken;
  HPS_ASSIGN_OR_RETURN(const std::vector<std::string> directories, Directories(env, store));
  if (directories.empty()) return taken;
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  HPS_ASSIGN_OR_RETURN(taken.lock, TakeCommitLock(store));
  HPS_ASSIGN_OR_RETURN(Staging staging, ReadStaging(env, store));
  for (const std::string& directory : staging.damaged) {
    RemoveAndLog(env, directory, "a staged import whose manifest is damaged");
    taken.damaged_count += IsNotReady(env, directory) ? 1 : 0;
  }
  RemoveRemains(env, staging.not_ready);
  taken.ready = std::move(staging.ready);
  return taken;
}

absl::StatusOr<std::vector<PendingImport>> ListReadyImports(rocksdb::Env* env,
                                                            const std::string& store) {
  HPS_ASSIGN_OR_RETURN(const std::vector<std::string> directories, Directories(env, store));
  std::vector<StagedImport> ready;
  std::vector<PendingImport> unreadable;
  for (const std::string& directory : directories) {
    if (IsNotReady(env, directory)) continue;
    absl::StatusOr<StagedImport> import = ReadManifest(env, directory);
    if (import.ok()) {
      ready.push_back(*std::move(import));
      continue;
    }
    if (IsNotReady(env, directory)) continue;  // its owner has just taken it
    unreadable.push_back(
        {.tables = {}, .problem = absl::StrCat("'", directory, "': ", import.status().ToString())});
  }
  SortByOrder(ready);
  std::vector<PendingImport> waiting;
  for (const StagedImport& import : ready) waiting.push_back(Describe(env, import));
  std::move(unreadable.begin(), unreadable.end(), std::back_inserter(waiting));
  return waiting;
}

absl::Status RemoveStaging(rocksdb::Env* env, const std::string& store,
                           const std::string& directory) {
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  return RemoveLocked(env, directory);
}

bool IsNotReady(rocksdb::Env* env, const std::string& directory) {
  const absl::StatusOr<bool> is_ready = IsReady(env, directory);
  return is_ready.ok() && !*is_ready;
}

absl::Status TakeOutTable(rocksdb::Env* env, const std::string& store, const std::string& table,
                          StagedImport& import) {
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  StagedImport rest = import;
  std::erase_if(rest.tables, [&](const StagedTable& other) { return other.spec.name == table; });
  if (rest.tables.empty()) return RemoveLocked(env, import.directory);
  HPS_RETURN_IF_ERROR(
      WriteFileDurably(env, import.directory + kManifestName, EncodeStagedImport(rest)));
  for (const StagedTable& other : import.tables) {
    if (other.spec.name != table) continue;
    for (const StagedFile& file : other.row_files)
      RemoveStagedFile(env, import.directory, file.name);
    for (const StagedFile& file : other.key_files)
      RemoveStagedFile(env, import.directory, file.name);
  }
  import = std::move(rest);
  return absl::OkStatus();
}

}  // namespace hps
