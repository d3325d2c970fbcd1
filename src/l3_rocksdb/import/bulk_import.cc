#include "l3_rocksdb/import/bulk_import.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/import/import_commit.h"
#include "l3_rocksdb/import/incarnation_draw.h"
#include "l3_rocksdb/row_codec.h"

namespace hps {
namespace {

absl::Status CheckSpecs(std::span<const TableSpec> specs) {
  if (specs.size() > kTablesPerStoreMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an import of ", specs.size(), " tables, expected at most ", kTablesPerStoreMax));
  }
  std::set<std::string> names;
  for (const TableSpec& spec : specs) {
    HPS_RETURN_IF_ERROR(ValidateTableSpec(spec));
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", spec.name, "' appears twice in one import"));
    }
  }
  return absl::OkStatus();
}

// The store, if there is one that can be read now; null otherwise.
absl::StatusOr<std::shared_ptr<Database>> OpenReader(const RocksStoreOptions& options) {
  HPS_ASSIGN_OR_RETURN(const StoreFiles found, FindStore(EnvOf(options), options.config.path));
  if (found == StoreFiles::kNone) return nullptr;
  RocksStoreOptions reader = options;
  reader.mode = OpenMode::kReadOnly;
  absl::StatusOr<std::shared_ptr<Database>> database = Database::Open(reader);
  // A reader may fail temporarily while a writer runs. The commit reports lasting errors.
  if (!database.ok() && !absl::IsFailedPrecondition(database.status())) return nullptr;
  return database;
}

// Checks the tables against the store, if there is a store that can be read now.
absl::Status CheckAgainstStore(const RocksStoreOptions& options, std::span<const TableSpec> specs) {
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<Database> database, OpenReader(options));
  return database == nullptr ? absl::OkStatus() : CheckShapes(database->catalog(), specs);
}

}  // namespace

RocksImport::RocksImport(std::shared_ptr<Database> database, const RocksStoreOptions& options)
    : database_(std::move(database)),
      options_(options),
      rocks_options_(options),
      space_(EnvOf(options), options.config.path, options.config.free_bytes_min) {}

absl::StatusOr<std::unique_ptr<BulkImport>> RocksImport::Begin(std::shared_ptr<Database> database,
                                                               const RocksStoreOptions& options,
                                                               std::span<const TableSpec> specs) {
  HPS_RETURN_IF_ERROR(CheckSpecs(specs));
  if (database != nullptr) {
    HPS_RETURN_IF_ERROR(CheckShapes(database->catalog(), specs));
  } else {
    HPS_RETURN_IF_ERROR(CheckAgainstStore(options, specs));
  }
  std::unique_ptr<RocksImport> import(new RocksImport(std::move(database), options));
  HPS_ASSIGN_OR_RETURN(import->directory_,
                       MakeStagingDirectory(EnvOf(options), options.config.path));
  HPS_RETURN_IF_ERROR(import->space_.CheckRoomFor(0));
  import->import_.directory = import->directory_.path;
  for (const TableSpec& spec : specs) {
    StagedTable table;
    table.spec = spec;
    table.incarnation = DrawIncarnation();
    table.in_page_files = options.imports_page_files;
    import->import_.tables.push_back(std::move(table));
  }
  return std::unique_ptr<BulkImport>(std::move(import));
}

RocksImport::~RocksImport() {
  {
    MutexLock lock(mutex_);
    writers_.clear();
  }
  if (kept_ || directory_.path.empty()) return;
  const absl::Status removed =
      RemoveStaging(EnvOf(options_), options_.config.path, directory_.path);
  if (!removed.ok())
    LogWarning(absl::StrCat("the staging directory was not removed: ", removed.ToString()));
}

absl::StatusOr<PartWriter*> RocksImport::WriterOf(const Place& place) {
  MutexLock lock(mutex_);
  HPS_CHECK(!written_.contains(place));
  const auto found = writers_.find(place);
  if (found != writers_.end()) return found->second.get();
  auto writer =
      std::make_unique<PartWriter>(rocks_options_, import_.tables[place.first], directory_.path,
                                   absl::StrCat("t", place.first, "-p", place.second));
  return writers_.emplace(place, std::move(writer)).first->second.get();
}

absl::Status RocksImport::Failed(const absl::Status& status) {
  if (status.ok()) return status;
  MutexLock lock(mutex_);
  failure_.Update(status);
  return status;
}

absl::Status RocksImport::Add(size_t table, uint32_t part, std::span<const Key> keys,
                              HostRows rows) {
  HPS_CHECK(table < import_.tables.size());
  if (keys.empty()) return absl::OkStatus();
  // The files belong to the import and are removed if it fails.
  const StagedTable& staged = import_.tables[table];
  const absl::Status room =
      space_.CheckRoomFor(keys.size() * (kKeyBytes + staged.spec.row_bytes() + kRowTailBytes));
  if (!room.ok()) return Failed(room);
  const absl::StatusOr<PartWriter*> writer = WriterOf({table, part});
  return Failed(writer.ok() ? (*writer)->Add(keys, rows) : writer.status());
}

