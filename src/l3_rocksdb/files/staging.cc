#include "l3_rocksdb/files/staging.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/files/store_owner.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr char kManifestName[] = "/manifest";
constexpr char kLockName[] = "/lock";

std::string StagingRoot(const std::string& store) { return store + "/staging"; }

// RocksDB finds no file where it may not look.
bool MayNotLook(const std::string& path) {
  return access(path.c_str(), F_OK) != 0 && errno == EACCES;
}

// Errors: FAILED_PRECONDITION (no permission to look), UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::StatusOr<bool> IsReady(rocksdb::Env* env, const std::string& directory) {
  const rocksdb::Status found = env->FileExists(directory + kManifestName);
  if (found.IsNotFound() && MayNotLook(directory + kManifestName))
    return NotPermitted(directory, StagedName(directory), "read");
  if (found.IsNotFound()) return false;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(found, absl::StrCat("looking for '", directory, kManifestName, "'")));
  return true;
}

// Returns an empty list if there is no staging directory.
absl::StatusOr<std::vector<std::string>> Directories(rocksdb::Env* env, const std::string& store) {
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(StagingRoot(store), &names);
  if (IsGone(listed)) {
    // RocksDB returns this also for a directory without read permission.
    std::error_code error;
    static_cast<void>(std::filesystem::directory_iterator(StagingRoot(store), error));
    if (error == std::errc::permission_denied)
      return NotPermitted(StagingRoot(store), "the store's folder 'staging'", "read");
    return std::vector<std::string>();
  }
  HPS_RETURN_IF_ERROR(FromRocksStatus(listed, absl::StrCat("listing '", StagingRoot(store), "'")));
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    const std::string path = StagingRoot(store) + "/" + name;
    // Nothing behind a symbolic link is an import: a process with more rights than the user who
    // made the link must neither read nor remove it.
    std::error_code error;
    const auto status = std::filesystem::symlink_status(path, error);
    if (name != "." && name != ".." && !std::filesystem::is_symlink(status))
      directories.push_back(path);
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

absl::StatusOr<StagedImport> ReadManifest(rocksdb::Env* env, const std::string& directory) {
  std::string bytes;
  const absl::Status read =
      FromReadStatus(rocksdb::ReadFileToString(env, directory + kManifestName, &bytes),
                     absl::StrCat("reading '", directory, kManifestName, "'"));
  if (absl::IsPermissionDenied(read))
    return NotPermitted(directory + kManifestName, StagedName(directory), "read");
  HPS_RETURN_IF_ERROR(read);
  absl::StatusOr<StagedImport> decoded = DecodeStagedImport(bytes);
  if (absl::IsFailedPrecondition(decoded.status())) {
    LogError(absl::StrCat("'", directory, "': ", decoded.status().ToString()));
    return Public(absl::FailedPreconditionError(
        absl::StrCat(StagedName(directory),
                     " was made by another version of hps: remove it and import "
                     "again with this version, or start that version")));
  }
  HPS_ASSIGN_OR_RETURN(StagedImport import, std::move(decoded));
  import.directory = directory;
  return import;
}

// The oldest first.
void SortByOrder(std::vector<StagedImport>& imports) {
  std::sort(imports.begin(), imports.end(),
            [](const StagedImport& a, const StagedImport& b) { return a.order < b.order; });
}

// All staging directories by state. REQUIRES: the staging lock is held.
struct Staging {
  std::vector<StagedImport> ready;   // oldest first
  std::vector<std::string> damaged;  // directories with a damaged manifest
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
    } else {
      return import.status();
    }
  }
  SortByOrder(staging.ready);
  return staging;
}

PendingImport Describe(rocksdb::Env* env, const StagedImport& import) {
  PendingImport waiting;
  for (const StagedTable& table : import.tables) {
    TableInfo& info = waiting.tables.emplace_back(InfoOf(import, table));
    for (const StagedPageFile& file : table.files) {
      uint64_t bytes = 0;
      if (env->GetFileSize(import.directory + "/" + file.name, &bytes).ok()) info.bytes += bytes;
    }
  }
  return waiting;
}

// REQUIRES: the staging lock is held.
absl::Status RemoveLocked(rocksdb::Env* env, const std::string& directory) {
  HPS_ASSIGN_OR_RETURN(const bool is_ready, IsReady(env, directory));
  if (is_ready) {
    HPS_FAULT_POINT("l3.stage.before_removal");
    HPS_RETURN_IF_ERROR(RemoveFile(env, directory + kManifestName));
    // Otherwise a power cut could restore an import that was replaced or dropped.
    HPS_RETURN_IF_ERROR(SyncDirectory(env, directory));
    HPS_FAULT_POINT("l3.stage.in_removal");
  }
  return RemoveTree(env, directory);
}

// Logs a failure and continues; the next writer tries again.
void RemoveAndLog(rocksdb::Env* env, const std::string& directory, const char* what) {
  const absl::Status removed = RemoveLocked(env, directory);
  LogWarning(absl::StrCat("'", directory, "', ", what, ": ",
                          removed.ok() ? "removed" : removed.ToString()));
}

// Removes those of `directories` whose commands have ended. None of them is ready. REQUIRES: the
// staging lock is held.
void RemoveAbandoned(rocksdb::Env* env, const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const absl::StatusOr<bool> held = FileLock::IsHeld(directory + kLockName, 0);
    if (!held.ok()) {
      LogWarning(absl::StrCat("'", directory, "' was not removed: ", held.status().ToString()));
    } else if (!*held) {
      RemoveAndLog(env, directory, "left by an import that ended early");
    }
  }
}

