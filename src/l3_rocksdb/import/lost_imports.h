// Imports that were left staged, could never be committed and have been removed, by table: until
// somebody is told, or the table is imported again or dropped.
//
// Not thread-safe: Database keeps one under its change_mutex(). Memory is bounded: beyond
// kTablesPerStoreMax tables it forgets which ones, but not that there was one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/types.h"
#include "tier/durable_tier.h"

namespace hps {

class LostImports {
 public:
  // `older`: incarnations of the table whose imports were staged before this one and are there
  // still. Taking one of them does not make up for the loss.
  void Add(const std::string& table, const absl::Status& why, std::set<Incarnation> older);
  // One whose tables nobody can tell.
  void AddUnknown(const absl::Status& why);

  // The table has been imported.
  void Replace(const std::string& table, Incarnation incarnation);
  // The table has been dropped.
  void Forget(const std::string& table) { tables_.erase(table); }

  // As DurableStore::TakeRejectedImports.
  std::vector<RejectedImport> Take(const std::string& model);

 private:
  struct Loss {
    absl::Status why;
    std::set<Incarnation> older;
  };

  std::map<std::string, Loss> tables_;
  absl::Status unknown_;  // why the first of those was removed; OK = there is none
};

}  // namespace hps
