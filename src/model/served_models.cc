#include "model/served_models.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/names.h"
#include "hps/units.h"
#include "model/budget.h"
#include "model/preload.h"

namespace hps {
namespace {

// Imports that commit while tables are being pinned make the round begin anew.
constexpr int kPinRoundsMax = 16;

std::string ModelOf(const std::string& table) { return table.substr(0, table.find('/')); }

absl::Status NoSuchModel(const std::string& model, const std::vector<std::string>& known) {
  return absl::NotFoundError(
      absl::StrCat("the store has no model '", model, "'", DidYouMean(model, known)));
}

}  // namespace

absl::Status ServedModels::Switch(Missing missing) {
  MutexLock change(change_mutex_);
  HPS_ASSIGN_OR_RETURN(std::vector<BuildingModel> models, PinTables(missing));
  std::vector<BuildingModel*> changed;
  for (BuildingModel& model : models) {
    if (model.changed) changed.push_back(&model);
  }
  absl::Status result;
  const bool fit_together = DivideL2(changed).ok();
  for (BuildingModel* model : changed) {
    // Together they may not fit where one of them does.
    absl::Status status = fit_together ? absl::OkStatus() : DivideL2({model});
    if (status.ok()) status = Serve(*model);
    if (!status.ok() && result.ok()) {
      result = absl::Status(status.code(),
                            absl::StrCat("model '", model->model, "': ", status.message()));
    }
  }
  return result;
}

absl::StatusOr<std::vector<ServedModels::Wanted>> ServedModels::WantedModels(
    Missing missing) const {
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, parts_.durable->Tables());
  std::vector<Wanted> all;
  std::vector<std::string> names;
  for (const TableInfo& table : tables) {
    const std::string model = ModelOf(table.spec.name);
    auto found = std::find(names.begin(), names.end(), model);
    if (found == names.end()) {
      found = names.insert(names.end(), model);
      all.push_back({.model = model, .tables = {}});
    }
    all[static_cast<size_t>(found - names.begin())].tables.push_back(table);
  }
  if (parts_.config->model.empty()) return all;
  std::vector<Wanted> configured;
  for (const ModelConfig& config : parts_.config->model) {
    const auto found = std::find(names.begin(), names.end(), config.name);
    if (found == names.end()) {
      if (missing == Missing::kError) return NoSuchModel(config.name, names);
      continue;
    }
    Wanted& wanted = all[static_cast<size_t>(found - names.begin())];
    HPS_RETURN_IF_ERROR(ApplyDeclaredOrder(config, missing, wanted));
    configured.push_back(std::move(wanted));
  }
  return configured;
}

// Puts the tables into the order of the configuration and drops those that it does not name.
absl::Status ServedModels::ApplyDeclaredOrder(const ModelConfig& config, Missing missing,
                                              Wanted& wanted) const {
  std::vector<std::string> names;
  for (const TableInfo& table : wanted.tables)
    names.push_back(table.spec.name.substr(wanted.model.size() + 1));
  const auto check = [&](const std::string& name) {
    if (missing == Missing::kIgnored || std::find(names.begin(), names.end(), name) != names.end())
      return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("model '", config.name, "' has no table '", name,
                                            "' in the store", DidYouMean(name, names)));
  };
  for (const TableConfig& table : config.table) HPS_RETURN_IF_ERROR(check(table.name));
  if (config.tables.empty()) return absl::OkStatus();
  std::vector<TableInfo> ordered;
  for (const std::string& name : config.tables) {
    HPS_RETURN_IF_ERROR(check(name));
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) continue;
    ordered.push_back(wanted.tables[static_cast<size_t>(found - names.begin())]);
  }
  wanted.tables = std::move(ordered);
  return absl::OkStatus();
}

