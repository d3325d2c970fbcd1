// One open RocksDB, and the state that its tables share: catalog, column families, background work.
//
// A column family holds the changes of one incarnation since its page files were made. The tables
// and cursors that read the family pin it. The database drops it when the catalog no longer names
// it and the last pin has been released. Thread-safe. The store and everything opened from it share
// the database.
//
// Lock order: change_mutex_, then Family::write_mutex, then recovery_mutex_, then mutex_.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "hps/statistics.h"
#include "l3_pages/import/rejected_imports.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/family.h"
#include "l3_rocksdb/files/background_errors.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/files/reader_file_system.h"
#include "l3_rocksdb/files/space_guard.h"
#include "l3_rocksdb/files/space_reserve.h"
#include "l3_rocksdb/files/wal_error_shield.h"
#include "l3_rocksdb/memtable_switch_lock.h"
#include "l3_rocksdb/merge_queue.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/sorted_fetch_scratch.h"

namespace hps {

class LogSyncer;
class PageChangeCursor;
struct PageFileDescription;

class Database : public std::enable_shared_from_this<Database> {
 public:
  class Pin;

  // Errors: those of OpenRocksStore.
  static absl::StatusOr<std::shared_ptr<Database>> Open(const RocksStoreOptions& options);
  // Opens the current state of the store. Shares the caches, and the files that both states
  // contain. REQUIRES: `former` is read-only. Errors: those of OpenRocksStore.
  static absl::StatusOr<std::shared_ptr<Database>> Reopen(const Database& former);
  // Opens the readable part of a store with damaged table files. Compacts nothing. Does not detect
  // damage in the WAL; the caller has checked it.
  static absl::StatusOr<std::shared_ptr<Database>> OpenDamaged(const RocksStoreOptions& options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  rocksdb::DB& db() { return *db_; }
  const RocksStoreOptions& options() const { return options_; }
  const std::string& path() const { return options_.config.path; }
  rocksdb::Env* env() const { return reader_env_ != nullptr ? reader_env_.get() : EnvOf(options_); }
  bool read_only() const { return options_.mode == OpenMode::kReadOnly; }
  FetchScratchPool& scratches() { return scratches_; }
  // Null unless read-only.
  const ReaderFileSystem* reader_files() const { return reader_files_.get(); }

  CatalogContents catalog() const;
  // The model's network, if it has one. Errors: those of ReadNetwork.
  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string& model);

  // Errors: NOT_FOUND, which names the nearest table.
  absl::StatusOr<Pin> PinTable(const std::string& name);

  // Commits a change of rows or of the catalog. The sync mode decides when it becomes durable; with
  // `durable`, it is durable when the call returns. Errors: those of DurableTable::Write. If the
  // disk fails during the write, readers may see the change although it is lost when the process
  // ends.
  absl::Status Write(rocksdb::WriteBatch& batch, bool durable);

  // Makes everything written so far durable.
  absl::Status Sync();

  // The files that make up the store now, with the log up to the last whole write. No write runs
  // meanwhile. REQUIRES: file deletions are disabled. Errors: UNAVAILABLE (the disk fails).
  absl::Status ListLiveFiles(std::vector<rocksdb::LiveFileStorageInfo>* files);

  DurableStatistics Statistics() const;

  // Errors: RESOURCE_EXHAUSTED if `bytes` more would exceed the space limit of the disk.
  absl::Status CheckRoomFor(uint64_t bytes) const { return space_.CheckRoomFor(bytes); }

  // Creates a column family for the changes of each of `tables`. The caller passes them to
  // SwitchTables or DropFamilies. First retries earlier drops that failed. REQUIRES: change_mutex()
  // is held.
  absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> CreateFamilies(
      const std::vector<TableRecord>& tables);
  // Drops families that have no reader, and their page files. Takes the handles. RetryDrops or the
  // next open retries drops that fail.
  void DropFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

