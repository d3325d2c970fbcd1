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
#include "hps/statistics.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/files/background_errors.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/files/reader_file_system.h"
#include "l3_rocksdb/files/space_guard.h"
#include "l3_rocksdb/files/space_reserve.h"
#include "l3_rocksdb/files/wal_error_shield.h"
#include "l3_rocksdb/import/lost_imports.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/sorted_fetch_scratch.h"
#include "l3_rocksdb/switch_gate.h"

namespace hps {

class LogSyncer;

// The column family of one incarnation.
struct Family {
  rocksdb::ColumnFamilyHandle* handle = nullptr;
  TableRecord table;
  std::vector<LostRange> lost_ranges;  // ascending
  std::atomic<bool> changed{false};    // since its import
  std::atomic<bool> current{true};     // the catalog names it
  SpaceReserve::Loan room;             // of one that was dropped, until its files are gone
  size_t pins = 0;                     // guarded by the database's mutex
};

class Database : public std::enable_shared_from_this<Database> {
 public:
  class Pin;

  // Errors: those of OpenRocksStore.
  static absl::StatusOr<std::shared_ptr<Database>> Open(const RocksStoreOptions& options);
  // The state that the store has by now. Shares the cache of blocks, and the files that both have.
  // REQUIRES: `former` is read-only. Errors: those of OpenRocksStore.
  static absl::StatusOr<std::shared_ptr<Database>> OpenAgain(const Database& former);
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
  rocksdb::Env* env() const { return reader_env_ != nullptr ? reader_env_.get() : EnvOf(options_); }
  bool read_only() const { return options_.mode == OpenMode::kReadOnly; }
  rocksdb::ColumnFamilyHandle* key_list() const { return key_list_; }
  FetchScratchPool& scratches() { return scratches_; }
  // Null unless read-only.
  const ReaderFileSystem* reader_files() const { return reader_files_.get(); }

  CatalogContents catalog() const;
  // Errors: NOT_FOUND, which names the nearest table.
  absl::StatusOr<Pin> PinTable(const std::string& name);

  // Commits a change of rows or of the catalog, durable as the sync mode says or, with `durable`,
  // at once. Errors: those of DurableTable::Write; where the disk failed in the middle, the change
  // may be there for all readers and yet be gone when the process ends.
  absl::Status Write(rocksdb::WriteBatch& batch, bool durable);

  // Takes over files, as rocksdb::DB::IngestExternalFiles. Errors: also UNAVAILABLE (the disk
  // fails).
  absl::Status Ingest(const std::vector<rocksdb::IngestExternalFileArg>& files);

  // Everything written so far is durable when it returns.
  absl::Status Sync();

  DurableStatistics Statistics() const;

  // Refuses when the disk would be too full with `bytes` more.
  absl::Status CheckRoomFor(uint64_t bytes) const { return space_.CheckRoomFor(bytes); }

  // New column families for the rows of `tables`; dropped again with DropFamilies unless
  // SwitchTables makes them current. First drops what could not be dropped before.
  // REQUIRES: change_mutex() is held.
  absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> CreateFamilies(
      const std::vector<TableRecord>& tables);
  // Drops what nothing reads, with the lists of its keys, and takes the handles. What can't be
  // dropped now is tried again by RetryDrops, or dropped at the next open.
  void DropFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

  // Makes `tables` current in one step, durably, and with it no incarnation of `replaced` ever:
  // they are staged still. `batch` may hold more records of theirs. Takes the handles. On an error
  // the old tables are current, or the new ones where the disk failed after the change; the next
  // open may show the others then, but never a mix. REQUIRES: change_mutex() is held.
  absl::Status SwitchTables(std::vector<TableRecord> tables,
                            const std::vector<rocksdb::ColumnFamilyHandle*>& handles,
                            const std::vector<Incarnation>& replaced, rocksdb::WriteBatch& batch);
  // As SwitchTables, also on a full disk. REQUIRES: change_mutex() is held. Errors: NOT_FOUND.
  absl::Status DropTable(const std::string& name);

  // Takes back what earlier changes have left because the disk failed, also on a full disk. What
  // can't be taken back now is logged and stays for the next time.
  // REQUIRES: change_mutex() is held.
  void RetryDrops();

  // The disk has some more room while it lives: for what makes room.
  SpaceReserve::Loan LendRoom() { return reserve_.Lend(); }

  // Changes of the set of tables go one after another.
  Mutex& change_mutex() { return change_mutex_; }
  // REQUIRES: change_mutex() is held.
  LostImports& lost_imports() { return lost_imports_; }

 private:
  Database(const RocksStoreOptions& options, bool damaged, const RocksOptions& rocks_options);