absl::Status RocksImport::FinishPart(size_t table, uint32_t part) {
  std::unique_ptr<PartWriter> writer;
  {
    MutexLock lock(mutex_);
    const auto found = writers_.find({table, part});
    if (found == writers_.end()) return absl::OkStatus();
    writer = std::move(found->second);
    writers_.erase(found);
  }
  // Without the lock, because this waits for the disk, and all parts of a table end at the same
  // time.
  absl::StatusOr<WrittenPart> written = writer->Finish();
  HPS_RETURN_IF_ERROR(Failed(written.status()));
  MutexLock lock(mutex_);
  written_[{table, part}] = *std::move(written);
  return absl::OkStatus();
}

// An id that was used before is found before the rows are read.
absl::Status RocksImport::SetImportId(const std::string& id) {
  HPS_RETURN_IF_ERROR(ValidateImportId(id));
  import_.import_id = id;
  std::shared_ptr<Database> database = database_;
  if (database == nullptr) {
    HPS_ASSIGN_OR_RETURN(database, OpenReader(options_));
  }
  if (database == nullptr) return absl::OkStatus();
  std::vector<TableSpec> specs;
  for (const StagedTable& table : import_.tables) specs.push_back(table.spec);
  return CheckImportId(*database, specs, id);
}

absl::Status RocksImport::SetNetwork(const std::string& model, const ModelNetwork& network) {
  HPS_RETURN_IF_ERROR(space_.CheckRoomFor(network.onnx.size()));
  HPS_RETURN_IF_ERROR(WriteFileDurably(
      EnvOf(options_), absl::StrCat(directory_.path, "/", kStagedNetworkName), network.onnx));
  import_.network = {.model = model, .digest = network.digest, .inputs = network.inputs};
  return absl::OkStatus();
}

absl::Status RocksImport::FinishFiles() {
  std::vector<Place> unfinished;
  {
    MutexLock lock(mutex_);
    HPS_RETURN_IF_ERROR(failure_);
    for (const auto& [place, writer] : writers_) unfinished.push_back(place);
  }
  for (const Place& place : unfinished) HPS_RETURN_IF_ERROR(FinishPart(place.first, place.second));
  MutexLock lock(mutex_);
  HPS_RETURN_IF_ERROR(failure_);
  const WrittenPart* before = nullptr;
  size_t table_before = 0;
  for (auto& [place, part] : written_) {
    if (part.row_count == 0) continue;
    StagedTable& table = import_.tables[place.first];
    if (before != nullptr && table_before == place.first && before->last_key >= part.first_key) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", table.spec.name, "': part ", place.second, " begins with key ",
                       part.first_key, ", the previous part ends with ", before->last_key));
    }
    before = &part;
    table_before = place.first;
    table.row_count += part.row_count;
    table.row_files.insert(table.row_files.end(), part.row_files.begin(), part.row_files.end());
    table.key_files.insert(table.key_files.end(), part.key_files.begin(), part.key_files.end());
    table.page_files.insert(table.page_files.end(), part.page_files.begin(), part.page_files.end());
  }
  return SyncDirectory(EnvOf(options_), directory_.path);
}

absl::StatusOr<BulkImport::Result> RocksImport::Commit() {
  HPS_CHECK(!kept_);
  HPS_FAULT_POINT("l3.import.before_finish");
  HPS_RETURN_IF_ERROR(FinishFiles());
  HPS_FAULT_POINT("l3.import.after_finish");
  if (database_ != nullptr) return CommitTo(*database_);
  const std::string& store = options_.config.path;
  HPS_ASSIGN_OR_RETURN(const bool server_has_store, OwnerLock::ServerHasStore(store));
  if (server_has_store) return LeaveToServer();
  RocksStoreOptions writer = options_;
  writer.mode = OpenMode::kCreate;
  writer.role = OwnerRole::kCommand;
  absl::StatusOr<std::shared_ptr<Database>> database = Database::Open(writer);
  if (absl::IsUnavailable(database.status())) {
    HPS_ASSIGN_OR_RETURN(const bool server_came, OwnerLock::ServerHasStore(store));
    if (server_came) return LeaveToServer();
  }
  HPS_RETURN_IF_ERROR(database.status());
  return CommitTo(**database);
}

absl::StatusOr<BulkImport::Result> RocksImport::CommitTo(Database& database) {
  Result result;
  HPS_ASSIGN_OR_RETURN(result.tables, CommitNewest(database, import_));
  return result;
}

absl::StatusOr<BulkImport::Result> RocksImport::LeaveToServer() {
  bool may_be_ready = false;
  const absl::Status marked =
      MarkReady(EnvOf(options_), options_.config.path, import_, may_be_ready);
  kept_ = marked.ok() || may_be_ready;
  HPS_RETURN_IF_ERROR(marked);
  Result result;
  result.staged = true;
  for (const StagedTable& table : import_.tables) {
    TableInfo info;
    info.spec = table.spec;
    info.incarnation = table.incarnation;
    info.row_count = table.row_count;
    info.import_id = import_.import_id;
    result.tables.push_back(std::move(info));
  }
  return result;
}

}  // namespace hps
