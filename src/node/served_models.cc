#include "node/served_models.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "base/public_message.h"
#include "network/onnx/network_signature.h"
#include "node/model_files.h"
#include "node/preload.h"
#include "types/names.h"

namespace hps {
namespace {

// Attempts to pin a consistent set of tables while imports commit.
constexpr int kPinRoundsMax = 16;

absl::Status AboutModel(const std::string& model, const absl::Status& status) {
  return Reworded(status, absl::StrCat("model '", model, "': ", status.message()));
}

// What is wrong with the file of `[[model]] dense`. Clients may see the file's name, not its
// folder.
absl::Status AboutDense(const ModelConfig& config, const absl::Status& status) {
  std::string why(status.message());
  if (why.starts_with(config.dense + ": ")) why.erase(0, config.dense.size() + 2);
  return Public(absl::Status(
      status.code(),
      absl::StrCat("[[model]] dense = \"", std::filesystem::path(config.dense).filename().string(),
                   "\": ", why)));
}

absl::Status NoSuchModel(const std::string& model, const std::vector<std::string>& known) {
  return Public(absl::NotFoundError(
      absl::StrCat("the store has no model '", model, "'", NearestNameHint(model, known))));
}

}  // namespace

absl::StatusOr<ServedModels::ModelErrors> ServedModels::Switch(Missing missing) {
  ModelErrors errors;
  std::vector<std::string> switched;
  {
    MutexLock change(change_mutex_);
    HPS_ASSIGN_OR_RETURN(errors, SwitchIn({.missing = missing}, switched));
  }
  errors.merge(TellFollowers(switched));
  return errors;
}

absl::Status ServedModels::Load(const std::string& model) {
  {
    MutexLock change(change_mutex_);
    HPS_RETURN_IF_ERROR(LoadIn(model));
  }
  const ModelErrors errors = TellFollowers({&model, 1});
  return errors.empty() ? absl::OkStatus() : errors.begin()->second;
}

absl::Status ServedModels::Unload(const std::string& model) {
  {
    MutexLock change(change_mutex_);
    HPS_RETURN_IF_ERROR(UnloadIn(model));
  }
  TellFollowers({&model, 1});
  return absl::OkStatus();
}

std::shared_ptr<void> ServedModels::Follow(const std::string& model,
                                           std::function<absl::Status()> on_switch) {
  const std::shared_ptr<Follower> follower(
      new Follower{.model = model, .mutex = {}, .on_switch = std::move(on_switch)});
  MutexLock lock(mutex_);
  std::erase_if(followers_, [](const auto& other) { return other.expired(); });
  followers_.push_back(follower);
  return {follower.get(), [follower](void*) {
            MutexLock calling(follower->mutex);
            follower->on_switch = nullptr;
          }};
}

// What they do may take seconds, as the compilation of a network, and another model can switch
// meanwhile. Of two switches of one model at a time, the first may report what became of the
// second.
ServedModels::ModelErrors ServedModels::TellFollowers(std::span<const std::string> models) {
  std::vector<std::shared_ptr<Follower>> followers;
  {
    MutexLock lock(mutex_);
    for (const std::weak_ptr<Follower>& known : followers_) {
      std::shared_ptr<Follower> follower = known.lock();
      if (follower != nullptr &&
          std::find(models.begin(), models.end(), follower->model) != models.end()) {
        followers.push_back(std::move(follower));
      }
    }
  }
  ModelErrors errors;
  for (const auto& follower : followers) {
    MutexLock calling(follower->mutex);
    if (follower->on_switch == nullptr) continue;
    const absl::Status status = Try(follower->on_switch);
    if (!status.ok()) errors.emplace(follower->model, status);
  }
  return errors;
}

absl::Status ServedModels::LoadIn(const std::string& model) {
  HPS_ASSIGN_OR_RETURN(const std::vector<DesiredModel> desired, DesiredModels(Missing::kIgnored));
  std::vector<std::string> names;
  for (const DesiredModel& candidate : desired) names.push_back(candidate.model);
  if (std::find(names.begin(), names.end(), model) == names.end()) return NoSuchModel(model, names);
  bool was_unloaded = false;
  {
    MutexLock lock(mutex_);
    was_unloaded = unloaded_.erase(model) != 0;
  }
  std::vector<std::string> switched;
  const absl::StatusOr<ModelErrors> errors = SwitchIn({.only = &model}, switched);
  if (errors.ok() && errors->empty()) return absl::OkStatus();
  if (was_unloaded) {
    MutexLock lock(mutex_);
    unloaded_.insert(model);
  }
  return errors.ok() ? errors->begin()->second : errors.status();
}

absl::Status ServedModels::UnloadIn(const std::string& model) {
  const std::vector<std::string> known = KnownModels(StoredModels());
  if (std::find(known.begin(), known.end(), model) == known.end()) return NoSuchModel(model, known);
  {
    MutexLock lock(mutex_);
    unloaded_.insert(model);
  }
  std::vector<std::string> switched;
  return SwitchIn({.only = &model}, switched).status();
}

// Adds the models that have switched to `switched`.
absl::StatusOr<ServedModels::ModelErrors> ServedModels::SwitchIn(
    const Scope& scope, std::vector<std::string>& switched) {
  ModelErrors errors;
  HPS_ASSIGN_OR_RETURN(std::vector<ModelBuild> models, PinModels(scope, errors));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> waiting, WaitingTables(models));
  // What models leave that lose all tables is free for the others.
  const auto order = [this](const ModelBuild& model) {
    const LiveModel* state = parts_.registry->Find(model.model);
    const bool is_served = state != nullptr && !state->Tables().empty();
    return model.tables.empty() ? 0 : is_served ? 1 : 2;
  };
  std::stable_sort(models.begin(), models.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  const auto first_new = std::find_if(models.begin(), models.end(),
                                      [&](const ModelBuild& model) { return order(model) == 2; });
  for (auto model = models.begin(); model != first_new; ++model)
    ServeTogether({model, 1}, {}, errors, switched);
  ServeTogether({first_new, models.end()}, waiting, errors, switched);
  MutexLock lock(mutex_);
  std::erase_if(errors_, [&](const auto& entry) { return scope.Has(entry.first); });
  errors_.insert(errors.begin(), errors.end());
  return errors;
}

// Gives the new tables of the models budgets, and switches the models one after the other.
void ServedModels::ServeTogether(std::span<ModelBuild> models, std::span<const TableInfo> waiting,
                                 ModelErrors& errors, std::vector<std::string>& switched) {
  DivideL2(models, waiting);
  DivideL1(models, waiting);
  for (ModelBuild& model : models) {
    if (!model.changed) continue;
    const absl::Status status = Serve(model);
    if (status.ok()) {
      switched.push_back(model.model);
      continue;
    }
    model.tables.clear();  // what they have of level 1 is free for the next model
    errors[model.model] = AboutModel(model.model, status);
  }
}

absl::StatusOr<std::vector<ServedModels::DesiredModel>> ServedModels::DesiredModelsIn(
    const Scope& scope) const {
  HPS_ASSIGN_OR_RETURN(std::vector<DesiredModel> desired, DesiredModels(scope.missing));
  MutexLock lock(mutex_);
  std::erase_if(desired, [&](const DesiredModel& model) HPS_REQUIRES(mutex_) {
    return !scope.Has(model.model) || unloaded_.contains(model.model);
  });
  return desired;
}

absl::StatusOr<std::vector<ServedModels::DesiredModel>> ServedModels::DesiredModels(
    Missing missing) const {
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, parts_.durable->Tables());
  std::vector<DesiredModel> all;
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
  std::vector<DesiredModel> configured;
  for (const ModelConfig& config : parts_.config->model) {
    const auto found = std::find(names.begin(), names.end(), config.name);
    if (found == names.end()) {
      if (missing == Missing::kError) return NoSuchModel(config.name, names);
      continue;
    }
    DesiredModel& desired = all[static_cast<size_t>(found - names.begin())];
    HPS_RETURN_IF_ERROR(ApplyDeclaredOrder(config, missing, desired));
    configured.push_back(std::move(desired));
  }
  return configured;
}

