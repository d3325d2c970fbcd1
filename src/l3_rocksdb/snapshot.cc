#include "l3_rocksdb/snapshot.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kSnapshotNameBytesMax = 64;
constexpr char kUnfinished[] = ".tmp";

std::string SnapshotsOf(const std::string& store) { return store + "/snapshots"; }

absl::Status CheckSnapshotName(const std::string& name) {
  const bool is_valid = !name.empty() && name.size() <= kSnapshotNameBytesMax && name[0] != '.' &&
                        std::all_of(name.begin(), name.end(), [](unsigned char c) {
                          return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                        });
  if (is_valid) return absl::OkStatus();
  return Public(absl::InvalidArgumentError(
      absl::StrCat("the name of a snapshot has 1 to ", kSnapshotNameBytesMax,
                   " letters, digits, '-', '_' and '.', and does not begin with '.'")));
}

absl::Status TakeFile(rocksdb::Env* env, const rocksdb::LiveFileStorageInfo& file,
                      const std::string& directory) {
  const std::string from = file.directory + "/" + file.relative_filename;
  const std::string to = directory + "/" + file.relative_filename;
  if (!file.replacement_contents.empty())
    return WriteFileDurably(env, to, file.replacement_contents);
  if (file.trim_to_size) return CopyFile(env, from, to, file.size);
  return LinkOrCopyFile(env, from, to);
}

// The page files of all tables. Tables do not change meanwhile: the caller holds change_mutex().
absl::StatusOr<uint64_t> LinkPages(Database& database, const std::string& directory) {
  uint64_t bytes = 0;
  const CatalogContents catalog = database.catalog().contents();
  for (const auto& [name, table] : catalog.tables) {
    std::vector<std::string> files;
    for (size_t i = 0; i < table.page_files.size(); ++i) {
      files.push_back(PageFilePath(database.path(), table.incarnation, table.first_file + i));
      uint64_t file_bytes = 0;
      if (database.env()->GetFileSize(files.back(), &file_bytes).ok()) bytes += file_bytes;
    }
    if (!files.empty()) HPS_RETURN_IF_ERROR(LinkPageFiles(database.env(), directory, table, files));
  }
  return bytes;
}

absl::StatusOr<uint64_t> Fill(Database& database, const std::string& directory) {
  rocksdb::Env* const env = database.env();
  std::vector<rocksdb::LiveFileStorageInfo> files;
  HPS_RETURN_IF_ERROR(database.writer().ListLiveFiles(&files));
  uint64_t bytes = 0;
  uint64_t copied_bytes = 0;
  for (const rocksdb::LiveFileStorageInfo& file : files) {
    bytes += file.size;
    if (file.trim_to_size) copied_bytes += file.size;
  }
  HPS_RETURN_IF_ERROR(database.store().space().CheckRoomFor(copied_bytes));
  for (const rocksdb::LiveFileStorageInfo& file : files)
    HPS_RETURN_IF_ERROR(TakeFile(env, file, directory));
  HPS_ASSIGN_OR_RETURN(const uint64_t page_bytes, LinkPages(database, directory));
  HPS_RETURN_IF_ERROR(WriteManifestMark(env, directory));
  HPS_RETURN_IF_ERROR(SyncDirectory(env, directory));
  return bytes + page_bytes;
}

}  // namespace

absl::StatusOr<uint64_t> MakeSnapshot(Database& database, const std::string& name) {
  HPS_RETURN_IF_ERROR(CheckSnapshotName(name));
  rocksdb::Env* const env = database.env();
  const std::string parent = SnapshotsOf(database.path());
  const std::string directory = parent + "/" + name;
  const std::string unfinished = absl::StrCat(parent, "/.", name, kUnfinished);
  if (env->FileExists(directory).ok())
    return Public(absl::AlreadyExistsError(absl::StrCat("there is a snapshot '", name, "'")));
  HPS_RETURN_IF_ERROR(RemoveUnfinishedSnapshots(env, database.path()));
  HPS_RETURN_IF_ERROR(MakeDirectories(env, unfinished));
  HPS_RETURN_IF_ERROR(database.writer().Sync());
  const std::string what = absl::StrCat("store '", database.path(), "': a snapshot");
  HPS_RETURN_IF_ERROR(FromRocksStatus(database.db().DisableFileDeletions(), what));
  absl::StatusOr<uint64_t> bytes = 0;
  {
    MutexLock lock(database.change_mutex());
    bytes = Fill(database, unfinished);
  }
  database.db().EnableFileDeletions(false).PermitUncheckedError();
  absl::Status done = bytes.status();
  if (done.ok()) done = FromRocksStatus(env->RenameFile(unfinished, directory), what);
  if (done.ok()) done = SyncDirectory(env, parent);
  if (done.ok()) return bytes;
  const absl::Status removed = RemoveTree(env, unfinished);
  if (!removed.ok()) LogWarning(absl::StrCat(what, ": ", TextForLog(removed)));
  return done;
}

absl::Status RemoveUnfinishedSnapshots(rocksdb::Env* env, const std::string& store) {
  std::vector<std::string> names;
  const std::string parent = SnapshotsOf(store);
  const rocksdb::Status listed = env->GetChildren(parent, &names);
  if (IsGone(listed)) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromRocksStatus(listed, absl::StrCat("listing '", parent, "'")));
  for (const std::string& name : names) {
    if (name.starts_with('.') && name.ends_with(kUnfinished))
      HPS_RETURN_IF_ERROR(RemoveTree(env, parent + "/" + name));
  }
  return absl::OkStatus();
}

}  // namespace hps