  // `former` may be null.
  absl::Status OpenAll(const Database* former);
  absl::Status OpenFiles(const Database* former);
  absl::Status TakeReaderFiles(const Database* former);
  absl::Status Lock();
  absl::Status CheckThreadsCanStart() const;
  absl::StatusOr<rocksdb::Status> OpenRocks(const std::vector<std::string>& families);
  rocksdb::Status CallOpen(rocksdb::DBOptions& db_options,
                           const std::vector<rocksdb::ColumnFamilyDescriptor>& descriptors);
  absl::Status LoadTables();
  absl::Status CheckRowCount(const Family& family);
  absl::Status DropUnknownFamilies();
  absl::Status MakeKeyListFamily();
  void NoteTablesChanged();
  bool WalIsFlushed() const;
  bool healthy() const;
  absl::Status EnsureHealthy();
  absl::Status FlushWal();
  absl::Status Recover();
  absl::Status TryToRecover(const std::vector<Pin>& pins) HPS_REQUIRES(recovery_mutex_);
  std::vector<Pin> PinAll();
  std::vector<rocksdb::ColumnFamilyHandle*> HandlesOf(const std::vector<Pin>& pins);
  rocksdb::Status FlushFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status RequestFlushes(const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status RequestFlushesThoughStopped(
      const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status RequestFlushesWithRoom(const std::vector<rocksdb::ColumnFamilyHandle*>& families);
  rocksdb::Status WriteToRocks(rocksdb::WriteBatch& batch);
  absl::Status WriteAfterStall(rocksdb::WriteBatch& batch);
  std::optional<Incarnation> IncarnationInRocks(const std::string& name,
                                                Incarnation if_unknown) const;
  absl::Status FailedWrite(const rocksdb::Status& status) const;
  absl::Status Commit(rocksdb::WriteBatch& batch, bool durable);
  absl::Status WriteDrop(const std::string& name, const std::vector<TableRecord>& others);
  std::vector<TableRecord> OthersAfterDrop(const std::string& name) const;
  absl::Status TryToDrop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);
  absl::Status DropKeyList(const std::string& family);
  bool AnyLeftovers() const;
  absl::Status DropLeftovers();
  absl::Status UndoSwitches();
  void Retire(std::unique_ptr<Family> family);
  void Unpin(Family* family);
  void AddFamily(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle)
      HPS_REQUIRES(mutex_);
  std::unique_ptr<Family> TakeUnpinned(Family* family) HPS_REQUIRES(mutex_);

  const RocksStoreOptions options_;
  const bool damaged_;  // opened for verifying or repairing: what is wrong is the caller's business
  const RocksOptions rocks_options_;
  const SpaceGuard space_;
  SpaceReserve reserve_;
  std::unique_ptr<OwnerLock> lock_;  // null when read-only
  // Both null when read-only.
  std::shared_ptr<WalErrorShield> wal_shield_;
  std::unique_ptr<rocksdb::Env> file_system_env_;
  // Both null unless read-only.
  std::shared_ptr<ReaderFileSystem> reader_files_;
  std::unique_ptr<rocksdb::Env> reader_env_;
  std::shared_ptr<BackgroundErrors> background_errors_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* key_list_ = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> opened_handles_;  // used up while opening
  bool opened_ = false;                                       // with a catalog that made sense
  FetchScratchPool scratches_;
  std::unique_ptr<LogSyncer> syncer_;  // null unless the sync mode is interval

  SwitchGate switch_gate_;
  Mutex recovery_mutex_;
  std::atomic<uint64_t> sync_failures_recovered_{0};  // of WalErrorShield::sync_failures
  std::atomic<uint64_t> recovery_attempts_{0};
  absl::Status last_recovery_ HPS_GUARDED_BY(recovery_mutex_);

  Mutex change_mutex_;
  LostImports lost_imports_;  // guarded by change_mutex_
  mutable Mutex mutex_;
  CatalogContents catalog_ HPS_GUARDED_BY(mutex_);
  std::map<Incarnation, std::unique_ptr<Family>> families_ HPS_GUARDED_BY(mutex_);
  // That nothing reads and that are still to be dropped.
  std::vector<rocksdb::ColumnFamilyHandle*> leftovers_ HPS_GUARDED_BY(mutex_);
  std::vector<std::string> leftover_lists_ HPS_GUARDED_BY(mutex_);  // families' key lists, likewise
  // What switches that failed have tried to make current: it may be in the log. Until the log says
  // otherwise their column families must be there for the next open.
  std::vector<TableRecord> unconfirmed_switches_ HPS_GUARDED_BY(mutex_);
  std::vector<Incarnation> unconfirmed_replacements_ HPS_GUARDED_BY(mutex_);
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
// Nullopt: not a family of rows.
std::optional<Incarnation> IncarnationOf(const std::string& family);

}  // namespace hps
