#include "l3_rocksdb/files/store_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kCopyBytes = size_t{1} << 20;
constexpr char kTemporaryExtension[] = ".dbtmp";  // files that RocksDB renames when complete

bool IsOurs(const std::string& name) {
  return name == "." || name == ".." || name == "hps.lock" || name == "hps.manifest" ||
         name == "hps.manifest.tmp" || name == "hps.reserve" || name == "pages" ||
         name == "staging" || name == "snapshots" || name == "parked" || name == "lost+found";
}

// Files that RocksDB creates before CURRENT. An interrupted creation may leave them.
bool IsOfCreation(const std::string& name) {
  return name == "LOCK" || name == "IDENTITY" || name.starts_with("MANIFEST-") ||
         name.ends_with(kTemporaryExtension);
}

// Table files and WAL files. The number distinguishes RocksDB's files from others with the same
// extension.
bool HoldsRows(const std::string& name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view extension = std::string_view(name).substr(digits);
  return digits > 0 && (extension == ".sst" || extension == ".log");
}

// Whether a link failed because the file system has none. RocksDB tells so for two error numbers;
// FAT and some file systems in user space answer with others.
bool IsWithoutLinks(const rocksdb::Status& status) {
  if (status.ok() || status.IsNotSupported()) return !status.ok();
  const std::string text = status.ToString();
  return absl::StrContains(text, std::generic_category().message(EPERM)) ||
         absl::StrContains(text, std::generic_category().message(ENOSYS));
}

}  // namespace

absl::StatusOr<StoreFiles> FindStore(rocksdb::Env* env, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the store's path is empty");
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(path, &names);
  if (IsGone(listed)) {
    // RocksDB returns this also for a directory without read permission.
    std::error_code error;
    static_cast<void>(std::filesystem::directory_iterator(path, error));
    if (error == std::errc::permission_denied) {
      return absl::PermissionDeniedError(
          absl::StrCat("store '", path, "': the directory can't be read: ", error.message()));
    }
    if (env->FileExists(path).ok() && !std::filesystem::is_directory(path, error)) {
      return absl::FailedPreconditionError(
          absl::StrCat("store '", path, "': found a file, expected a directory"));
    }
    return StoreFiles::kNone;
  }
  if (!listed.ok()) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error)) {
      return absl::FailedPreconditionError(
          absl::StrCat("store '", path, "': found a file, expected a directory"));
    }
    return FromRocksStatus(listed, absl::StrCat("store '", path, "': listing the directory"));
  }
  bool empty = true;
  bool rows = false;
  for (const std::string& name : names) {
    if (name == "CURRENT") return StoreFiles::kStore;
    rows |= HoldsRows(name);
    empty &= IsOurs(name) || IsOfCreation(name);
  }
  if (rows) {
    return absl::DataLossError(absl::StrCat(
        "store '", path, "': the file CURRENT is missing, but table files or WAL files exist"));
  }
  if (!empty) {
    return absl::FailedPreconditionError(
        absl::StrCat("store '", path, "': the directory is neither empty nor a store"));
  }
  return StoreFiles::kNone;
}

absl::Status OpenError(const rocksdb::Status& status, const std::string& path) {
  absl::Status error = FromReadStatus(status, absl::StrCat("store '", path, "': opening"));
  if (!status.IsInvalidArgument()) return error;
  // RocksDB returns "invalid argument" for an unknown comparator or column family, but also if
  // CURRENT cannot be opened with direct I/O, which it tries first.
  const bool failed_read = absl::StrContains(error.message(), "Direct I/O is not supported") ||
                           absl::StrContains(error.message(), "incompatible with filesystem");
  return failed_read ? absl::UnavailableError(error.message())
                     : absl::DataLossError(error.message());
}

absl::Status MakeDirectories(rocksdb::Env* env, const std::string& path) {
  const std::string what = absl::StrCat("creating '", path, "'");
  const rocksdb::Status found = env->FileExists(path);
  if (!found.ok() && !found.IsNotFound()) return FromRocksStatus(found, what);
  if (found.ok()) return FromRocksStatus(env->CreateDirIfMissing(path), what);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && parent != path) HPS_RETURN_IF_ERROR(MakeDirectories(env, parent.string()));
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->CreateDirIfMissing(path), what));
  return SyncDirectory(env, parent.empty() ? "." : parent.string());
}

