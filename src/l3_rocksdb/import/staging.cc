#include "l3_rocksdb/import/staging.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
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
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/files/store_owner.h"
#include "l3_rocksdb/record_codec.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr uint64_t kManifestMagic = 0x3147415453535048;  // "HPSSTAG1"
constexpr uint32_t kManifestVersion = 6;                 // has page files
constexpr uint32_t kManifestVersionWithImportId = 5;     // has an import id, without page files
constexpr uint32_t kManifestVersionWithNetwork = 4;      // has a network and none of these
constexpr uint32_t kManifestVersionWithout = 3;          // has none of them
constexpr uint32_t kManifestVersionMin = 2;              // has no update start
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
  if (listed.IsNotFound() || listed.IsPathNotFound()) {
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
  // The checksum was correct, so `count` is as written; the reader ends at the end of the bytes.
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    StagedFile file;
    for (std::string* field : {&file.name, &file.checksum, &file.first_key, &file.last_key})
      *field = std::string(reader.TakeText());
    files.push_back(std::move(file));
  }
  return files;
}

void AddPageFiles(RecordWriter& record, const StagedTable& table) {
  record.Add(static_cast<uint8_t>(table.in_page_files ? 1 : 0));
  record.Add(static_cast<uint32_t>(table.page_files.size()));
  for (const StagedPageFile& file : table.page_files) {
    record.AddText(file.name).Add(file.record.row_count);
    record.Add(file.record.first_key).Add(file.record.last_key);
  }
}

void TakePageFiles(RecordReader& reader, StagedTable& table) {
  table.in_page_files = reader.Take<uint8_t>() != 0;
  const uint32_t count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    StagedPageFile& file = table.page_files.emplace_back();
    file.name = std::string(reader.TakeText());
    file.record.row_count = reader.Take<uint64_t>();
    file.record.first_key = reader.Take<Key>();
    file.record.last_key = reader.Take<Key>();
  }
}

// The lowest version that has what the import has, so that an older hps can commit it.
uint32_t ManifestVersionOf(const StagedImport& import) {
  for (const StagedTable& table : import.tables) {
    if (table.in_page_files) return kManifestVersion;
  }
  if (!import.import_id.empty()) return kManifestVersionWithImportId;
  return import.network.has_value() ? kManifestVersionWithNetwork : kManifestVersionWithout;
}

void AddNetwork(RecordWriter& record, const StagedNetwork& network) {
  record.AddText(network.model).AddText(network.digest);
  record.Add(static_cast<uint32_t>(network.inputs.size()));
  for (const NetworkInput& input : network.inputs)
    record.AddText(input.name).AddText(input.table).Add(static_cast<uint8_t>(input.pooling));
}

StagedNetwork TakeNetwork(RecordReader& reader) {
  StagedNetwork network;
  network.model = std::string(reader.TakeText());
  network.digest = std::string(reader.TakeText());
  const uint32_t count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    NetworkInput input;
    input.name = std::string(reader.TakeText());
    input.table = std::string(reader.TakeText());
    input.pooling = static_cast<RowPooling>(reader.Take<uint8_t>());
    network.inputs.push_back(std::move(input));
  }
  return network;
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

template <typename File>
uint64_t BytesOf(rocksdb::Env* env, const std::string& directory, const std::vector<File>& files) {
  uint64_t sum = 0;
  for (const File& file : files) {
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
    info.import_id = import.import_id;
    info.bytes = BytesOf(env, import.directory, table.row_files) +
                 BytesOf(env, import.directory, table.key_files) +
                 BytesOf(env, import.directory, table.page_files);
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

// The import does not need the file. If the removal fails, the file is removed with the directory.
void RemoveStagedFile(rocksdb::Env* env, const std::string& directory, const std::string& name) {
  for (const char* suffix : {"", kLinkSuffix}) {
    const absl::Status removed = RemoveFile(env, directory + "/" + name + suffix);
    if (!removed.ok()) LogWarning(removed.ToString());
  }
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

std::string EncodeStagedImport(const StagedImport& import) {
  RecordWriter record;
  const uint32_t version = ManifestVersionOf(import);
  record.Add(kManifestMagic).Add(version).Add(import.order);
  record.Add(static_cast<uint8_t>(import.update_start.kind)).Add(import.update_start.time_ms);
  if (version >= kManifestVersionWithImportId) {
    record.AddText(import.import_id);
    record.Add(static_cast<uint8_t>(import.network.has_value() ? 1 : 0));
  }
  record.Add(static_cast<uint32_t>(import.tables.size()));
  for (const StagedTable& table : import.tables) {
    record.AddText(table.spec.name).Add(table.incarnation).Add(table.row_count);
    record.Add(table.spec.dim).Add(static_cast<uint8_t>(table.spec.dtype));
    record.AddText(AsText(table.spec.default_row));
    AddFiles(record, table.row_files);
    AddFiles(record, table.key_files);
    if (version == kManifestVersion) AddPageFiles(record, table);
  }
  if (import.network.has_value()) AddNetwork(record, *import.network);
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
  const uint32_t version = reader.Take<uint32_t>();
  if (version < kManifestVersionMin || version > kManifestVersion)
    return absl::FailedPreconditionError("a staged import was made by another version of hps");
  StagedImport import;
  import.order = reader.Take<uint64_t>();
  if (version > kManifestVersionMin) {
    import.update_start.kind = static_cast<UpdateStart::Kind>(reader.Take<uint8_t>());
    import.update_start.time_ms = reader.Take<int64_t>();
    if (import.update_start.kind > UpdateStart::Kind::kTime) return damaged;
  }
  bool has_network = version == kManifestVersionWithNetwork;
  if (version >= kManifestVersionWithImportId) {
    import.import_id = std::string(reader.TakeText());
    has_network = reader.Take<uint8_t>() != 0;
    // With page files, an import need not have one.
    const bool has_id = version < kManifestVersion || !import.import_id.empty();
    if (has_id && !ValidateImportId(import.import_id).ok()) return damaged;
  }
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
    if (version == kManifestVersion) TakePageFiles(reader, table);
    if (!ValidateTableSpec(table.spec).ok()) return damaged;
    import.tables.push_back(std::move(table));
  }
  if (has_network) import.network = TakeNetwork(reader);
  if (!reader.AtEnd()) return damaged;
  return import;
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
  if (read.IsNotFound() || read.IsPathNotFound())
    return absl::DataLossError(absl::StrCat(what, ": the file is missing"));
  HPS_RETURN_IF_ERROR(FromReadStatus(read, what));
  network.digest = NetworkDigest(network);
  if (network.digest == import.network->digest) return network;
  return absl::DataLossError(
      absl::StrCat("'", path, "': wrong digest, the file has changed since it was written"));
}

std::set<std::string> TablesOf(const StagedImport& import) {
  std::set<std::string> names;
  for (const StagedTable& table : import.tables) names.insert(table.spec.name);
  if (import.network.has_value()) names.insert(import.network->model + "/");
  return names;
}

bool IsReplacedBy(const StagedImport& import, const std::set<std::string>& names) {
  const std::set<std::string> own = TablesOf(import);
  return std::includes(names.begin(), names.end(), own.begin(), own.end());
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
    for (const StagedFile& file : other.row_files)
      RemoveStagedFile(env, import.directory, file.name);
    for (const StagedFile& file : other.key_files)
      RemoveStagedFile(env, import.directory, file.name);
    for (const StagedPageFile& file : other.page_files)
      RemoveStagedFile(env, import.directory, file.name);
  }
  import = std::move(rest);
  return absl::OkStatus();
}

}  // namespace hps