  // What a switch makes current. The handles are taken by the switch, or by DropFamilies. A network
  // replaces that of its model.
  struct NewContents {
    std::vector<TableRecord> tables;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;        // of the tables
    std::vector<std::shared_ptr<const FamilyPages>> pages{};  // likewise
    std::string network_model;                                // empty: no network
    NetworkRecord network;
    rocksdb::ColumnFamilyHandle* network_handle = nullptr;

    std::vector<rocksdb::ColumnFamilyHandle*> AllHandles() const;
  };

  // Opens the page files of a table. Errors: those of OpenPages.
  absl::StatusOr<std::shared_ptr<const FamilyPages>> OpenPagesOf(const TableRecord& table);

  // Writes the bytes of a network to a column family of their own, and names both in `contents`.
  // Errors: those of CreateFamilies and Write.
  absl::Status PutNewNetwork(const std::string& model, const ModelNetwork& network,
                             NewContents& contents);

  // TableInfo::update_records_lost; 0 if the incarnation is not the table's current one.
  uint64_t RecordsLost(const std::string& table, Incarnation incarnation) const;
  // DurableTable::UnorderedHashes; none if the incarnation is not the table's current one.
  std::vector<uint16_t> UnorderedHashes(const std::string& table, Incarnation incarnation) const;

  // Makes the new contents current in one durable step. Also marks the incarnations in `replaced`,
  // which are still staged, as used, so that they never become current. After an error the old
  // tables are current, or the new ones if the disk failed after the change. The next open may then
  // show the other set, but never a mix. REQUIRES: change_mutex() is held.
  absl::Status SwitchTables(NewContents contents, const std::vector<Incarnation>& replaced);
  // As Write, not durable. In the same step adds write.records_lost and write.unordered_hashes to
  // those of the table; an incarnation that is not current any more has none.
  absl::Status WriteWithStreamState(const std::string& table, Incarnation incarnation,
                                    const DurableWrite& write, rocksdb::WriteBatch& batch);

  // Drops tables of one model in one step, as SwitchTables replaces them; works on a full disk too.
  // With the last table of the model goes its network. REQUIRES: change_mutex() is held; there is a
  // name. Errors: NOT_FOUND, and those of Write.
  absl::Status DropTables(const std::vector<std::string>& names);
  // Drops the network of a model, which has one. REQUIRES and errors: as DropTables.
  absl::Status DropNetwork(const std::string& model);

  // Drops the remains of earlier changes that failed because the disk failed; works on a full disk
  // too. Logs remains that it cannot drop, and keeps them for the next call. REQUIRES:
  // change_mutex() is held.
  void RetryDrops();

  // A merge of a table's changes into a new page file: BeginMerge, then MergePages, SwitchMerged
  // and EndMerge. For one thread, and one merge at a time (database_merges.cc).
  struct Merge;
  // From now on the writes of the table go to the old and to the new family. Errors:
  // RESOURCE_EXHAUSTED (no room for the new file), NOT_FOUND, CANCELLED (the table is not due),
  // and those of CreateFamilies.
  absl::StatusOr<std::unique_ptr<Merge>> BeginMerge(const std::string& table);
  // Makes the new file and family current, in one durable step. `on_switch` gets the table's new
  // state while no write of it runs. Errors: CANCELLED (the table was replaced), those of Write and
  // OpenPages; Merge::is_switched() says whether the step was done nevertheless.
  absl::Status SwitchMerged(Merge& merge, const PageFileDescription& file,
                            const std::function<void(const Pin&)>& on_switch);
  // Releases the merge. One that has not switched leaves nothing behind. False: the switch may be
  // in the log, so the writes of the table must go to both families still; call this again.
  bool EndMerge(Merge& merge);
  // Instead of EndMerge when the store is closed.
  void LeaveMerge(Merge& merge);

  // The tables whose changes are to be merged now.
  std::vector<std::string> TablesToMerge() const;
  // Call this after keys were added to the family's changed_keys.
  void NoteChanges(Family& family);
  // Drops the families that were merged and have no readers.
  void RetireMerged();
  MergeQueue& merge_queue() { return merge_queue_; }

