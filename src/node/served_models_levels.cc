// ServedModels: the budgets of tables in levels 1 and 2.
#include <algorithm>
#include <iterator>

#include "base/macros.h"
#include "node/served_models.h"
#include "types/names.h"

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

BudgetRequest ServedModels::RequestFor(const TableInfo& table) const {
  const TableSpec& spec = table.spec;
  const auto& bytes_for = parts_.l2->budgeted()->bytes_for;
  BudgetRequest request = {.least_bytes = bytes_for(1, spec.row_bytes()), .table = spec.name};
  request.needed_bytes =
      std::max(request.least_bytes, bytes_for(table.row_count, spec.row_bytes()));
  if (const TableConfig* overrides = OverrideOf(spec.name)) {
    request.share = overrides->l2_share;
    request.fixed_bytes = overrides->l2_bytes;
  }
  return request;
}

std::vector<ServedModels::TableBuild*> ServedModels::NewTables(std::span<ModelBuild> models) {
  std::vector<TableBuild*> tables;
  for (ModelBuild& model : models) {
    for (TableBuild& table : model.tables) {
      if (table.l3 != nullptr) tables.push_back(&table);
    }
  }
  return tables;
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

// The tables of models that the store has and that were not loaded yet, and are not among `models`.
// Triton, for one, loads the models of a store one after the other.
absl::StatusOr<std::vector<TableInfo>> ServedModels::WaitingTables(
    std::span<const ModelBuild> models) const {
  HPS_ASSIGN_OR_RETURN(std::vector<DesiredModel> stored, DesiredModelsIn({}));
  std::vector<TableInfo> waiting;
  for (DesiredModel& model : stored) {
    const bool is_among = std::any_of(models.begin(), models.end(), [&](const ModelBuild& build) {
      return build.model == model.model;
    });
    if (is_among || parts_.registry->Find(model.model) != nullptr) continue;
    std::move(model.tables.begin(), model.tables.end(), std::back_inserter(waiting));
  }
  return waiting;
}

// Gives the new tables of `models` their budgets in level 2: divides the bytes that no table holds,
// and those of the tables that the switch replaces. A part for each table of `waiting` stays free.
void ServedModels::DivideL2(std::span<ModelBuild> models,
                            std::span<const TableInfo> waiting) const {
  if (parts_.l2->budgeted() == nullptr) return;
  LevelRoom room = {.level = "level 2",
                    .setting = "l2.bytes_max",
                    .without = parts_.l2->parts.size() > 1
                                   ? "is in Redis only, without a part in memory"
                                   : "is served without level 2",
                    .bytes_max = parts_.config->l2.bytes_max,
                    .bytes_left = parts_.config->l2.bytes_max};
  for (const auto& [table, bytes] : l2_bytes_) {
    if (bytes == 0 || !IsKept(models, table)) continue;
    room.bytes_left -= bytes;
    room.holders.insert(ModelOf(table));
  }
  const std::vector<TableBuild*> fresh = NewTables(models);
  std::vector<BudgetRequest> requests;
  for (const TableBuild* table : fresh) requests.push_back(RequestFor(table->l3->Info()));
  for (const TableInfo& table : waiting) {
    requests.push_back(RequestFor(table));
    requests.back().waits = true;
  }
  const std::vector<uint64_t> parts = DivideRoom(room, requests);
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->l2_bytes = parts[i];
}

// Likewise level 1.
void ServedModels::DivideL1(std::span<ModelBuild> models,
                            std::span<const TableInfo> waiting) const {
  if (parts_.l1 == nullptr) return;
  std::vector<DeviceLevel::Demand> demands;
  const auto add = [&](const TableInfo& info, bool waits) {
    demands.push_back({.spec = info.spec, .row_count = info.row_count, .waits = waits});
    if (const TableConfig* overrides = OverrideOf(info.spec.name)) {
      demands.back().share = overrides->l1_share;
      demands.back().fixed_bytes = overrides->l1_bytes;
    }
  };
  const std::vector<TableBuild*> fresh = NewTables(models);
  for (const TableBuild* table : fresh) add(table->l3->Info(), false);
  for (const TableInfo& table : waiting) add(table, true);
  std::vector<const LiveTable*> replaced;
  for (const ModelBuild& model : models) {
    const LiveModel* const state = parts_.registry->Find(model.model);
    if (state == nullptr) continue;
    for (const std::shared_ptr<LiveTable>& table : state->Tables())
      if (!IsKept(models, table->spec().name)) replaced.push_back(table.get());
  }
  const std::vector<uint64_t> parts = parts_.l1->Divide(demands, replaced);
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->l1_bytes = parts[i];
}

}  // namespace hps
