// One open RocksDB with what its tables share: catalog, column families, background work.
//
// A column family holds the rows of one incarnation. It is pinned by the tables and cursors that
// read it and dropped when the catalog does not name its incarnation any more and the last pin is
// gone. Thread-safe; shared by the store and everything opened from it.
//
// Lock order: change_mutex_, then recovery_mutex_, then mutex_.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "l3_rocksdb/background_errors.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/fetch_scratch.h"
#include "l3_rocksdb/owner_lock.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/space_guard.h"
#include "l3_rocksdb/store_file_system.h"

namespace hps {

class LogSyncer;

// The column family of one incarnation.
struct Family {
  rocksdb::ColumnFamilyHandle* handle = nullptr;
  TableRecord table;
  std::vector<LostRange> lost_ranges;  // ascending
  std::atomic<bool> changed{false};    // since its import
  std::atomic<bool> current{true};     // the catalog names it
  size_t pins = 0;                     // guarded by the database's mutex
};

class Database : public std::enable_shared_from_this<Database> {
 public:
  class Pin;

  // Errors: those of OpenRocksStore.
  static absl::StatusOr<std::shared_ptr<Database>> Open(const RocksStoreOptions& options);
  // Opens what can be opened of a store with damaged table files, and compacts nothing. Damage to
  // the logs is not noticed then: the caller has checked them.
  static absl::StatusOr<std::shared_ptr<Database>> OpenDamaged(const RocksStoreOptions& options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  rocksdb::DB& db() { return *db_; }
  const RocksStoreOptions& options() const { return options_; }
  const RocksOptions& rocks_options() const { return rocks_options_; }
  const std::string& path() const { return options_.config.path; }
  rocksdb::Env* env() const { return EnvOf(options_); }
  bool read_only() const { return options_.mode == OpenMode::kReadOnly; }
  rocksdb::ColumnFamilyHandle* key_list() const { return key_list_; }
  FetchScratchPool& scratches() { return scratches_; }

  CatalogContents catalog() const;
  // Errors: NOT_FOUND, which names the nearest table.
  absl::StatusOr<Pin> PinTable(const std::string& name);

  // Commits a change of rows or of the catalog, durable as the sync mode says or, with `durable`,
  // at once. Errors: those of DurableTable::Write; where the disk failed in the middle, the change
  // may be there for all readers and yet be gone when the process ends.
  absl::Status Write(rocksdb::WriteBatch& batch, bool durable);

  // Takes over files, as rocksdb::DB::IngestExternalFiles. Errors: also UNAVAILABLE, from an error
  // of the disk that stopped all writing until the store is opened again.
  absl::Status Ingest(const std::vector<rocksdb::IngestExternalFileArg>& files);

  // Everything written so far is durable when it returns.
  absl::Status Sync();

  // Refuses when the disk would be too full with `bytes` more.
  absl::Status CheckRoomFor(uint64_t bytes) const { return space_.CheckRoomFor(bytes); }

  // New column families for the rows of `tables`; dropped again with DropFamilies unless
  // SwitchTables makes them current.
  absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> CreateFamilies(
      const std::vector<TableRecord>& tables);
  void DropFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

  // Makes `tables` current in one step, durably. `batch` may hold more records of theirs. Takes
  // the handles. On an error the old tables are current, or the new ones where the disk failed
  // after the change; the next open may show the others then, but never a mix.
  // REQUIRES: change_mutex() is held.
  absl::Status SwitchTables(const std::vector<TableRecord>& tables,
                            const std::vector<rocksdb::ColumnFamilyHandle*>& handles,
                            rocksdb::WriteBatch& batch);
  // As SwitchTables. REQUIRES: change_mutex() is held. Errors: NOT_FOUND.
  absl::Status DropTable(const std::string& name);

  // Changes of the set of tables go one after another.
  Mutex& change_mutex() { return change_mutex_; }

 private:
  Database(const RocksStoreOptions& options, bool damaged);

  absl::Status OpenAll();
  absl::Status OpenFiles();
  absl::Status OpenRocks(const std::vector<std::string>& families);
  absl::Status LoadTables();
  absl::Status CheckRowCount(const Family& family);
  absl::Status DropUnknownFamilies();
  absl::Status MakeKeyListFamily();
  void NoteTablesChanged();
  absl::Status GoOn();
  absl::Status SettleLogs();
  absl::Status Resume();
  std::vector<Pin> PinAll();
  std::optional<Incarnation> IncarnationInRocks(const std::string& name,
                                                Incarnation if_unknown) const;
  absl::Status FailedWrite(const rocksdb::Status& status);
  void Retire(std::unique_ptr<Family> family);
  void Unpin(Family* family);
  void AddFamily(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle)
      HPS_REQUIRES(mutex_);
  std::unique_ptr<Family> TakeUnpinned(Family* family) HPS_REQUIRES(mutex_);

  const RocksStoreOptions options_;
  const bool damaged_;  // opened for verifying or repairing: what is wrong is the caller's business
  const RocksOptions rocks_options_;
  const SpaceGuard space_;
  std::unique_ptr<OwnerLock> lock_;  // null when read-only
  // Both null when read-only.
  std::shared_ptr<StoreFileSystem> file_system_;
  std::unique_ptr<rocksdb::Env> file_system_env_;
  std::shared_ptr<BackgroundErrors> background_errors_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* key_list_ = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> opened_handles_;  // used up while opening
  bool opened_ = false;                                       // with a catalog that made sense
  FetchScratchPool scratches_;
  std::unique_ptr<LogSyncer> syncer_;  // null unless the sync mode is interval

  Mutex recovery_mutex_;
  std::atomic<uint64_t> sync_failures_recovered_{0};  // of StoreFileSystem::sync_failures
  std::atomic<bool> was_stopped_{false};              // by an error of the disk, at some time

  Mutex change_mutex_;
  mutable Mutex mutex_;
  CatalogContents catalog_ HPS_GUARDED_BY(mutex_);
  std::map<Incarnation, std::unique_ptr<Family>> families_ HPS_GUARDED_BY(mutex_);
};

// Keeps a family readable, and its database open. Movable.
class Database::Pin {
 public:
  Pin() = default;
  Pin(Pin&&) = default;
  Pin& operator=(Pin&& other) noexcept {
    Release();
    database_ = std::move(other.database_);
    family_ = other.family_;
    return *this;
  }
  ~Pin() { Release(); }

  // Another pin of the same family.
  Pin Share() const;

  Database& database() const { return *database_; }
  Family& family() const { return *family_; }

 private:
  friend class Database;
  Pin(std::shared_ptr<Database> database, Family* family)
      : database_(std::move(database)), family_(family) {}
  void Release() {
    if (database_ != nullptr) database_->Unpin(family_);
    database_ = nullptr;
  }

  std::shared_ptr<Database> database_;
  Family* family_ = nullptr;
};

// "rows-000123456789a"
std::string FamilyName(Incarnation incarnation);

}  // namespace hps