// Sorts the tables as the configuration does, and removes tables that it does not name.
absl::Status ServedModels::ApplyDeclaredOrder(const ModelConfig& config, Missing missing,
                                              DesiredModel& desired) const {
  std::vector<std::string> names;
  for (const TableInfo& table : desired.tables)
    names.push_back(table.spec.name.substr(desired.model.size() + 1));
  const auto check = [&](const std::string& name) {
    if (missing == Missing::kIgnored || std::find(names.begin(), names.end(), name) != names.end())
      return absl::OkStatus();
    return Public(
        absl::NotFoundError(absl::StrCat("model '", config.name, "' has no table '", name,
                                         "' in the store", NearestNameHint(name, names))));
  };
  for (const TableConfig& table : config.table) HPS_RETURN_IF_ERROR(check(table.name));
  if (config.tables.empty()) return absl::OkStatus();
  std::vector<TableInfo> ordered;
  for (const std::string& name : config.tables) {
    HPS_RETURN_IF_ERROR(check(name));
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) continue;
    ordered.push_back(desired.tables[static_cast<size_t>(found - names.begin())]);
  }
  desired.tables = std::move(ordered);
  return absl::OkStatus();
}

bool ServedModels::SameTables(const DesiredModel& a, const DesiredModel& b) {
  return a.model == b.model &&
         std::equal(a.tables.begin(), a.tables.end(), b.tables.begin(), b.tables.end(),
                    [](const auto& s, const auto& t) { return s.incarnation == t.incarnation; });
}