absl::Status SyncDirectory(rocksdb::Env* env, const std::string& path) {
  std::unique_ptr<rocksdb::Directory> directory;
  rocksdb::Status status = env->NewDirectory(path, &directory);
  if (status.ok()) status = directory->Fsync();
  return FromRocksStatus(status, absl::StrCat("syncing the directory '", path, "'"));
}

absl::Status RemoveTree(rocksdb::Env* env, const std::string& path) {
  // RocksDB follows a symbolic link and would remove the files of its target.
  std::error_code error;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)))
    return RemoveFile(env, path);
  std::vector<std::string> names;
  const rocksdb::Status listed = env->GetChildren(path, &names);
  if (IsGone(listed)) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromRocksStatus(listed, absl::StrCat("listing '", path, "'")));
  for (const std::string& name : names) {
    if (name == "." || name == "..") continue;
    const std::string child = absl::StrCat(path, "/", name);
    bool is_directory = false;
    if (env->IsDirectory(child, &is_directory).ok() && is_directory) {
      HPS_RETURN_IF_ERROR(RemoveTree(env, child));
    } else {
      HPS_RETURN_IF_ERROR(RemoveFile(env, child));
    }
  }
  const rocksdb::Status removed = env->DeleteDir(path);
  if (IsGone(removed)) return absl::OkStatus();
  return FromRocksStatus(removed, absl::StrCat("removing '", path, "'"));
}

absl::Status RemoveFile(rocksdb::Env* env, const std::string& path) {
  const rocksdb::Status removed = env->DeleteFile(path);
  if (IsGone(removed)) return absl::OkStatus();
  return FromRocksStatus(removed, absl::StrCat("removing '", path, "'"));
}

absl::Status CopyFile(rocksdb::Env* env, const std::string& from, const std::string& to,
                      uint64_t size) {
  const std::string what = absl::StrCat("copying '", from, "' to '", to, "'");
  std::unique_ptr<rocksdb::SequentialFile> source;
  std::unique_ptr<rocksdb::WritableFile> target;
  const rocksdb::EnvOptions options;
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->NewSequentialFile(from, &source, options), what));
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->NewWritableFile(to, &target, options), what));
  std::vector<char> buffer(kCopyBytes);
  while (size > 0) {
    rocksdb::Slice piece;
    rocksdb::Status status =
        source->Read(std::min<uint64_t>(size, buffer.size()), &piece, buffer.data());
    if (status.ok() && piece.empty()) status = rocksdb::Status::Corruption("the file is shorter");
    if (status.ok()) status = target->Append(piece);
    HPS_RETURN_IF_ERROR(FromRocksStatus(status, what));
    size -= piece.size();
  }
  rocksdb::Status ended = target->Sync();
  if (ended.ok()) ended = target->Close();
  return FromRocksStatus(ended, what);
}

absl::Status LinkOrCopyFile(rocksdb::Env* env, const std::string& from, const std::string& to) {
  const std::string what = absl::StrCat("linking '", from, "' to '", to, "'");
  const rocksdb::Status linked = env->LinkFile(from, to);
  if (!IsWithoutLinks(linked)) return FromRocksStatus(linked, what);
  uint64_t size = 0;
  HPS_RETURN_IF_ERROR(FromRocksStatus(env->GetFileSize(from, &size), what));
  return CopyFile(env, from, to, size);
}

absl::Status RemoveTemporaryFiles(rocksdb::Env* env, const std::string& path) {
  std::vector<std::string> names;
  absl::Status removed =
      FromRocksStatus(env->GetChildren(path, &names), absl::StrCat("listing '", path, "'"));
  for (const std::string& name : names) {
    if (name.ends_with(kTemporaryExtension))
      removed.Update(RemoveFile(env, absl::StrCat(path, "/", name)));
  }
  return removed;
}

absl::Status WriteFileDurably(rocksdb::Env* env, const std::string& path,
                              std::string_view content) {
  const std::string temporary = path + ".tmp";
  const std::string what = absl::StrCat("writing '", path, "'");
  std::unique_ptr<rocksdb::WritableFile> file;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env->NewWritableFile(temporary, &file, rocksdb::EnvOptions()), what));
  rocksdb::Status status = file->Append({content.data(), content.size()});
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (status.ok()) status = env->RenameFile(temporary, path);
  HPS_RETURN_IF_ERROR(FromRocksStatus(status, what));
  return SyncDirectory(env, std::filesystem::path(path).parent_path().string());
}

}  // namespace hps
