#include "l3_rocksdb/store_import.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_pages/import/page_import.h"
#include "l3_rocksdb/files/space_guard.h"
#include "l3_rocksdb/files/staging.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/import_commit.h"

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

absl::StatusOr<std::shared_ptr<Database>> OpenReader(const RocksStoreOptions& options) {
  RocksStoreOptions reader = options;
  reader.mode = OpenMode::kReadOnly;
  return Database::Open(reader);
}

class StoreTarget final : public ImportTarget {
 public:
  StoreTarget(std::shared_ptr<Database> database, const RocksStoreOptions& options)
      : database_(std::move(database)),
        options_(options),
        space_(EnvOf(options), options.config.path, options.config.free_bytes_min) {}
  ~StoreTarget() override;
  absl::Status Begin(std::span<const TableSpec> specs);

  const std::string& directory() const override { return directory_.path; }
  absl::Status CheckRoomFor(uint64_t bytes) const override { return space_.CheckRoomFor(bytes); }
  absl::Status CheckImportId(std::span<const TableSpec> specs, const std::string& id) override;
  absl::Status WriteNetwork(std::string_view onnx) override {
    return WriteFileDurably(EnvOf(options_), directory_.path + "/" + kStagedNetworkName, onnx);
  }
  absl::StatusOr<BulkImport::Result> Commit(StagedImport import) override;

 private:
  const std::string& store() const { return options_.config.path; }
  absl::StatusOr<std::shared_ptr<Database>> Readable();
  absl::StatusOr<BulkImport::Result> LeaveToServer(StagedImport& import);

  const std::shared_ptr<Database> database_;  // null for an import that does not hold the store
  const RocksStoreOptions options_;
  const SpaceGuard space_;
  StagingDirectory directory_;
  bool has_read_ = false;  // the store, so that its format is known
  bool left_ = false;      // another process owns the directory now
};

StoreTarget::~StoreTarget() {
  if (left_ || directory_.path.empty()) return;
  const absl::Status removed = RemoveStaging(EnvOf(options_), store(), directory_.path);
  if (!removed.ok())
    LogWarning(absl::StrCat("the staging directory was not removed: ", removed.ToString()));
}

// The store, if there is one that can be read now; null otherwise.
absl::StatusOr<std::shared_ptr<Database>> StoreTarget::Readable() {
  if (database_ != nullptr) return database_;
  HPS_ASSIGN_OR_RETURN(const StoreFiles found, FindStore(EnvOf(options_), store()));
  if (found == StoreFiles::kNone) return nullptr;
  absl::StatusOr<std::shared_ptr<Database>> database = OpenReader(options_);
  has_read_ |= database.ok();
  // A reader may fail temporarily while a writer runs. The commit reports lasting errors.
  if (!database.ok() && !absl::IsFailedPrecondition(database.status())) return nullptr;
  return database;
}

absl::Status StoreTarget::Begin(std::span<const TableSpec> specs) {
  HPS_RETURN_IF_ERROR(CheckSpecs(specs));
  {
    HPS_ASSIGN_OR_RETURN(const std::shared_ptr<Database> readable, Readable());
    if (readable != nullptr)
      HPS_RETURN_IF_ERROR(CheckShapes(readable->catalog().contents(), specs));
  }
  HPS_ASSIGN_OR_RETURN(directory_, MakeStagingDirectory(EnvOf(options_), store()));
  return space_.CheckRoomFor(0);
}

absl::Status StoreTarget::CheckImportId(std::span<const TableSpec> specs, const std::string& id) {
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<Database> readable, Readable());
  return readable == nullptr ? absl::OkStatus() : hps::CheckImportId(*readable, specs, id);
}

absl::StatusOr<BulkImport::Result> StoreTarget::Commit(StagedImport import) {
  std::shared_ptr<Database> database = database_;
  if (database == nullptr) {
    HPS_ASSIGN_OR_RETURN(const bool server_has_store, OwnerLock::ServerHasStore(store()));
    if (server_has_store) return LeaveToServer(import);
    RocksStoreOptions writer = options_;
    writer.mode = OpenMode::kCreate;
    writer.role = OwnerRole::kCommand;
    absl::StatusOr<std::shared_ptr<Database>> opened = Database::Open(writer);
    if (absl::IsUnavailable(opened.status())) {
      HPS_ASSIGN_OR_RETURN(const bool server_came, OwnerLock::ServerHasStore(store()));
      if (server_came) return LeaveToServer(import);
    }
    HPS_RETURN_IF_ERROR(opened.status());
    database = *std::move(opened);
  }
  BulkImport::Result result;
  HPS_ASSIGN_OR_RETURN(result.tables, CommitNewest(*database, import));
  return result;
}

absl::StatusOr<BulkImport::Result> StoreTarget::LeaveToServer(StagedImport& import) {
  // A server of another version of hps could commit nothing any more.
  if (!has_read_) HPS_RETURN_IF_ERROR(OpenReader(options_).status());
  bool may_be_ready = false;
  const absl::Status marked = MarkReady(EnvOf(options_), store(), import, may_be_ready);
  left_ = marked.ok() || may_be_ready;
  HPS_RETURN_IF_ERROR(marked);
  BulkImport::Result result;
  result.staged = true;
  for (const StagedTable& table : import.tables) result.tables.push_back(InfoOf(import, table));
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BulkImport>> BeginStoreImport(std::shared_ptr<Database> database,
                                                             const RocksStoreOptions& options,
                                                             std::span<const TableSpec> specs) {
  auto target = std::make_unique<StoreTarget>(std::move(database), options);
  HPS_RETURN_IF_ERROR(target->Begin(specs));
  return std::make_unique<PageImport>(std::move(target), specs);
}

}  // namespace hps