  // Removes the space reserve until the loan is destroyed. For operations that free space.
  SpaceReserve::Loan LendRoom() { return reserve_.Lend(); }

  // Serializes changes of the set of tables.
  Mutex& change_mutex() { return change_mutex_; }
  // REQUIRES: change_mutex() is held.
  RejectedImports& rejected_imports() { return rejected_imports_; }

 private:
  Database(const RocksStoreOptions& options, bool damaged, const RocksOptions& rocks_options);

  // `former` may be null.
  static absl::StatusOr<std::shared_ptr<Database>> OpenNew(const RocksStoreOptions& options,
                                                           bool damaged,
                                                           const RocksOptions& rocks_options,
                                                           const Database* former);
  absl::Status OpenAll(const Database* former);
  absl::Status OpenFiles(const Database* former);
  absl::Status OpenReaderFiles(const Database* former);
  absl::Status Lock();
  absl::Status CheckThreadsCanStart() const;
  absl::Status StartThreads() const;
  absl::Status CheckStoreFormat() const;
  // The error with the path of the store.
  absl::Status InStore(const absl::Status& error) const {
    return {error.code(), "store '" + path() + "': " + std::string(error.message())};
  }
  absl::StatusOr<rocksdb::Status> OpenRocks(const std::vector<std::string>& families);
  absl::Status NoThread(const std::system_error& error) const;
  absl::Status LoadTables(const Database* former);
  absl::Status LoadPages(Family& family, const Database* former) HPS_REQUIRES(mutex_);
  absl::Status CheckNotReplaced(const TableRecord& table);
  void LoadChangedKeys(Family& family);
  absl::Status RemoveUnknownPageFiles();
  void TakeNetworkFamilies(const CatalogContents& contents,
                           std::map<std::string, rocksdb::ColumnFamilyHandle*>& handles)
      HPS_REQUIRES(mutex_);
  absl::Status DropUnknownFamilies();
  bool IsSwitchVisible(const NewContents& contents) const;
  void ApplySwitch(const NewContents& contents, std::vector<std::unique_ptr<Family>>& unused)
      HPS_REQUIRES(mutex_);
  void NoteTablesChanged();
  bool WalIsFlushed() const;
  bool healthy() const;
  absl::Status EnsureHealthy();
  absl::Status FlushWal();
  absl::Status Recover();
  absl::Status TryToRecover(const std::vector<Pin>& pins) HPS_REQUIRES(recovery_mutex_);
  enum class FamilyKind { kAny, kNetwork };
  std::vector<Pin> PinAll(FamilyKind kind = FamilyKind::kAny);
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
  absl::Status WriteDrop(const std::vector<std::string>& names,
                         const std::vector<TableRecord>& others);
  std::vector<TableRecord> OthersAfterDrop(const std::vector<std::string>& names) const;
  absl::Status TryToDrop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);
  absl::Status DropPages(const std::vector<std::string>& families);
  bool AnyLeftovers() const;
  absl::Status DropLeftovers();
  absl::Status UndoSwitches();
  void Retire(std::vector<std::unique_ptr<Family>> families);
  void RetireOne(std::unique_ptr<Family> family);
  void Unpin(Family* family);
  // Null if the incarnation is not the table's current one.
  const TableRecord* FindCurrent(const std::string& table, Incarnation incarnation) const
      HPS_REQUIRES(mutex_);
  Family& AddFamily(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle)
      HPS_REQUIRES(mutex_);
  std::unique_ptr<Family> TakeReplaced(const FamilyId& id) HPS_REQUIRES(mutex_);
  bool AnyFamilyOf(Incarnation incarnation) const HPS_REQUIRES(mutex_);
  PageFileSet KnownPageFiles() const HPS_REQUIRES(mutex_);
  bool IsUnconfirmed(const FamilyId& id) const HPS_REQUIRES(mutex_);
  void UndoSwitch(const TableRecord& table, rocksdb::WriteBatch& batch) HPS_REQUIRES(mutex_);
  uint64_t ChangesToMerge(const Family& family) const;
  uint64_t MergeThreshold(const Family& family) const;
  bool IsMergeDue(Family& family) const;
  absl::Status WriteMerged(const TableRecord& record, bool& is_visible);
  void ApplyMerge(Merge& merge, const TableRecord& record,
                  std::shared_ptr<const FamilyPages> pages);
  void ForgetChanges(const Family& from, Family& to);
  bool ConfirmNoSwitch(const Merge& merge);
  std::unique_ptr<Family> TakeUnpinned(Family* family) HPS_REQUIRES(mutex_);

