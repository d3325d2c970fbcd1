// One merge of a table's changes into a new page file: Begin, MergePages over `from` and its
// changes, Switch, End.
//
// A merge has a new column family and a new page file. From its beginning on, each write of the
// table goes to the old family and to the new one, in one atomic step. The changes that the merge
// reads are those of the old family at this moment. So old file + old family, and new file + new
// family, hold the same rows at every later moment, and the switch is one small write to the
// catalog, which names one pair or the other. Nothing has to be copied or deleted key by key, and
// lookups never ask more than one family and one set of files. The price is that rows which are
// written during a merge are written twice.
//
// If the process ends before the switch, the catalog names the old pair, and the next writer drops
// the new family and file because no record names them. If it ends after the switch, the next
// writer drops the old ones for the same reason. The new file is durable before the switch, and the
// switch is durable before the old pair is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l3_pages/merged_rows.h"
#include "l3_pages/page_format.h"
#include "l3_rocksdb/database.h"

namespace hps {

// For one thread; one merge of a database at a time.
class TableMerge {
 public:
  // From now on the writes of the table go to the old and to the new family. Errors:
  // RESOURCE_EXHAUSTED (no room for the new file), NOT_FOUND, CANCELLED (the table is not due),
  // and those of FamilyFiles::Create.
  static absl::StatusOr<std::unique_ptr<TableMerge>> Begin(Database& database,
                                                           const std::string& table);

  Family& from() const { return from_.family(); }
  Family& to() const { return to_.family(); }
  PageChangeCursor& changes() { return *changes_; }  // of `from`, as of the beginning
  const std::string& path() const { return path_; }  // of the new file
  bool is_switched() const { return from().merge.is_done; }

  // Makes the new file and family current, in one durable step. `on_switch` gets the table's new
  // state while no write of it runs. Errors: CANCELLED (the table was replaced), those of
  // StoreWriter::Write and OpenPages; is_switched() says whether the step was done nevertheless.
  absl::Status Switch(const PageFileDescription& file,
                      const std::function<void(const FamilyPin&)>& on_switch);
  // Releases the merge. One that has not switched leaves nothing behind. False: the switch may be
  // in the log, so the writes of the table must go to both families still; call this again.
  bool End();
  // Instead of End when the store is closed: the new family stays open to the end, because writes
  // go on.
  void Leave() { to().current = true; }

 private:
  explicit TableMerge(Database& database) : database_(database) {}
  void ForgetChanges();
  bool ConfirmNoSwitch();

  Database& database_;
  FamilyPin from_;
  FamilyPin to_;
  std::unique_ptr<PageChangeCursor> changes_;
  std::string path_;
};

}  // namespace hps
