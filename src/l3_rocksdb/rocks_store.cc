#include "l3_rocksdb/rocks_store.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "l3_rocksdb/bulk_import.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import_commit.h"
#include "l3_rocksdb/table.h"

namespace hps {
namespace {

class RocksStore final : public DurableStore {
 public:
  explicit RocksStore(std::shared_ptr<Database> database) : database_(std::move(database)) {}

  absl::StatusOr<std::vector<TableInfo>> Tables() const override;
  absl::StatusOr<std::unique_ptr<DurableTable>> OpenTable(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<BulkImport>> BeginImport(
      std::span<const TableSpec> specs) override;
  absl::Status Drop(const std::string& name) override;
  absl::StatusOr<bool> Refresh() override;
  absl::Status Sync() override { return database()->Sync(); }

 private:
  std::shared_ptr<Database> database() const {
    MutexLock lock(mutex_);
    return database_;
  }
  absl::Status CheckWritable(std::string_view what) const;
  absl::StatusOr<bool> CatchUp();

  mutable Mutex mutex_;
  std::shared_ptr<Database> database_ HPS_GUARDED_BY(mutex_);  // replaced when read-only
  Mutex refresh_mutex_;  // one refresh at a time; taken before mutex_
};

absl::Status RocksStore::CheckWritable(std::string_view what) const {
  const std::shared_ptr<Database> current = database();
  if (!current->read_only()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "store '", current->path(), "' is open read-only: ", std::string(what), " is refused"));
}

absl::StatusOr<std::vector<TableInfo>> RocksStore::Tables() const {
  const std::shared_ptr<Database> current = database();
  const CatalogContents catalog = current->catalog();
  std::vector<TableInfo> infos;
  for (const TableRecord* table : catalog.InOrder()) {
    absl::StatusOr<Database::Pin> pin = current->PinTable(table->spec.name);
    if (absl::IsNotFound(pin.status())) continue;  // dropped since
    HPS_RETURN_IF_ERROR(pin.status());
    infos.push_back(InfoOf(*current, pin->family()));
  }
  return infos;
}

absl::StatusOr<std::unique_ptr<DurableTable>> RocksStore::OpenTable(const std::string& name) {
  HPS_ASSIGN_OR_RETURN(Database::Pin pin, database()->PinTable(name));
  return std::make_unique<RocksTable>(std::move(pin));
}

absl::StatusOr<std::unique_ptr<BulkImport>> RocksStore::BeginImport(
    std::span<const TableSpec> specs) {
  HPS_RETURN_IF_ERROR(CheckWritable("an import"));
  const std::shared_ptr<Database> current = database();
  return RocksImport::Begin(current, current->options(), specs);
}

absl::Status RocksStore::Drop(const std::string& name) {
  HPS_RETURN_IF_ERROR(CheckWritable("dropping a table"));
  const std::shared_ptr<Database> current = database();
  MutexLock lock(current->change_mutex());
  return current->DropTable(name);
}

absl::StatusOr<bool> RocksStore::Refresh() {
  MutexLock lock(refresh_mutex_);
  const std::shared_ptr<Database> current = database();
  if (!current->read_only()) return CommitReadyImports(*current);
  return CatchUp();
}

// A reader is a state of the store; what was opened from the old one keeps it.
absl::StatusOr<bool> RocksStore::CatchUp() {
  const std::shared_ptr<Database> current = database();
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<Database> reopened, Database::Open(current->options()));
  const bool changed =
      !reopened->catalog().SameTables(current->catalog()) ||
      reopened->db().GetLatestSequenceNumber() != current->db().GetLatestSequenceNumber();
  MutexLock lock(mutex_);
  if (changed) database_ = std::move(reopened);
  return changed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> OpenRocksStore(const RocksStoreOptions& options) {
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<Database> database, Database::Open(options));
  if (options.mode != OpenMode::kReadOnly) {
    // A staged import that can't be taken now is no reason not to serve what is there.
    const absl::Status committed = CommitReadyImports(*database).status();
    if (!committed.ok()) {
      LogError(absl::StrCat("store '", options.config.path,
                            "': staged imports: ", committed.ToString()));
    }
  }
  return std::make_unique<RocksStore>(std::move(database));
}

absl::StatusOr<std::unique_ptr<BulkImport>> StageImport(const RocksStoreOptions& options,
                                                        std::span<const TableSpec> specs) {
  return RocksImport::Begin(nullptr, options, specs);
}

}  // namespace hps