// Pins the tables of each model as of one moment. If an import committed between two of them, the
// model would be a mix of two imports; so it is pinned again if the catalog changed meanwhile.
absl::StatusOr<std::vector<ServedModels::ModelBuild>> ServedModels::PinModels(const Scope& scope,
                                                                              ModelErrors& errors) {
  HPS_ASSIGN_OR_RETURN(std::vector<DesiredModel> desired, DesiredModelsIn(scope));
  std::vector<ModelBuild> pinned;
  std::set<std::string> settled;
  for (int round = 0; round < kPinRoundsMax; ++round) {
    std::map<std::string, absl::StatusOr<ModelBuild>> tried;
    for (const DesiredModel& model : desired) {
      if (!settled.contains(model.model)) tried.emplace(model.model, PinModel(model));
    }
    if (tried.empty()) break;
    HPS_ASSIGN_OR_RETURN(std::vector<DesiredModel> now, DesiredModelsIn(scope));
    for (const DesiredModel& model : desired) {
      const auto found = tried.find(model.model);
      const bool unchanged = std::any_of(now.begin(), now.end(), [&](const DesiredModel& other) {
        return SameTables(model, other);
      });
      if (found == tried.end() || !unchanged) continue;
      settled.insert(model.model);
      if (found->second.ok()) {
        pinned.push_back(*std::move(found->second));
      } else {
        errors[model.model] = AboutModel(model.model, found->second.status());
      }
    }
    desired = std::move(now);
  }
  for (const DesiredModel& model : desired) {
    if (settled.contains(model.model)) continue;
    errors[model.model] = AboutModel(
        model.model,
        Public(absl::UnavailableError("its tables keep being imported or dropped; try again")));
  }
  for (ModelBuild& model : EmptiedModels(scope, desired)) {
    if (!settled.contains(model.model)) pinned.push_back(std::move(model));
  }
  return pinned;
}

// The models whose tables were all dropped or unloaded; they switch to no tables.
std::vector<ServedModels::ModelBuild> ServedModels::EmptiedModels(
    const Scope& scope, const std::vector<DesiredModel>& desired) const {
  std::vector<ModelBuild> emptied;
  MutexLock lock(mutex_);
  for (const LiveModel* live : parts_.registry->models()) {
    const std::string& name = live->name();
    const bool is_wanted =
        std::any_of(desired.begin(), desired.end(),
                    [&](const DesiredModel& model) { return model.model == name; });
    if (is_wanted || !scope.Has(name) || live->Tables().empty()) continue;
    emptied.push_back(
        {.model = name, .tables = {}, .changed = true, .unload = unloaded_.contains(name)});
  }
  return emptied;
}

