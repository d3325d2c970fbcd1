// The staged imports that were rejected: they could never be committed and have been removed. Kept
// by table until they are reported, or until the table is imported again or dropped.
//
// Not thread-safe: Database keeps one under its change_mutex(). Memory is bounded: beyond
// kTablesPerStoreMax tables, a rejected import is recorded without its table.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/types.h"
#include "tier/durable_tier.h"

namespace hps {

class RejectedImports {
 public:
  // `older`: incarnations of the table whose imports were staged before this one and are still
  // staged. Committing one of them does not replace the rejected import.
  void Add(const std::string& table, const absl::Status& why, std::set<Incarnation> older);
  // Adds a rejected import whose tables are unknown.
  void AddUnknown(const absl::Status& why);

  // Call this when the table has been imported.
  void Replace(const std::string& table, Incarnation incarnation);
  // Call this when the table has been dropped.
  void Forget(const std::string& table) { tables_.erase(table); }

  // As DurableStore::TakeRejectedImports.
  std::vector<RejectedImport> Take(const std::string& model);

 private:
  struct Loss {
    absl::Status why;
    std::set<Incarnation> older;
  };

  std::map<std::string, Loss> tables_;
  absl::Status unknown_;  // of the first import without a table; OK = none
};

}  // namespace hps