// Pins tables of one moment: had an import committed between two of them, a model would be a mix
// of two imports.
absl::StatusOr<std::vector<ServedModels::BuildingModel>> ServedModels::PinTables(Missing missing) {
  for (int round = 0; round < kPinRoundsMax; ++round) {
    HPS_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, WantedModels(missing));
    std::vector<BuildingModel> models;
    bool same_moment = true;
    for (const Wanted& model : wanted) {
      HPS_ASSIGN_OR_RETURN(const bool pinned, PinWanted(model, models.emplace_back()));
      same_moment = same_moment && pinned;
    }
    HPS_ASSIGN_OR_RETURN(const std::vector<Wanted> still_wanted, WantedModels(missing));
    same_moment =
        same_moment &&
        std::equal(wanted.begin(), wanted.end(), still_wanted.begin(), still_wanted.end(),
                   [](const Wanted& a, const Wanted& b) {
                     return a.model == b.model &&
                            std::equal(a.tables.begin(), a.tables.end(), b.tables.begin(),
                                       b.tables.end(), [](const TableInfo& s, const TableInfo& t) {
                                         return s.incarnation == t.incarnation;
                                       });
                   });
    if (!same_moment) continue;
    // Models that have lost all their tables switch to none.
    MutexLock lock(mutex_);
    for (const auto& [name, state] : models_) {
      const bool is_wanted =
          std::any_of(wanted.begin(), wanted.end(),
                      [&, &name = name](const Wanted& model) { return model.model == name; });
      if (!is_wanted) models.push_back({.model = name, .tables = {}, .changed = true});
    }
    return models;
  }
  return absl::UnavailableError("the store's tables keep changing; try again");
}

// False when a table has changed since it was listed.
absl::StatusOr<bool> ServedModels::PinWanted(const Wanted& wanted, BuildingModel& building) {
  const ModelState* state = FindModel(wanted.model);
  building.model = wanted.model;
  building.changed = state == nullptr || state->Tables().size() != wanted.tables.size();
  for (const TableInfo& info : wanted.tables) {
    Building& table = building.tables.emplace_back();
    std::shared_ptr<ServedTable> served =
        state == nullptr ? nullptr : state->FindTable(info.spec.name);
    if (served != nullptr && served->incarnation() == info.incarnation) {
      table.l2_bytes = l2_bytes_[info.spec.name];
      table.served = std::move(served);
      continue;
    }
    building.changed = true;
    absl::StatusOr<std::unique_ptr<DurableTable>> opened =
        parts_.durable->OpenTable(info.spec.name);
    if (absl::IsNotFound(opened.status())) return false;
    HPS_RETURN_IF_ERROR(opened.status());
    table.l3 = *std::move(opened);
    if (table.l3->incarnation() != info.incarnation) return false;
  }
  return true;
}

const TableConfig* ServedModels::OverrideOf(const std::string& table) const {
  for (const ModelConfig& model : parts_.config->model) {
    for (const TableConfig& override_of_table : model.table) {
      if (model.name + "/" + override_of_table.name == table) return &override_of_table;
    }
  }
  return nullptr;
}

