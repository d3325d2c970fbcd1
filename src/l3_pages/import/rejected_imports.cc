#include "l3_pages/import/rejected_imports.h"

#include <utility>

#include "base/limits.h"

namespace hps {

void RejectedImports::Add(const std::string& table, const absl::Status& why,
                          std::set<Incarnation> older) {
  if (tables_.size() == kTablesPerStoreMax && !tables_.contains(table)) return AddUnknown(why);
  tables_.insert_or_assign(table, Loss{.why = why, .older = std::move(older)});
}

void RejectedImports::AddUnknown(const absl::Status& why) { unknown_.Update(why); }

void RejectedImports::Replace(const std::string& table, Incarnation incarnation) {
  const auto found = tables_.find(table);
  if (found != tables_.end() && !found->second.older.contains(incarnation)) tables_.erase(found);
}

std::vector<RejectedImport> RejectedImports::Take(const std::string& model) {
  std::vector<RejectedImport> taken;
  const std::string prefix = model + "/";
  for (auto it = tables_.lower_bound(prefix);
       it != tables_.end() && it->first.starts_with(prefix);) {
    taken.push_back({.table = it->first, .why = std::move(it->second.why)});
    it = tables_.erase(it);
  }
  if (!unknown_.ok()) taken.push_back({.table = {}, .why = std::exchange(unknown_, {})});
  return taken;
}

}  // namespace hps
