// A column family of a store, and what its readers and writers share.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "l3_rocksdb/catalog_records.h"
#include "l3_rocksdb/changed_keys.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/files/space_reserve.h"

namespace hps {

// A table has another family, and other page files, after each merge of its changes.
struct FamilyId {
  Incarnation incarnation = 0;
  uint64_t first_file = 0;
  friend auto operator<=>(const FamilyId&, const FamilyId&) = default;
};

inline FamilyId FamilyIdOf(const TableRecord& table) {
  return {table.incarnation, table.first_file};
}

// "rows-000123456789a"; after a merge also the number of the first file: "rows-000123456789a-3".
std::string FamilyName(const FamilyId& id);
// "network-000123456789a"
std::string NetworkFamilyName(Incarnation id);
// Returns nullopt if the family is not of a table.
std::optional<Incarnation> IncarnationOf(const std::string& family);

struct Family;

// How far the merge of a family's changes into new page files is (table_merge.h).
struct MergeState {
  // While it runs, the family that replaces this one; it gets all new writes too. Set under
  // Family::write_mutex; set to null under the mutex of the family table, too.
  std::atomic<Family*> successor{nullptr};
  // The successor is current. Set under Family::write_mutex.
  std::atomic<bool> is_done{false};
  std::atomic<bool> is_requested{false};
  // No merge is due before so many keys were added to Family::changed_keys.
  std::atomic<uint64_t> due_from{0};

  // Of a successor: opened when its merge is to end early.
  Latch cancel{1};
  std::atomic<bool> is_cancelled{false};
  void Cancel() {
    if (!is_cancelled.exchange(true)) cancel.CountDown();
  }
};

// The column family with the changes of one incarnation of a table, or with one network: then
// `table` has no name.
struct Family {
  rocksdb::ColumnFamilyHandle* handle = nullptr;
  TableRecord table;
  std::shared_ptr<const FamilyPages> pages;  // the table's rows; null for a network
  ChangedKeys changed_keys;                  // those that `handle` may have
  std::atomic<bool> changed{false};          // since its page files were made
  std::atomic<bool> current{true};           // the catalog names it
  SpaceReserve::Loan room;                   // after a drop or a merge, until its files are deleted
  size_t pins = 0;                           // guarded by the mutex of the family table
  MergeState merge;

  // Held during a write of rows, and when a merge begins and switches.
  Mutex write_mutex;
};

}  // namespace hps