// Part of the comparison because the store may refuse a newer import of another shape and accept
// the older one.
using TableShape = std::tuple<std::string, uint32_t, Dtype>;

std::set<TableShape> ShapesOf(const StagedImport& import) {
  std::set<TableShape> shapes;
  for (const StagedTable& table : import.tables)
    shapes.emplace(table.spec.name, table.spec.dim, table.spec.dtype);
  if (import.network.has_value()) shapes.emplace(import.network->model + "/", 0, Dtype::kFloat32);
  return shapes;
}

// Removes each of `older` (oldest first) whose tables are all in newer ones or in `newest`. Tables
// that were imported together switch together, so no table is removed alone. REQUIRES: the staging
// lock is held; `newest` is ready and durable.
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
    if (!removed.ok())
      LogWarning(absl::StrCat("a replaced import was not removed: ", removed.ToString()));
  }
}

}  // namespace

std::string StagedName(const std::string& directory) {
  return absl::StrCat("the staged import 'staging/",
                      std::filesystem::path(directory).filename().string(), "'");
}

absl::StatusOr<StagingDirectory> MakeStagingDirectory(rocksdb::Env* env, const std::string& store) {
  HPS_RETURN_IF_ERROR(MakeDirectories(env, StagingRoot(store)));
  const absl::Status root_given = GiveToStoreOwner(store, StagingRoot(store), GiveFiles::kNone);
  if (!root_given.ok()) {
    static_cast<void>(env->DeleteDir(StagingRoot(store)));  // if it is empty
    return root_given;
  }
  // A directory that is created but not locked yet looks like one of an ended command.
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  // Done here and not only at the commit: this import may need the space that they occupy.
  const absl::StatusOr<Staging> others = ReadStaging(env, store);
  if (others.ok()) {
    RemoveAbandoned(env, others->not_ready);
  } else if (absl::IsFailedPrecondition(others.status())) {
    return others.status();  // as it would be when all rows have been written
  } else {
    LogWarning(absl::StrCat("store '", store, "': can't remove the files of ended imports: ",
                            others.status().ToString()));
  }
  std::random_device random;
  char id[17];
  std::snprintf(id, sizeof(id), "%08x%08x", random(), random());
  StagingDirectory made;
  made.path = StagingRoot(store) + "/" + id;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env->CreateDir(made.path), absl::StrCat("creating '", made.path, "'")));
  absl::StatusOr<FileLock> lock = FileLock::Take(made.path + kLockName, 0, RealClock().Now());
  absl::Status begun = lock.status();
  // Now, so that the store's owner can see whether this import has ended, and remove its files.
  if (begun.ok()) begun = GiveToStoreOwner(store, made.path, GiveFiles::kWithFiles);
  if (!begun.ok()) {
    RemoveAndLog(env, made.path, "an import that could not begin");
    return begun;
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
  absl::Status written = WriteFileDurably(env, manifest, EncodeStagedImport(import));
  if (written.ok()) written = GiveToStoreOwner(store, import.directory, GiveFiles::kWithFiles);
  if (written.ok()) {
    RemoveReplaced(env, store, others.ready, import);
    return absl::OkStatus();
  }
  // The file may have its final name already. No process has seen it, because readers hold the
  // staging lock.
  const absl::Status removed = RemoveFile(env, manifest);
  if (removed.ok()) return written;
  may_be_ready = true;
  return absl::Status(
      written.code(),
      absl::StrCat(written.message(), "; the import may still be staged: ", removed.message()));
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
    ++(IsNotReady(env, directory) ? taken.damaged_count : taken.stuck_count);
  }
  RemoveAbandoned(env, staging.not_ready);
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
    if (IsNotReady(env, directory)) continue;  // the owner has just committed it
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

absl::StatusOr<ModelNetwork> ReadStagedNetwork(rocksdb::Env* env, const StagedImport& import) {
  const std::string path = import.directory + "/" + kStagedNetworkName;
  const std::string what = absl::StrCat("reading '", path, "'");
  ModelNetwork network{.inputs = import.network->inputs};
  const rocksdb::Status read = rocksdb::ReadFileToString(env, path, &network.onnx);
  if (IsGone(read)) return absl::DataLossError(absl::StrCat(what, ": the file is missing"));
  HPS_RETURN_IF_ERROR(FromReadStatus(read, what));
  network.digest = NetworkDigest(network);
  if (network.digest == import.network->digest) return network;
  return absl::DataLossError(
      absl::StrCat("'", path, "': wrong digest, the file has changed since it was written"));
}

bool IsNotReady(rocksdb::Env* env, const std::string& directory) {
  const absl::StatusOr<bool> is_ready = IsReady(env, directory);
  return is_ready.ok() && !*is_ready;
}

absl::Status RemoveStagedTable(rocksdb::Env* env, const std::string& store,
                               const std::string& table, StagedImport& import) {
  HPS_ASSIGN_OR_RETURN(const FileLock staging_lock, TakeStagingLock(store));
  StagedImport rest = import;
  std::erase_if(rest.tables, [&](const StagedTable& other) { return other.spec.name == table; });
  if (rest.tables.empty()) return RemoveLocked(env, import.directory);
  HPS_RETURN_IF_ERROR(
      WriteFileDurably(env, import.directory + kManifestName, EncodeStagedImport(rest)));
  for (const StagedTable& other : import.tables) {
    if (other.spec.name != table) continue;
    for (const StagedPageFile& file : other.files) {
      // The import does not need it. If this fails, the file is removed with the directory.
      const absl::Status removed = RemoveFile(env, import.directory + "/" + file.name);
      if (!removed.ok()) LogWarning(removed.ToString());
    }
  }
  import = std::move(rest);
  return absl::OkStatus();
}

}  // namespace hps
