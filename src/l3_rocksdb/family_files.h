// Column families and page files on the disk: makes those of new tables, and drops those of tables
// that are gone. What can't be dropped because the disk fails is kept, and tried again.
//
// Thread-safe, but for what REQUIRES Database::change_mutex. Its own mutex is the last in the order
// of locks.
#pragma once

#include <rocksdb/db.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "l3_rocksdb/catalog.h"
#include "l3_rocksdb/family_table.h"
#include "l3_rocksdb/store_writer.h"

namespace hps {

class FamilyFiles {
 public:
  FamilyFiles(StoreDb& store, StoreWriter& writer, FamilyTable& families, Catalog& catalog)
      : store_(store), writer_(writer), families_(families), catalog_(catalog) {}
  // Destroys the handles that could not be dropped.
  ~FamilyFiles();

  // Creates a column family for the changes of each of `tables`. The caller passes them to a switch
  // or to Drop. First retries earlier drops that failed. REQUIRES: change_mutex is held.
  absl::StatusOr<std::vector<rocksdb::ColumnFamilyHandle*>> Create(
      const std::vector<TableRecord>& tables);
  // Writes the bytes of a network to a column family of their own, and names both in `contents`.
  // REQUIRES: as Create. Errors: those of Create and of StoreWriter::Write.
  absl::Status CreateNetwork(const std::string& model, const ModelNetwork& network,
                             NewContents& contents);

  // Drops families that have no reader, and their page files. Takes the handles. RetryDrops or the
  // next open retries drops that fail.
  void Drop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);
  // As Drop, of families that the catalog does not name any more, once that is durable. Also
  // removes their records.
  void Retire(std::vector<std::unique_ptr<Family>> families);
  // As Drop, of a switch that is unconfirmed: once it is undone.
  void DropUnconfirmed(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

  // Drops the remains of changes that failed because the disk failed; works on a full disk too.
  // Logs remains that it cannot drop, and keeps them for the next call. REQUIRES: change_mutex is
  // held.
  void RetryDrops();
  // As RetryDrops, without the reserve of space. Returns the first error.
  absl::Status DropLeftovers();

  // When the store is opened: what the catalog does not name is left over from an import or a merge
  // that did not switch, or from a table that was replaced.
  absl::Status DropUnknown(const std::map<Incarnation, IncarnationRecords>& incarnations);

 private:
  absl::Status PrepareToCreate();
  void Keep(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);
  bool AnyLeftovers() const;
  absl::Status TryToDrop(const std::vector<rocksdb::ColumnFamilyHandle*>& handles);
  absl::Status DropPages(const std::vector<std::string>& families);

  StoreDb& store_;
  StoreWriter& writer_;
  FamilyTable& families_;
  Catalog& catalog_;
  mutable Mutex mutex_;
  // Families without readers whose drop has failed so far.
  std::vector<rocksdb::ColumnFamilyHandle*> leftovers_ HPS_GUARDED_BY(mutex_);
  // Those whose page files could not be removed so far.
  std::vector<std::string> leftover_files_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
