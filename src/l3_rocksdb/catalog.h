// What the store holds: the records of its tables and networks (catalog_records.h), as they are in
// RocksDB and, for reading, in memory.
//
// Each change is one durable step, and becomes visible in memory when it is written. If the disk
// fails during the write, the step may be in the log, and the next open may replay it. Until the
// catalog knows otherwise, the change is unconfirmed, and what it names has to stay.
//
// While the catalog names a family, the family table has it, unless its files are lost.
//
// Thread-safe. Lock order: the mutex of records, the lock of a recovery, the mutex of the contents,
// that of the families.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/family_table.h"
#include "l3_rocksdb/store_writer.h"

namespace hps {

// What a switch makes current. A network replaces that of its model.
struct NewContents {
  std::vector<TableRecord> tables;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;        // of the tables
  std::vector<std::shared_ptr<const FamilyPages>> pages{};  // likewise
  std::string network_model;                                // empty: no network
  NetworkRecord network;
  rocksdb::ColumnFamilyHandle* network_handle = nullptr;

  std::vector<rocksdb::ColumnFamilyHandle*> AllHandles() const;
};

class Catalog {
 public:
  // Families that the catalog has ceased to name, without readers: to be dropped.
  using Unneeded = std::vector<std::unique_ptr<Family>>;

  Catalog(StoreDb& store, StoreWriter& writer, FamilyTable& families)
      : store_(store), writer_(writer), families_(families) {}

  // When the store is opened.
  void Load(CatalogContents contents);
  CatalogContents contents() const;  // without incarnations, which change with each write

  // Errors: NOT_FOUND, which names the nearest table; DATA_LOSS (its family is missing).
  absl::StatusOr<FamilyPin> PinTable(const std::string& name);
  // The model's network, if it has one. Errors: those of ReadNetwork.
  absl::StatusOr<std::optional<ModelNetwork>> Network(const std::string& model);

  // TableInfo::update_records_lost; 0 if the incarnation is not the table's current one.
  uint64_t RecordsLost(const std::string& table, Incarnation incarnation) const;
  // DurableTable::UnorderedHashes; none if the incarnation is not the table's current one.
  std::vector<uint16_t> UnorderedHashes(const std::string& table, Incarnation incarnation) const;
  // As StoreWriter::Write, not durable. In the same step adds write.records_lost and
  // write.unordered_hashes to those of the table; an incarnation that is not current any more has
  // none.
  absl::Status WriteWithStreamState(const std::string& table, Incarnation incarnation,
                                    const DurableWrite& write, rocksdb::WriteBatch& batch);

  // One thread at a time makes the changes below: the caller holds Database::change_mutex.

  // What became of a switch, also of one that failed.
  enum class Outcome {
    kRefused,      // nothing was written
    kUnconfirmed,  // it can't be read, but the next open may show it
    kVisible       // it is current; after an error the next open may show the state before
  };
  // Makes the contents current, all or none of them. Also marks the incarnations in `replaced`,
  // which are still staged, as used, so that they never become current.
  absl::Status Switch(NewContents contents, const std::vector<Incarnation>& replaced,
                      Outcome& outcome, Unneeded& unneeded);
  // Writes that a table has the files and the family of a merge. Does not check the space: the few
  // bytes free more than they take. If the switch is visible, ApplyMerged must follow.
  absl::Status SwitchMerged(const TableRecord& record, Outcome& outcome);
  // REQUIRES: the family table has noted the merge.
  void ApplyMerged(const TableRecord& record);
  // Removes tables of one model, and with the last one its network. Checks neither space nor failed
  // flushes: a drop is meant to free space on a disk that is too full for them. Each dropped family
  // gets a loan of the reserve, because deleting files needs space too. REQUIRES: the tables exist.
  absl::Status Drop(const std::vector<std::string>& names, Outcome& outcome, Unneeded& unneeded);
  // Removes the network of a model, which has one.
  absl::Status DropNetwork(const std::string& model, Unneeded& unneeded);

  bool AnyUnconfirmed() const;
  bool IsUnconfirmed(const FamilyId& id) const;
  // Writes the current records after the unconfirmed changes, durably, so that a replay of the log
  // ends with these.
  absl::Status UndoUnconfirmed();

 private:
  // Null if the incarnation is not the table's current one.
  const TableRecord* FindCurrent(const std::string& table, Incarnation incarnation) const
      HPS_REQUIRES(mutex_);
  void ApplySwitch(const NewContents& contents, Unneeded& unneeded);
  void NoteReplaced(const FamilyId& id, Unneeded& unneeded, SpaceReserve::Loan room = {});
  bool IsInRocks(const TableRecord& record) const;
  bool HasTableInRocks(const std::string& name) const;
  absl::Status WriteDrop(const std::vector<std::string>& names,
                         const std::vector<TableRecord>& others, bool drops_network);
  void UndoSwitch(const TableRecord& table, rocksdb::WriteBatch& batch) HPS_REQUIRES(mutex_);

  StoreDb& store_;
  StoreWriter& writer_;
  FamilyTable& families_;
  // Held from reading the record of a current table until its successor is written, because a drop
  // changes the model version in it, and WriteWithStreamState what it adds.
  Mutex record_mutex_;
  mutable Mutex mutex_;
  CatalogContents contents_ HPS_GUARDED_BY(mutex_);
  // Of switches that failed: what they named.
  std::vector<TableRecord> unconfirmed_tables_ HPS_GUARDED_BY(mutex_);
  std::vector<Incarnation> unconfirmed_replacements_ HPS_GUARDED_BY(mutex_);
  std::set<std::string> unconfirmed_networks_ HPS_GUARDED_BY(mutex_);  // by model
};

}  // namespace hps