absl::StatusOr<ServedModels::ModelBuild> ServedModels::PinModel(const DesiredModel& desired) {
  const LiveModel* state = parts_.registry->Find(desired.model);
  ModelBuild building = {.model = desired.model, .version = 1};
  building.changed = state == nullptr || state->Tables().size() != desired.tables.size();
  for (const TableInfo& info : desired.tables) {
    TableBuild& table = building.tables.emplace_back();
    building.version = std::max(building.version, info.model_version);
    std::shared_ptr<LiveTable> served =
        state == nullptr ? nullptr : state->CurrentTable(info.spec.name);
    if (served != nullptr && served->incarnation() == info.incarnation &&
        served->l3().IsCurrent()) {
      table.l2_bytes = l2_bytes_[info.spec.name];
      table.served = std::move(served);
      continue;
    }
    building.changed = true;
    HPS_ASSIGN_OR_RETURN(table.l3, OpenIncarnation(info.spec.name, info.incarnation));
  }
  HPS_ASSIGN_OR_RETURN(building.network, NetworkOf(desired));
  const std::shared_ptr<const ModelNetwork> live = state == nullptr ? nullptr : state->Network();
  const auto digest = [](const auto& network) {
    return network == nullptr ? std::string() : network->digest;
  };
  if (digest(building.network) == digest(live)) {
    building.network = live;
  } else {
    building.changed = true;
  }
  return building;
}

// The network that the model should have: that of the configuration, or the imported one. It fits
// the tables.
absl::StatusOr<std::shared_ptr<const ModelNetwork>> ServedModels::NetworkOf(
    const DesiredModel& desired) const {
  HPS_ASSIGN_OR_RETURN(std::optional<ModelNetwork> network, parts_.durable->Network(desired.model));
  std::vector<TableSpec> specs;
  for (const TableInfo& table : desired.tables) specs.push_back(table.spec);
  for (const ModelConfig& config : parts_.config->model) {
    if (config.name != desired.model || config.dense.empty()) continue;
    absl::StatusOr<ModelNetwork> instead =
        ReadNetworkInstead(config.dense, network.has_value() ? &*network : nullptr, specs);
    absl::Status taken = instead.status();
    if (taken.ok()) taken = SignatureOf(*instead, specs).status();
    if (!taken.ok()) return AboutDense(config, taken);
    network = *std::move(instead);
  }
  if (!network.has_value()) return std::shared_ptr<const ModelNetwork>();
  const absl::Status fits = SignatureOf(*network, specs).status();
  if (!fits.ok()) return Public(fits);
  return std::make_shared<const ModelNetwork>(*std::move(network));
}

absl::StatusOr<std::unique_ptr<DurableTable>> ServedModels::OpenIncarnation(
    const std::string& table, Incarnation incarnation) const {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<DurableTable> opened, parts_.durable->OpenTable(table));
  if (opened->incarnation() == incarnation) return opened;
  return Public(absl::UnavailableError(
      absl::StrCat("table '", table, "' was imported again while it was being opened")));
}

// Opens the table's rows in one part. Nodes share those of a table with an import id, where the
// part is Redis. REQUIRES: nobody writes the table.
absl::StatusOr<L2Part::Opened> ServedModels::OpenL2Part(const L2PartTier& part,
                                                        const TableBuild& table) const {
  const TableInfo info = table.l3->Info();
  L2Part::Opened opened = {.tier = part.tier.get(), .name = part.name};
  if (part.open_shared != nullptr && !info.import_id.empty()) {
    const bool writes_changes = parts_.config->update.shared_group.empty();
    HPS_ASSIGN_OR_RETURN(OpenedSharedTable shared,
                         part.open_shared({info, table.l3->UnorderedHashes()}, writes_changes));
    opened.table = std::move(shared.table);
    opened.shared = shared.shared;
  } else {
    HPS_ASSIGN_OR_RETURN(opened.table,
                         part.tier->OpenTable(info.spec, info.incarnation, table.l2_bytes));
  }
  return opened;
}