  const RocksStoreOptions options_;
  const bool damaged_;  // opened by verify or repair: the caller handles damage
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
  std::vector<rocksdb::ColumnFamilyHandle*> opened_handles_;  // used up while opening
  bool opened_ = false;                                       // with a valid catalog
  // Of a reader: tables whose files it did not find, but another state of the store. If that has
  // them too, their files are lost.
  std::set<FamilyId> replaced_;
  FetchScratchPool scratches_;
  mutable Mutex page_reader_mutex_;
  // Of all page files, with their cache. Null before there are any.
  std::shared_ptr<PageReader> page_reader_ HPS_GUARDED_BY(page_reader_mutex_);
  std::unique_ptr<LogSyncer> syncer_;  // null unless the sync mode is interval

  MemtableSwitchLock memtable_switch_lock_;
  // Held from reading the record of a current table until its successor is written, because a drop
  // changes the model version in it, and WriteWithStreamState what it adds. Taken before mutex_.
  Mutex table_record_mutex_;
  Mutex recovery_mutex_;
  std::atomic<uint64_t> sync_failures_recovered_{0};  // of WalErrorShield::sync_failures
  std::atomic<uint64_t> recovery_attempts_{0};
  absl::Status last_recovery_ HPS_GUARDED_BY(recovery_mutex_);

  Mutex change_mutex_;
  RejectedImports rejected_imports_;  // guarded by change_mutex_
  mutable Mutex mutex_;
  CatalogContents catalog_ HPS_GUARDED_BY(mutex_);
  std::map<FamilyId, std::unique_ptr<Family>> families_ HPS_GUARDED_BY(mutex_);
  // Families without readers whose drop has failed so far.
  std::vector<rocksdb::ColumnFamilyHandle*> leftovers_ HPS_GUARDED_BY(mutex_);
  // Those whose page files could not be removed so far.
  std::vector<std::string> leftover_files_ HPS_GUARDED_BY(mutex_);
  // The tables of switches that failed. The switch may be in the WAL; until the WAL proves
  // otherwise, the next open needs their column families.
  std::vector<TableRecord> unconfirmed_switches_ HPS_GUARDED_BY(mutex_);
  std::vector<Incarnation> unconfirmed_replacements_ HPS_GUARDED_BY(mutex_);
  std::set<std::string> unconfirmed_networks_ HPS_GUARDED_BY(mutex_);  // by model
  MergeQueue merge_queue_;
};

// Keeps a family readable and its database open. Movable.
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

struct Database::Merge {
  Pin from{};
  Pin to{};
  std::unique_ptr<PageChangeCursor> changes;  // of `from`, as of the beginning
  std::string path;                           // of the new file
  bool is_switched() const { return from.family().merged; }
};

// "rows-000123456789a"; after a merge also the number of the first file: "rows-000123456789a-3".
std::string FamilyName(const FamilyId& id);
inline std::string FamilyName(Incarnation incarnation) { return FamilyName(FamilyId{incarnation}); }
// "network-000123456789a"
std::string NetworkFamilyName(Incarnation id);
// Returns nullopt if the family is not of a table.
std::optional<Incarnation> IncarnationOf(const std::string& family);

}  // namespace hps
