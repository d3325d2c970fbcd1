// ServedModels: the budgets of tables in levels 1 and 2.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "model/served_models.h"
#include "types/names.h"
#include "types/units.h"

namespace hps {

const TableConfig* ServedModels::OverrideOf(const std::string& table) const {
  for (const ModelConfig& model : parts_.config->model) {
    for (const TableConfig& overrides : model.table) {
      if (model.name + "/" + overrides.name == table) return &overrides;
    }
  }
  return nullptr;
}

// Whether the configuration lets the table into level 2.
bool ServedModels::WantsL2(const std::string& table) const {
  const TableConfig* const overrides = OverrideOf(table);
  return overrides == nullptr || (overrides->l2_share != 0.0 && overrides->l2_bytes != uint64_t{0});
}

BudgetRequest ServedModels::RequestFor(const TableBuild& table) const {
  const TableSpec& spec = table.l3->spec();
  BudgetRequest request = {.least_bytes = parts_.l2->bytes_for(1, spec.row_bytes())};
  request.needed_bytes = std::max(
      request.least_bytes, parts_.l2->bytes_for(table.l3->Info().row_count, spec.row_bytes()));
  if (const TableConfig* overrides = OverrideOf(spec.name)) {
    request.share = overrides->l2_share;
    request.fixed_bytes = overrides->l2_bytes;
  }
  return request;
}

// Whether a switch of `models` keeps the table that is served under this name.
bool ServedModels::IsKept(std::span<const ModelBuild> models, const std::string& table) {
  const std::string name = ModelOf(table);
  for (const ModelBuild& model : models) {
    if (model.model != name) continue;
    return std::any_of(model.tables.begin(), model.tables.end(), [&](const TableBuild& build) {
      return build.served != nullptr && build.served->spec().name == table;
    });
  }
  return true;
}

// Divides among the new tables of `models` what is free of level 2, and what their old tables will
// leave. Tables that are served keep their budgets.
void ServedModels::DivideL2(std::span<ModelBuild> models) const {
  if (!parts_.l2->is_budgeted()) return;
  uint64_t bytes_left = parts_.config->l2.bytes_max;
  std::set<std::string> holders;
  for (const auto& [table, bytes] : l2_bytes_) {
    if (bytes == 0 || !IsKept(models, table)) continue;
    bytes_left -= bytes;
    holders.insert(ModelOf(table));
  }
  std::vector<TableBuild*> fresh;
  std::vector<BudgetRequest> requests;
  for (ModelBuild& model : models) {
    for (TableBuild& table : model.tables) {
      if (table.l3 == nullptr) continue;
      fresh.push_back(&table);
      requests.push_back(RequestFor(table));
    }
  }
  const std::vector<uint64_t> parts = DivideBudget(bytes_left, requests);
  for (size_t i = 0; i < fresh.size(); ++i) {
    fresh[i]->l2_bytes = parts[i];
    if (parts[i] != 0 || !requests[i].wants_any()) continue;
    LogWarning(
        absl::StrCat("table '", fresh[i]->l3->spec().name, "' is ",
                     parts_.l2->is_layered() ? "in Redis only, without a part in memory"
                                             : "served without level 2",
                     ": it needs at least ", FormatByteSize(requests[i].least_bytes),
                     ", and less of l2.bytes_max = ", FormatByteSize(parts_.config->l2.bytes_max),
                     " is left", WhatGivesRoom(holders)));
  }
}

// Likewise level 1.
void ServedModels::DivideL1(std::span<ModelBuild> models) const {
  if (parts_.l1 == nullptr) return;
  std::vector<TableBuild*> fresh;
  std::vector<DeviceLevel::Demand> demands;
  std::vector<const LiveTable*> replaced;
  for (ModelBuild& model : models) {
    if (const LiveModel* state = parts_.registry->Find(model.model)) {
      for (const std::shared_ptr<LiveTable>& table : state->Tables())
        if (!IsKept(models, table->spec().name)) replaced.push_back(table.get());
    }
    for (TableBuild& table : model.tables) {
      if (table.l3 == nullptr) continue;
      fresh.push_back(&table);
      const TableSpec& spec = table.l3->spec();
      demands.push_back({.spec = &spec, .row_count = table.l3->Info().row_count});
      if (const TableConfig* overrides = OverrideOf(spec.name)) {
        demands.back().share = overrides->l1_share;
        demands.back().fixed_bytes = overrides->l1_bytes;
      }
    }
  }
  const std::vector<uint64_t> parts = parts_.l1->Divide(demands, replaced);
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->l1_bytes = parts[i];
}

}  // namespace hps