std::vector<L2Part::Opened> ServedModels::OpenL2(TableBuild& table) const {
  std::vector<L2Part::Opened> l2;
  if (!WantsL2(table.l3->spec().name)) return l2;
  for (const L2PartTier& part : parts_.l2->parts) {
    if (part.bytes_for != nullptr && table.l2_bytes == 0) continue;  // DivideL2 has said so
    absl::StatusOr<L2Part::Opened> opened = OpenL2Part(part, table);
    if (opened.ok()) {
      l2.push_back(*std::move(opened));
      continue;
    }
    if (part.bytes_for != nullptr) table.l2_bytes = 0;
    LogWarning(absl::StrCat("table '", table.l3->spec().name, "' is served without ",
                            std::string(part.name), ": ", opened.status().ToString()));
  }
  return l2;
}

std::shared_ptr<LiveTable> ServedModels::MakeServed(TableBuild& table) const {
  LiveTable::Parts parts;
  parts.hit_rate_threshold = parts_.config->lookup.hit_rate_threshold;
  parts.l2 = OpenL2(table);
  parts.l3 = std::move(table.l3);
  auto served = std::make_shared<LiveTable>(std::move(parts));
  return parts_.l1 == nullptr ? served : parts_.l1->Tracked(std::move(served));
}

void ServedModels::Preload(LiveTable& table) const {
  const absl::StatusOr<uint64_t> rows =
      PreloadTable(table, parts_.config->l2.preload, [this] { return MayPreload(); });
  if (rows.ok()) return;
  // Not an error: rows that were not preloaded come from level 3.
  LogWarning(absl::StrCat("preload of table '", table.spec().name,
                          "' ended early: ", rows.status().ToString()));
}

void ServedModels::StopPreloading() {
  stop_preloading_.store(true, std::memory_order_relaxed);
  if (parts_.l1 != nullptr) parts_.l1->StopFilling();
}

// Gives the table its level 1 budget, if any, and the hot keys of the table that it replaces.
void ServedModels::AdoptL1(const TableBuild& table) const {
  if (parts_.l1 == nullptr || table.l1_bytes == 0) return;
  const std::string& name = table.served->spec().name;
  const LiveModel* state = parts_.registry->Find(ModelOf(name));
  const std::shared_ptr<LiveTable> former = state == nullptr ? nullptr : state->CurrentTable(name);
  const TableConfig* overrides = OverrideOf(name);
  parts_.l1->Adopt({.table = table.served,
                    .former = former.get(),
                    .bytes = table.l1_bytes,
                    .hot_keys_path = overrides == nullptr ? "" : overrides->l1_hot_keys});
}

// Creates and fills the caches of a model's new tables, then switches the model to its tables.
absl::Status ServedModels::Serve(ModelBuild& building) {
  HPS_ASSIGN_OR_RETURN(
      const SwitchLease lease,
      parts_.registry->BlockWriters(building.model, DeadlineAfter(RealClock(), kWriterWaitMax)));
  std::vector<std::shared_ptr<LiveTable>> tables;
  for (TableBuild& table : building.tables) {
    if (table.l3 != nullptr) {
      table.served = MakeServed(table);
      Preload(*table.served);
      AdoptL1(table);
    }
    tables.push_back(table.served);
  }
  LiveModel& state = parts_.registry->FindOrAdd(building.model);
  if (building.unload) {
    state.Unload();
  } else {
    HPS_RETURN_IF_ERROR(state.Publish(std::move(tables), building.version, building.network));
  }
  std::erase_if(l2_bytes_,
                [&](const auto& entry) { return ModelOf(entry.first) == building.model; });
  for (const TableBuild& table : building.tables)
    l2_bytes_[table.served->spec().name] = table.l2_bytes;
  return absl::OkStatus();
}