// Gives the new tables of `models` what the tables that stay have left.
absl::Status ServedModels::DivideL2(std::vector<BuildingModel*> models) {
  if (parts_.l2->tier == nullptr) return absl::OkStatus();
  uint64_t bytes_left = parts_.config->l2.bytes_max;
  std::vector<BudgetRequest> requests;
  std::vector<Building*> tables;
  std::map<std::string, uint64_t> staying = l2_bytes_;
  for (const BuildingModel* model : models) {
    std::erase_if(staying, [&](const auto& entry) { return ModelOf(entry.first) == model->model; });
    for (const Building& table : model->tables) {
      if (table.l3 == nullptr) staying[table.served->spec().name] = table.l2_bytes;
    }
  }
  for (const auto& [table, bytes] : staying) bytes_left -= std::min(bytes, bytes_left);
  for (BuildingModel* model : models) {
    for (Building& table : model->tables) {
      if (table.l3 == nullptr) continue;
      const TableSpec& spec = table.l3->spec();
      const TableConfig* override_of_table = OverrideOf(spec.name);
      BudgetRequest& request = requests.emplace_back();
      request.table = spec.name;
      request.least_bytes = parts_.l2->bytes_for(1, spec.row_bytes());
      request.needed_bytes = std::max(
          request.least_bytes, parts_.l2->bytes_for(table.l3->Info().row_count, spec.row_bytes()));
      if (override_of_table != nullptr) {
        request.share = override_of_table->l2_share;
        request.fixed_bytes = override_of_table->l2_bytes;
      }
      tables.push_back(&table);
    }
  }
  HPS_ASSIGN_OR_RETURN(const std::vector<uint64_t> bytes, DivideBudget(bytes_left, requests));
  for (size_t i = 0; i < tables.size(); ++i) tables[i]->l2_bytes = bytes[i];
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ServedTable>> ServedModels::MakeServed(Building& table) const {
  ServedTable::Parts parts;
  parts.hit_rate_threshold = parts_.config->lookup.hit_rate_threshold;
  if (parts_.l2->tier != nullptr && table.l2_bytes != 0) {
    HPS_ASSIGN_OR_RETURN(parts.l2, parts_.l2->tier->OpenTable(
                                       table.l3->spec(), table.l3->incarnation(), table.l2_bytes));
  }
  parts.l3 = std::move(table.l3);
  return ServedTable::Create(std::move(parts));
}

void ServedModels::Preload(const BuildingModel& building) const {
  for (const Building& table : building.tables) {
    const absl::StatusOr<uint64_t> rows = PreloadTable(*table.served, parts_.config->l2.preload);
    if (rows.ok()) continue;
    // Level 3 answers in its place, or says that the row is lost.
    LogWarning(absl::StrCat("preload of table ", table.served->spec().name,
                            " ended early: ", rows.status().ToString()));
  }
}

// Makes the levels of a model's new tables, fills them, and switches the model to its tables.
absl::Status ServedModels::Serve(BuildingModel& building) {
  std::vector<std::shared_ptr<ServedTable>> tables;
  BuildingModel fresh = {.model = building.model};
  for (Building& table : building.tables) {
    if (table.l3 != nullptr) {
      HPS_ASSIGN_OR_RETURN(table.served, MakeServed(table));
      fresh.tables.push_back({.served = table.served});
    }
    tables.push_back(table.served);
  }
  Preload(fresh);
  HPS_RETURN_IF_ERROR(FindOrAddModel(building.model).Publish(std::move(tables)));
  std::erase_if(l2_bytes_,
                [&](const auto& entry) { return ModelOf(entry.first) == building.model; });
  for (const Building& table : building.tables)
    l2_bytes_[table.served->spec().name] = table.l2_bytes;
  return absl::OkStatus();
}

ModelState* ServedModels::FindModel(const std::string& model) const {
  MutexLock lock(mutex_);
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.get();
}

ModelState& ServedModels::FindOrAddModel(const std::string& model) {
  MutexLock lock(mutex_);
  std::unique_ptr<ModelState>& state = models_[model];
  if (state == nullptr) {
    state = std::make_unique<ModelState>(model, parts_.sessions->epoch_domain(), *parts_.reclaim);
  }
  return *state;
}

absl::StatusOr<std::unique_ptr<LookupSession>> ServedModels::NewSession(
    const std::string& model, const SessionOptions& options) {
  ModelState* state = FindModel(model);
  if (state != nullptr && !state->Tables().empty())
    return parts_.sessions->NewSession(*state, options);
  MutexLock lock(mutex_);
  std::vector<std::string> known;
  for (const auto& [name, other] : models_) {
    if (name != model) known.push_back(name);
  }
  return NoSuchModel(model, known);
}

std::vector<TableStatistics> ServedModels::Statistics() const {
  MutexLock lock(mutex_);
  std::vector<TableStatistics> all;
  for (const auto& [name, state] : models_) {
    std::vector<TableStatistics> tables = state->Statistics();
    std::move(tables.begin(), tables.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace hps
