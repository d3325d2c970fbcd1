// How a switch divides the budgets of levels 1 and 2 over the tables of all models.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "model/served_models.h"

namespace hps {

const TableConfig* ServedModels::OverrideOf(const std::string& table) const {
  for (const ModelConfig& model : parts_.config->model) {
    for (const TableConfig& override_of_table : model.table) {
      if (model.name + "/" + override_of_table.name == table) return &override_of_table;
    }
  }
  return nullptr;
}

BudgetRequest ServedModels::RequestFor(const Building& table) const {
  const TableSpec& spec = table.durable().spec();
  BudgetRequest request = {.least_bytes = parts_.l2->bytes_for(1, spec.row_bytes()),
                           .held_bytes = table.l3 == nullptr ? table.l2_bytes : 0};
  request.needed_bytes =
      std::max(request.least_bytes,
               parts_.l2->bytes_for(table.durable().Info().row_count, spec.row_bytes()));
  if (const TableConfig* override_of_table = OverrideOf(spec.name)) {
    request.share = override_of_table->l2_share;
    request.fixed_bytes = override_of_table->l2_bytes;
  }
  return request;
}

// Divides level 2 anew over all tables of `models`. Models that are served and not among them, as
// they could not be pinned, keep what they have.
void ServedModels::DivideL2(std::vector<BuildingModel>& models) {
  if (parts_.l2->tier == nullptr) return;
  uint64_t bytes_left = parts_.config->l2.bytes_max;
  for (const auto& [table, bytes] : l2_bytes_) {
    const bool is_among = std::any_of(
        models.begin(), models.end(),
        [&, &table = table](const BuildingModel& model) { return model.model == ModelOf(table); });
    if (!is_among) bytes_left -= bytes;
  }
  std::vector<BudgetRequest> requests;
  for (const BuildingModel& model : models) {
    for (const Building& table : model.tables) requests.push_back(RequestFor(table));
  }
  const std::vector<uint64_t> parts = RedivideBudget(bytes_left, requests);
  size_t next = 0;
  for (BuildingModel& model : models) {
    for (Building& table : model.tables) {
      const uint64_t l2_bytes = parts[next++];
      if (table.l3 != nullptr) {
        table.l2_bytes = l2_bytes;
      } else if (l2_bytes != table.l2_bytes) {
        OpenAnew(model, table, l2_bytes);
      }
    }
  }
}

// Divides level 1 anew over all tables of `models`. What goes with the switch counts as free.
void ServedModels::DivideL1(std::vector<BuildingModel>& models) const {
  if (parts_.l1 == nullptr) return;
  std::vector<DeviceLevel::Demand> demands;
  std::vector<std::shared_ptr<ServedTable>> going;
  for (BuildingModel& model : models) {
    if (const ModelState* state = FindModel(model.model)) {
      for (std::shared_ptr<ServedTable>& table : state->Tables()) going.push_back(std::move(table));
    }
    for (const Building& table : model.tables) {
      const TableSpec& spec = table.durable().spec();
      demands.push_back({.spec = &spec, .row_count = table.durable().Info().row_count});
      if (table.l3 == nullptr) {
        std::erase(going, table.served);
        demands.back().served = table.served.get();
      }
      if (const TableConfig* override_of_table = OverrideOf(spec.name)) {
        demands.back().share = override_of_table->l1_share;
        demands.back().fixed_bytes = override_of_table->l1_bytes;
      }
    }
  }
  std::vector<const ServedTable*> going_tables;
  for (const auto& table : going) going_tables.push_back(table.get());
  const std::vector<uint64_t> parts = parts_.l1->Divide(demands, going_tables);
  size_t next = 0;
  for (BuildingModel& model : models) {
    for (Building& table : model.tables) GiveL1(model, table, parts[next++]);
  }
}

// A part can't be resized: who has one gets another with the table being opened anew.
void ServedModels::GiveL1(BuildingModel& model, Building& table, uint64_t l1_bytes) const {
  const uint64_t held = table.l3 != nullptr ? 0 : parts_.l1->BytesOf(*table.served);
  if (l1_bytes == held) return;
  if (held != 0) OpenAnew(model, table, table.l2_bytes);
  if (held != 0 && table.l3 == nullptr) return;  // it keeps what it has
  table.l1_bytes = l1_bytes;
  model.changed = true;
}

// The levels of a table can't be resized: the same incarnation gets new ones.
void ServedModels::OpenAnew(BuildingModel& model, Building& table, uint64_t l2_bytes) const {
  absl::StatusOr<std::unique_ptr<DurableTable>> opened =
      OpenIncarnation(table.served->spec().name, table.served->incarnation());
  if (!opened.ok()) {
    LogWarning(absl::StrCat("table '", table.served->spec().name,
                            "' keeps its parts of the levels: ", opened.status().ToString()));
    return;
  }
  table.l3 = *std::move(opened);
  table.l2_bytes = l2_bytes;
  model.changed = true;
}

int64_t ServedModels::L2Growth(const BuildingModel& model) const {
  int64_t growth = 0;
  for (const Building& table : model.tables) growth += static_cast<int64_t>(table.l2_bytes);
  for (const auto& [table, held] : l2_bytes_) {
    if (ModelOf(table) == model.model) growth -= static_cast<int64_t>(held);
  }
  return growth;
}

uint64_t ServedModels::L2BytesOfOthers(const BuildingModel& model) const {
  uint64_t bytes = 0;
  for (const auto& [table, held] : l2_bytes_) {
    if (ModelOf(table) != model.model) bytes += held;
  }
  for (const Building& table : model.tables) {
    if (table.l3 == nullptr) bytes += table.l2_bytes;
  }
  return bytes;
}

// A table that should have given bytes up may have failed to: what it still holds is not there.
void ServedModels::FitL2(BuildingModel& model) const {
  if (parts_.l2->tier == nullptr) return;
  const uint64_t bytes_max = parts_.config->l2.bytes_max;
  const uint64_t bytes_left = bytes_max - std::min(bytes_max, L2BytesOfOthers(model));
  std::vector<Building*> fresh;
  std::vector<BudgetRequest> requests;
  uint64_t wanted = 0;
  for (Building& table : model.tables) {
    if (table.l3 == nullptr) continue;
    fresh.push_back(&table);
    requests.push_back(RequestFor(table));
    wanted += table.l2_bytes;
  }
  if (wanted <= bytes_left) return;
  const std::vector<uint64_t> parts = DivideBudget(bytes_left, requests);
  for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->l2_bytes = parts[i];
}

}  // namespace hps
