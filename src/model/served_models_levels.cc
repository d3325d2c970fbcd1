// ServedModels: divides the budgets of levels 1 and 2 among the tables of all models.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "model/served_models.h"
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

BudgetRequest ServedModels::RequestFor(const TableBuild& table) const {
  const TableSpec& spec = table.durable().spec();
  BudgetRequest request = {.least_bytes = parts_.l2->bytes_for(1, spec.row_bytes()),
                           .held_bytes = table.l3 == nullptr ? table.l2_bytes : 0};
  request.needed_bytes =
      std::max(request.least_bytes,
               parts_.l2->bytes_for(table.durable().Info().row_count, spec.row_bytes()));
  if (const TableConfig* overrides = OverrideOf(spec.name)) {
    request.share = overrides->l2_share;
    request.fixed_bytes = overrides->l2_bytes;
  }
  return request;
}

// Divides level 2 among the tables of `models`. Loaded models that are not in `models`, because
// they could not be pinned, keep their budgets.
void ServedModels::DivideL2(std::vector<ModelBuild>& models) {
  if (!parts_.l2->is_budgeted()) return;
  uint64_t bytes_left = parts_.config->l2.bytes_max;
  for (const auto& [table, bytes] : l2_bytes_) {
    const bool is_among = std::any_of(
        models.begin(), models.end(),
        [&, &table = table](const ModelBuild& model) { return model.model == ModelOf(table); });
    if (!is_among) bytes_left -= bytes;
  }
  std::vector<BudgetRequest> requests;
  for (const ModelBuild& model : models) {
    for (const TableBuild& table : model.tables) requests.push_back(RequestFor(table));
  }
  const std::vector<uint64_t> parts = RedivideBudget(bytes_left, requests);
  size_t next = 0;
  for (ModelBuild& model : models) {
    for (TableBuild& table : model.tables) {
      const uint64_t l2_bytes = parts[next++];
      if (table.l3 != nullptr) {
        table.l2_bytes = l2_bytes;
      } else if (l2_bytes != table.l2_bytes) {
        Reopen(model, table, l2_bytes);
      }
    }
  }
}

// Divides level 1 among the tables of `models`. Memory of replaced tables counts as free.
void ServedModels::DivideL1(std::vector<ModelBuild>& models) const {
  if (parts_.l1 == nullptr) return;
  std::vector<DeviceLevel::Demand> demands;
  std::vector<std::shared_ptr<LiveTable>> replaced;
  for (ModelBuild& model : models) {
    if (const LiveModel* state = parts_.registry->Find(model.model)) {
      for (std::shared_ptr<LiveTable>& table : state->Tables())
        replaced.push_back(std::move(table));
    }
    for (const TableBuild& table : model.tables) {
      const TableSpec& spec = table.durable().spec();
      demands.push_back({.spec = &spec, .row_count = table.durable().Info().row_count});
      if (table.l3 == nullptr) {
        std::erase(replaced, table.served);
        demands.back().served = table.served.get();
      }
      if (const TableConfig* overrides = OverrideOf(spec.name)) {
        demands.back().share = overrides->l1_share;
        demands.back().fixed_bytes = overrides->l1_bytes;
      }
    }
  }
  std::vector<const LiveTable*> replaced_tables;
  for (const auto& table : replaced) replaced_tables.push_back(table.get());
  const std::vector<uint64_t> parts = parts_.l1->Divide(demands, replaced_tables);
  size_t next = 0;
  for (ModelBuild& model : models) {
    for (TableBuild& table : model.tables) AssignL1Budget(model, table, parts[next++]);
  }
}

// A budget cannot be resized in place: a table that has one must be re-created.
void ServedModels::AssignL1Budget(ModelBuild& model, TableBuild& table, uint64_t l1_bytes) const {
  const uint64_t held = table.l3 != nullptr ? 0 : parts_.l1->BytesOf(*table.served);
  if (l1_bytes == held) return;
  if (held != 0) Reopen(model, table, table.l2_bytes);
  if (held != 0 && table.l3 == nullptr) return;  // re-creating failed: it keeps its budget
  table.l1_bytes = l1_bytes;
  model.changed = true;
}

// Opens the table's incarnation again, so that it gets new caches with other budgets.
void ServedModels::Reopen(ModelBuild& model, TableBuild& table, uint64_t l2_bytes) const {
  absl::StatusOr<std::unique_ptr<DurableTable>> opened =
      OpenIncarnation(table.served->spec().name, table.served->incarnation());
  if (!opened.ok()) {
    LogWarning(absl::StrCat("table '", table.served->spec().name,
                            "' keeps its cache budgets: ", opened.status().ToString()));
    return;
  }
  table.l3 = *std::move(opened);
  table.l2_bytes = l2_bytes;
  model.changed = true;
}

int64_t ServedModels::L2Growth(const ModelBuild& model) const {
  int64_t growth = 0;
  for (const TableBuild& table : model.tables) growth += static_cast<int64_t>(table.l2_bytes);
  for (const auto& [table, held] : l2_bytes_) {
    if (ModelOf(table) == model.model) growth -= static_cast<int64_t>(held);
  }
  return growth;
}

uint64_t ServedModels::L2BytesOfOthers(const ModelBuild& model) const {
  uint64_t bytes = 0;
  for (const auto& [table, held] : l2_bytes_) {
    if (ModelOf(table) != model.model) bytes += held;
  }
  for (const TableBuild& table : model.tables) {
    if (table.l3 == nullptr) bytes += table.l2_bytes;
  }
  return bytes;
}

// Reduces the new budgets if a table that should have shrunk could not be re-created.
void ServedModels::ClampL2(ModelBuild& model) const {
  if (!parts_.l2->is_budgeted()) return;
  const uint64_t bytes_max = parts_.config->l2.bytes_max;
  const uint64_t bytes_left = bytes_max - std::min(bytes_max, L2BytesOfOthers(model));
  std::vector<TableBuild*> fresh;
  std::vector<BudgetRequest> requests;
  uint64_t desired = 0;
  for (TableBuild& table : model.tables) {
    if (table.l3 == nullptr) continue;
    fresh.push_back(&table);
    requests.push_back(RequestFor(table));
    desired += table.l2_bytes;
  }
  if (desired <= bytes_left) return;
  const std::vector<uint64_t> parts = DivideBudget(bytes_left, requests);
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->l2_bytes = parts[i];
}

}  // namespace hps
