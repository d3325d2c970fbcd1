// One open store: its RocksDB and what its tables share. Composes the parts, each with its own
// state and lock:
//
//   StoreDb       the files: lock, file system, RocksDB, room on the disk
//   FamilyTable   the open column families and who reads them
//   StoreWriter   writes, syncs and flushes; recovery after errors of the disk
//   Catalog       the tables and networks that the store holds
//   FamilyFiles   makes and drops column families and page files
//   MergeQueue    which tables have enough changes for a merge
//
// A column family holds the changes of one incarnation since its page files were made. The tables
// and cursors that read the family pin it, and with it the database. The database drops it when the
// catalog no longer names it and the last pin has been released. Thread-safe.
//
// Lock order: change_mutex, then Family::write_mutex, then the locks of the parts (catalog.h).
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "hps/statistics.h"
#include "l3_pages/import/rejected_imports.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/family_files.h"
#include "l3_rocksdb/family_table.h"
#include "l3_rocksdb/merge_queue.h"
#include "l3_rocksdb/sorted_fetch_scratch.h"
#include "l3_rocksdb/store_db.h"
#include "l3_rocksdb/store_writer.h"

namespace hps {

class Database : public std::enable_shared_from_this<Database> {
 public:
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

  StoreDb& store() { return *store_; }
  FamilyTable& families() { return families_; }
  StoreWriter& writer() { return writer_; }
  Catalog& catalog() { return catalog_; }
  FamilyFiles& files() { return files_; }
  MergeQueue& merge_queue() { return merge_queue_; }
  FetchScratchPool& scratches() { return scratches_; }

  rocksdb::DB& db() const { return store_->db(); }
  const std::string& path() const { return store_->path(); }
  rocksdb::Env* env() const { return store_->env(); }
  bool read_only() const { return store_->read_only(); }

  DurableStatistics Statistics() const;

  // Opens the page files of a table. Errors: those of OpenPages.
  absl::StatusOr<std::shared_ptr<const FamilyPages>> OpenPagesOf(const TableRecord& table);

  // Serializes changes of the set of tables.
  Mutex& change_mutex() { return change_mutex_; }
  // REQUIRES: change_mutex() is held.
  RejectedImports& rejected_imports() { return rejected_imports_; }

  // Catalog::Switch, and drops what it replaces. Takes the handles. REQUIRES: change_mutex() is
  // held.
  absl::Status SwitchTables(NewContents contents, const std::vector<Incarnation>& replaced);
  // Drops tables of one model in one step, as SwitchTables replaces them; works on a full disk too.
  // With the last table of the model goes its network. REQUIRES: change_mutex() is held; there is a
  // name. Errors: NOT_FOUND, and those of StoreWriter::Write.
  absl::Status DropTables(const std::vector<std::string>& names);
  // Drops the network of a model, which has one. REQUIRES and errors: as DropTables.
  absl::Status DropNetwork(const std::string& model);
  // Flushes the networks and the catalog to table files, so that damage in the WAL cannot undo a
  // change of tables. Then writes the mark, which detects a MANIFEST that lost its end. The change
  // is durable without both.
  void NoteTablesChanged();

  // For FamilyPin: drops a family that was replaced with its last pin.
  void Unpin(Family* family);

 private:
  explicit Database(std::unique_ptr<StoreDb> store);
  // `former` may be null.
  static absl::StatusOr<std::shared_ptr<Database>> OpenNew(const RocksStoreOptions& options,
                                                           bool damaged, const Database* former);
  void SharePages(const Database& former);
  absl::Status Load(const Database* former, std::set<FamilyId>& replaced);
  absl::Status LoadTables(const CatalogContents& contents, const Database* former,
                          std::set<FamilyId>& replaced);
  absl::Status LoadPages(Family& family, const Database* former, std::set<FamilyId>& replaced);
  absl::Status CheckNotReplaced(const TableRecord& table, std::set<FamilyId>& replaced);

  const std::unique_ptr<StoreDb> store_;
  FamilyTable families_;
  StoreWriter writer_;
  Catalog catalog_;
  FamilyFiles files_;
  MergeQueue merge_queue_;
  FetchScratchPool scratches_;
  bool opened_ = false;  // with a valid catalog
  mutable Mutex page_reader_mutex_;
  // Of all page files, with their cache. Null before there are any.
  std::shared_ptr<PageReader> page_reader_ HPS_GUARDED_BY(page_reader_mutex_);
  Mutex change_mutex_;
  RejectedImports rejected_imports_;  // guarded by change_mutex_
};

}  // namespace hps