absl::StatusOr<LiveModel*> ServedModels::LoadedModel(const std::string& model) {
  LiveModel* state = parts_.registry->Find(model);
  if (state != nullptr && !state->Tables().empty()) return state;
  {
    MutexLock lock(mutex_);
    if (unloaded_.contains(model)) {
      return Public(absl::UnavailableError(
          absl::StrCat("model '", model, "' was unloaded; load it to use it again")));
    }
    if (const auto failed = errors_.find(model); failed != errors_.end()) return failed->second;
  }
  std::vector<std::string> known;
  HPS_ASSIGN_OR_RETURN(const std::vector<DesiredModel> desired, DesiredModels(Missing::kIgnored));
  for (const DesiredModel& candidate : desired) {
    if (!candidate.tables.empty()) known.push_back(candidate.model);
  }
  if (std::find(known.begin(), known.end(), model) == known.end()) return NoSuchModel(model, known);
  return Public(absl::UnavailableError(absl::StrCat("model '", model, "' is not loaded yet")));
}

absl::StatusOr<std::unique_ptr<LookupSession>> ServedModels::NewSession(
    const std::string& model, const SessionOptions& options, SessionResources resources) {
  HPS_ASSIGN_OR_RETURN(LiveModel* const state, LoadedModel(model));
  return parts_.sessions->NewSession(*state, options, std::move(resources));
}

absl::StatusOr<SnapshotPin> ServedModels::Pin(const std::string& model) {
  HPS_ASSIGN_OR_RETURN(LiveModel* const live, LoadedModel(model));
  return live->PinCurrent();
}

bool ServedModels::AwaitReclaimed(const std::string& model, Deadline deadline) {
  LiveModel* const state = parts_.registry->Find(model);
  return state == nullptr || state->AwaitReclaimed(deadline);
}

// The models of the store that the configuration selects, and whether they have tables.
std::map<std::string, bool> ServedModels::StoredModels() const {
  std::map<std::string, bool> models;
  if (const auto desired = DesiredModels(Missing::kIgnored); desired.ok()) {
    for (const DesiredModel& model : *desired) models[model.model] = !model.tables.empty();
  }
  return models;
}

// `stored` and all models that have been loaded before.
std::vector<std::string> ServedModels::KnownModels(
    const std::map<std::string, bool>& stored) const {
  std::set<std::string> names;
  for (const auto& [name, has_tables] : stored) names.insert(name);
  for (const LiveModel* live : parts_.registry->models()) names.insert(live->name());
  return {names.begin(), names.end()};
}

std::vector<ModelInfo> ServedModels::List() const {
  std::vector<ModelInfo> list;
  const std::map<std::string, bool> stored = StoredModels();
  for (std::string& name : KnownModels(stored)) list.push_back({.name = std::move(name)});
  MutexLock lock(mutex_);
  for (ModelInfo& model : list) {
    const LiveModel* const live = parts_.registry->Find(model.name);
    if (live != nullptr) model.version = live->version();
    const auto failed = errors_.find(model.name);
    if (failed != errors_.end()) model.load_status = failed->second;
    if (live != nullptr && !live->Tables().empty()) {
      model.condition = ModelCondition::kLoaded;
    } else if (unloaded_.contains(model.name)) {
      model.condition = ModelCondition::kUnloaded;
    } else if (failed != errors_.end()) {
      model.condition = ModelCondition::kFailed;
    } else if (const auto found = stored.find(model.name);
               live != nullptr && (found == stored.end() || !found->second)) {
      model.condition = ModelCondition::kDropped;
    }
  }
  return list;
}

bool ServedModels::HasTables() const {
  const std::vector<LiveModel*> models = parts_.registry->models();
  return std::any_of(models.begin(), models.end(),
                     [](const LiveModel* model) { return !model->Tables().empty(); });
}

std::vector<TableStatistics> ServedModels::Statistics() const {
  std::vector<TableStatistics> all;
  for (const LiveModel* live : parts_.registry->models()) {
    std::vector<TableStatistics> tables = live->Statistics();
    std::move(tables.begin(), tables.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace hps
