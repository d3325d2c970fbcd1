// A column family of a store, and what its readers and writers share.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/executor.h"
#include "base/mutex.h"
#include "l3_rocksdb/catalog.h"
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
  size_t pins = 0;                           // guarded by the database's mutex

  // Held during a write of rows, and when a merge begins and switches.
  Mutex write_mutex;
  // While the changes are being merged, the family that replaces this one; it gets all new writes
  // too. Set under write_mutex; set to null under the database's mutex, too.
  std::atomic<Family*> successor{nullptr};
  // A merge has made the successor current. Set under write_mutex.
  std::atomic<bool> merged{false};
  std::atomic<bool> merge_requested{false};
  // No merge is due before so many keys were added to changed_keys.
  std::atomic<uint64_t> merge_from{0};

  // Of a successor: opened when its merge is to end early.
  Latch merge_cancel{1};
  std::atomic<bool> merge_is_cancelled{false};
  void CancelMerge() {
    if (!merge_is_cancelled.exchange(true)) merge_cancel.CountDown();
  }
};

}  // namespace hps
