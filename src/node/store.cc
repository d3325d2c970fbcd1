#include "hps/store.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/fork_join_team.h"
#include "base/free_memory.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "hps/model_import.h"
#include "import/export.h"
#include "import/import.h"
#include "import/import_plan.h"
#include "import/model_toml.h"
#include "import/split_files.h"
#include "inference/network_check.h"
#include "network/onnx/network_signature.h"
#include "node/auto_budgets.h"
#include "node/device_level.h"
#include "node/model_files.h"
#include "node/model_manager.h"
#include "node/open_store.h"
#include "node/served_models.h"
#include "node/tier_factory.h"
#include "node/update_stream.h"
#include "query/session_factory.h"
#include "serving/model_registry.h"
#include "tier/table_payload.h"
#include "types/names.h"
#include "types/row_convert.h"
#include "update/l1_refresh.h"
#include "update/update_service.h"

namespace hps {
namespace {

ImportOptions OptionsOf(const Config& config, const ImportRequest& request) {
  return {.spill_directory = config.store.path,
          .memory_bytes_max = request.memory_bytes_max,
          .threads = request.threads,
          .progress = request.progress,
          .update_start = request.update_start,
          .import_id = request.import_id};
}

// The plan of an import. A model's directory may have a model.toml, unless the tables are given.
absl::StatusOr<ImportPlan> PlanFiles(const Config& config, const ImportRequest& request,
                                     std::span<const TableSource> tables = {}) {
  const auto opener = [&config](const ImportRequest& from) {
    return OpenForeignStore(config, from);
  };
  const bool is_model = request.name.find('/') == std::string::npos && !request.memory.has_value();
  if (!is_model || !tables.empty()) return PlanImport(request, opener, tables);
  HPS_ASSIGN_OR_RETURN(std::optional<ModelFiles> files, ReadModelFiles(request.from));
  if (!files.has_value()) return PlanImport(request, opener);
  std::vector<TableSource> named;
  for (const std::string& name : files->tables) named.push_back({.name = name, .from = ""});
  HPS_ASSIGN_OR_RETURN(ImportPlan plan, PlanImport(request, opener, named));
  if (!files->network.has_value()) return plan;
  absl::Status taken = SignatureOf(*files->network, plan.specs()).status();
  if (taken.ok()) taken = CheckNetworkApart(*files->network);
  if (!taken.ok())
    return absl::Status(taken.code(), absl::StrCat(request.from, ": ", taken.message()));
  plan.network = std::move(files->network);
  return plan;
}

// Whether the network that the model has fits the tables that it will have after an import of
// tables alone. A network that can't be read, or that fits no more, does not prevent an import.
absl::Status CheckKeptNetwork(const DurableStore& store, const ImportPlan& plan) {
  if (plan.network.has_value() || plan.tables.empty()) return absl::OkStatus();
  const std::string model = plan.model();
  const absl::StatusOr<std::optional<ModelNetwork>> network = store.Network(model);
  const absl::StatusOr<std::vector<TableInfo>> all = store.Tables();
  if (!network.ok() || !network->has_value() || !all.ok()) return absl::OkStatus();
  std::vector<TableSpec> before;
  for (const TableInfo& table : *all)
    if (ModelOf(table.spec.name) == model) before.push_back(table.spec);
  std::vector<TableSpec> after = plan.specs();
  for (const TableSpec& spec : before) {
    const bool is_replaced =
        std::any_of(after.begin(), after.end(),
                    [&](const TableSpec& imported) { return imported.name == spec.name; });
    if (!is_replaced) after.push_back(spec);
  }
  const absl::Status fits = SignatureOf(**network, after).status();
  if (fits.ok() || !SignatureOf(**network, before).ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the dense network of model '", model, "' does not fit the tables that it would have: ",
      fits.message(), "; import the model with a network, or drop it first"));
}

// As above, for a store that may not be there or that another process may have open.
absl::Status CheckKeptNetwork(const Config& config, const ImportPlan& plan) {
  const auto reader = OpenDurableStore(config.store, OpenMode::kReadOnly, StoreRole::kCommand);
  return reader.ok() ? CheckKeptNetwork(**reader, plan) : absl::OkStatus();
}

// Adds the source files of the table that the error is about, if it is about one table.
absl::Status WithSourceFiles(const absl::Status& status, const ImportPlan& plan) {
  const std::optional<std::string> table = TableOfError(status);
  for (const ImportSource& source : plan.tables) {
    if (source.spec.name == table)
      return absl::Status(status.code(), absl::StrCat(source.path, ": ", status.message()));
  }
  return status;
}

// The result of a switch for one model; `committed` says what it was switched for.
absl::Status StatusOfModel(const std::string& model, const std::string& committed,
                           const absl::StatusOr<ServedModels::ModelErrors>& errors) {
  absl::Status status = errors.status();
  if (errors.ok()) {
    LogErrors(*errors, model);
    const auto found = errors->find(model);
    if (found != errors->end()) status = found->second;
  }
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(committed, ", but is not served yet: ", status.message()));
}

absl::StatusOr<std::unique_ptr<WorkerPool>> MakePool(const char* name, uint32_t threads,
                                                     size_t queue_max) {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return WorkerPool::Create(
      {.name = name, .thread_count = threads == 0 ? cores : threads, .queue_max = queue_max});
}

// A table or a model.
absl::Status ValidateDroppedName(const std::string& name) {
  return ValidateTableName(name.find('/') == std::string::npos ? name + "/t" : name);
}

// NOT_FOUND if neither the store nor a pending import has the table or the model. Checked without
// opening the store for writing, because that changes files, and a misspelt name must not. If this
// check cannot tell, DropTable reports the error of the writer.
absl::Status CheckIsThere(const Config& config, const std::string& name) {
  const bool is_model = name.find('/') == std::string::npos;
  const auto has = [&](std::span<const TableInfo> tables) {
    return std::any_of(tables.begin(), tables.end(), [&](const TableInfo& info) {
      return (is_model ? ModelOf(info.spec.name) : info.spec.name) == name;
    });
  };
  const auto pending = PendingDurableImports(config.store);
  if (!pending.ok()) return absl::OkStatus();
  for (const PendingImport& import : *pending)
    if (!import.problem.empty() || has(import.tables)) return absl::OkStatus();
  const auto reader = OpenDurableStore(config.store, OpenMode::kReadOnly, StoreRole::kCommand);
  if (!reader.ok()) return absl::OkStatus();
  if (!is_model) {
    const absl::Status opened = (*reader)->OpenTable(name).status();
    return absl::IsNotFound(opened) ? opened : absl::OkStatus();
  }
  const auto tables = (*reader)->Tables();
  if (!tables.ok() || has(*tables)) return absl::OkStatus();
  std::vector<std::string> models;
  for (const TableInfo& info : *tables) models.push_back(ModelOf(info.spec.name));
  return absl::NotFoundError(absl::StrCat("store '", config.store.path, "' has no model '", name,
                                          "'", NearestNameHint(name, models)));
}

// What a store holds while it is open. Its members are destroyed in the reverse order of their
// declaration, which is the order that query/session_factory.h requires.
struct StoreResources {
  struct MemoryReturn {
    ~MemoryReturn() { ReturnFreeMemory(); }
  };

  MemoryReturn memory_return;  // when all the others are gone
  Config config;
  std::unique_ptr<DurableStore> durable;
  L2Tiers l2;
  std::unique_ptr<DeviceLevel> l1;
  std::unique_ptr<SessionFactory> sessions;
  std::unique_ptr<ModelRegistry> registry;
  std::unique_ptr<ServedModels> models;
  std::unique_ptr<ForkJoinPool> refresh_teams;
  std::unique_ptr<WorkerPool> promote_executor;
  std::unique_ptr<WorkerPool> fetch_executor;
  std::unique_ptr<UpdateService> updates;
  std::unique_ptr<StreamReader> stream;         // null without brokers
  std::unique_ptr<SharedWriter> shared_writer;  // null without a shared group
};

class OpenedStore final : public Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Open(const Config& config, OpenMode mode,
                                                     const DeviceCacheFactory& devices);

  explicit OpenedStore(std::shared_ptr<StoreResources> resources)
      : resources_(std::move(resources)),
        config_(resources_->config),
        durable_(*resources_->durable),
        models_(*resources_->models),
        manager_({.durable = resources_->durable.get(),
                  .l1 = resources_->l1.get(),
                  .sessions = resources_->sessions.get(),
                  .models = resources_->models.get(),
                  .updates = resources_->updates.get(),
                  .stream = resources_->stream.get(),
                  .device_keys_max = resources_->config.l1.call_keys_max,
                  .resources = resources_}) {}

  absl::StatusOr<std::vector<TableInfo>> Tables() const override { return durable_.Tables(); }
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const std::string& model, const SessionOptions& options) override {
    return manager_.NewSession(model, options);
  }
  absl::StatusOr<ImportReport> Import(const ImportRequest& request) override;
  absl::StatusOr<ExportReport> Export(const ExportRequest& request) override;
  absl::StatusOr<ExportReport> ExportModel(const ExportRequest& request);
  absl::Status Drop(const std::string& name) override;
  absl::Status Apply(const TableUpdate& update, std::chrono::nanoseconds timeout) override;
  absl::StatusOr<uint64_t> Snapshot(const std::string& name) override {
    return durable_.Snapshot(name);
  }
  absl::Status DrainPromotions(std::chrono::nanoseconds timeout) override {
    return resources_->sessions->DrainPromotions(timeout);
  }
  StoreStatistics Statistics() const override;
  ModelManager& models() override { return manager_; }

 private:
  const std::shared_ptr<StoreResources> resources_;
  const Config& config_;
  DurableStore& durable_;
  ServedModels& models_;
  StoreModelManager manager_;
};

// How a server opens the store: read-only where the file system is, if no setting writes. Errors:
// PERMISSION_DENIED, which names the setting.
absl::StatusOr<OpenMode> ServedMode(const Config& config) {
  struct statvfs disk {};
  const bool is_read_only =
      statvfs(config.store.path.c_str(), &disk) == 0 && (disk.f_flag & ST_RDONLY) != 0;
  if (!is_read_only) return OpenMode::kServe;
  const std::string where =
      absl::StrCat("store '", config.store.path, "': its file system is mounted read-only");
  const char* const setting = !config.update.brokers.empty() ? "[update] brokers"
                              : config.server.updates        ? "[server.security] updates"
                                                             : nullptr;
  if (setting != nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(
        where, ", and ", setting, " changes rows: remove this setting, or mount it for writing"));
  }
  LogWarning(where + ": it is served read-only until the server starts again");
  return OpenMode::kReadOnly;
}

absl::Status OpenLevels(OpenMode mode, const DeviceCacheFactory& devices, bool is_l1_auto,
                        StoreResources& store) {
  const Config& config = store.config;
  const StoreRole role = mode == OpenMode::kMaintain ? StoreRole::kCommand : StoreRole::kServer;
  OpenMode store_mode = mode;
  if (mode == OpenMode::kServe) {
    HPS_ASSIGN_OR_RETURN(store_mode, ServedMode(config));
  }
  HPS_ASSIGN_OR_RETURN(store.durable, OpenDurableStore(config.store, store_mode, role));
  HPS_ASSIGN_OR_RETURN(
      store.l1,
      DeviceLevel::Create(
          config, {.is_server = mode == OpenMode::kServe, .is_auto_budget = is_l1_auto}, devices));
  if (HasRedis(config.l2.kind)) HPS_RETURN_IF_ERROR(CheckRedisSecrets(config));
  // A reader's tables stay as they were opened, and follow no stream.
  const bool shares = store_mode != OpenMode::kReadOnly;
  HPS_ASSIGN_OR_RETURN(store.l2, MakeL2Tiers(config.l2, store.l1->l2_pinner(), shares));
  HPS_ASSIGN_OR_RETURN(store.promote_executor,
                       MakePool("hps-promote", config.threads.promote, kPromotionsQueuedMax));
  HPS_ASSIGN_OR_RETURN(store.fetch_executor,
                       MakePool("hps-fetch", config.threads.fetch, kFetchesQueuedMax));
  HPS_ASSIGN_OR_RETURN(store.sessions,
                       SessionFactory::Create({.fetch_executor = store.fetch_executor.get(),
                                               .promote_executor = store.promote_executor.get(),
                                               .caches = store.l1->devices().caches(),
                                               .healths = store.l1->devices().healths(),
                                               .timeout = config.lookup.timeout,
                                               .helper_spin = config.threads.helper_spin}));
  store.registry =
      std::make_unique<ModelRegistry>(store.sessions->epoch_domain(), *store.promote_executor);
  store.models =
      std::make_unique<ServedModels>(ServedModels::Parts{.config = &config,
                                                         .durable = store.durable.get(),
                                                         .l2 = &store.l2,
                                                         .l1 = store.l1.get(),
                                                         .sessions = store.sessions.get(),
                                                         .registry = store.registry.get()});
  const size_t fetch_threads = store.fetch_executor->thread_count();
  store.refresh_teams = std::make_unique<ForkJoinPool>(
      ForkJoinPool::Options{.executor = store.fetch_executor.get(),
                            .helpers_max = L1Refresh::Helpers(fetch_threads),
                            .spin = config.threads.helper_spin});
  HPS_ASSIGN_OR_RETURN(store.updates,
                       UpdateService::Create({.registry = store.registry.get(),
                                              .store = store.durable.get(),
                                              .refresh_interval = config.update.refresh_interval,
                                              .teams = store.refresh_teams.get()}));
  return absl::OkStatus();
}

absl::Status LoadModels(OpenMode mode, ServedModels& models) {
  if (mode == OpenMode::kMaintain) return absl::OkStatus();
  if (mode == OpenMode::kServe) return models.CheckConfigured();
  // A store that is being created lacks the configured tables until its first import.
  const auto errors = models.Switch(mode == OpenMode::kCreate ? ServedModels::Missing::kIgnored
                                                              : ServedModels::Missing::kError);
  if (!errors.ok() || !models.HasTables()) return FirstError(errors);
  LogErrors(*errors, "");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> OpenedStore::Open(const Config& config, OpenMode mode,
                                                         const DeviceCacheFactory& devices) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  auto resources = std::make_shared<StoreResources>();
  resources->config = ChooseBudgets(config, devices);
  HPS_RETURN_IF_ERROR(ValidateConfig(resources->config));  // tables' own budgets may be too much
  HPS_RETURN_IF_ERROR(OpenLevels(mode, devices, config.l1.bytes_max == kAutoBytes, *resources));
  HPS_RETURN_IF_ERROR(LoadModels(mode, *resources->models));
  if (mode != OpenMode::kReadOnly && mode != OpenMode::kMaintain) {
    HPS_ASSIGN_OR_RETURN(resources->stream,
                         StartUpdateStream(config, *resources->updates, *resources->durable));
    HPS_ASSIGN_OR_RETURN(resources->shared_writer, StartSharedWriter(config, *resources->registry));
  }
  return std::make_unique<OpenedStore>(std::move(resources));
}

absl::StatusOr<ImportReport> OpenedStore::Import(const ImportRequest& request) {
  HPS_ASSIGN_OR_RETURN(const ImportPlan plan, PlanFiles(config_, request));
  HPS_RETURN_IF_ERROR(CheckKeptNetwork(durable_, plan));
  const auto import = durable_.BeginImport(plan.specs());
  if (!import.ok()) return WithSourceFiles(import.status(), plan);
  HPS_ASSIGN_OR_RETURN(ImportReport report,
                       RunImport(plan, **import, OptionsOf(config_, request), nullptr));
  HPS_RETURN_IF_ERROR(StatusOfModel(ModelOf(request.name), "'" + request.name + "' is imported",
                                    models_.Switch(ServedModels::Missing::kIgnored)));
  return report;
}

// All tables of a model, its network and model.toml, which is written last.
absl::StatusOr<ExportReport> OpenedStore::ExportModel(const ExportRequest& request) {
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> all, durable_.Tables());
  HPS_ASSIGN_OR_RETURN(const std::optional<ModelNetwork> network, durable_.Network(request.name));
  std::vector<std::string> tables;
  std::vector<std::string> models;
  ExportReport sum;
  for (const TableInfo& table : all) {
    models.push_back(ModelOf(table.spec.name));
    if (models.back() == request.name)
      tables.push_back(table.spec.name.substr(request.name.size() + 1));
  }
  if (tables.empty()) {
    return absl::NotFoundError(absl::StrCat("the store has no model '", request.name, "'",
                                            NearestNameHint(request.name, models)));
  }
  for (const std::string& table : tables) {
    ExportRequest one = request;
    one.name = request.name + "/" + table;
    one.to = request.to + "/" + table;
    HPS_ASSIGN_OR_RETURN(const ExportReport report, Export(one));
    sum.row_count += report.row_count;
    sum.bytes += report.bytes;
    sum.seconds += report.seconds;
  }
  if (network.has_value()) {
    HPS_RETURN_IF_ERROR(WriteNewFile(request.to + "/" + kNetworkFile, network->onnx));
    sum.bytes += network->onnx.size();
  }
  ModelDescription description{
      .name = request.name, .tables = tables, .has_network = network.has_value()};
  if (network.has_value()) description.inputs = network->inputs;
  HPS_RETURN_IF_ERROR(WriteNewFile(request.to + "/" + kModelFile, ModelToml(description)));
  return sum;
}

absl::StatusOr<ExportReport> OpenedStore::Export(const ExportRequest& request) {
  if (request.name.find('/') == std::string::npos && !request.sink) return ExportModel(request);
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableTable> table, durable_.OpenTable(request.name));
  return RunExport(*table, request);
}

absl::Status OpenedStore::Drop(const std::string& name) {
  HPS_RETURN_IF_ERROR(ValidateDroppedName(name));
  HPS_RETURN_IF_ERROR(durable_.Drop(name));
  return StatusOfModel(ModelOf(name), "'" + name + "' is dropped",
                       models_.Switch(ServedModels::Missing::kIgnored));
}

absl::Status OpenedStore::Apply(const TableUpdate& update, std::chrono::nanoseconds timeout) {
  HPS_RETURN_IF_ERROR(ValidateTableName(update.table));
  const size_t bytes = update.is_delete ? update.keys.size_bytes() : update.rows.size();
  if (bytes > kUpdateBytesMax) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat("table '", update.table, "': a change of ", bytes, " bytes, at most ",
                     kUpdateBytesMax, " are taken: split it")));
  }
  return resources_->updates->Apply(update.table,
                                    {.dim = update.dim,
                                     .dtype = update.dtype,
                                     .keys = update.keys,
                                     .rows = update.rows,
                                     .is_delete = update.is_delete},
                                    DeadlineAfter(RealClock(), timeout));
}

StoreStatistics OpenedStore::Statistics() const {
  StoreStatistics statistics;
  resources_->sessions->AddStatistics(&statistics);
  statistics.l3 = durable_.Statistics();
  statistics.updates = resources_->updates->Statistics();
  if (resources_->stream != nullptr) statistics.updates.stream = resources_->stream->Statistics();
  if (resources_->shared_writer != nullptr)
    statistics.updates.shared = resources_->shared_writer->Statistics();
  statistics.tables = models_.Statistics();
  if (resources_->l2.remote_statistics != nullptr)
    statistics.l2_remote = resources_->l2.remote_statistics();
  const DeviceCaches& devices = resources_->l1->devices();
  devices.NameDevices(statistics.tables);
  statistics.devices = devices.States();
  if (devices.size() > 0) statistics.l1_bytes_max = devices.bytes_max();
  if (HasMemory(config_.l2.kind)) statistics.l2_bytes_max = config_.l2.bytes_max;
  return statistics;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const Config& config, OpenMode mode) {
  return OpenedStore::Open(config, mode, BuiltInDeviceCacheFactory());
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const Config& config, OpenMode mode,
                                                 const DeviceCacheFactory& devices) {
  return OpenedStore::Open(config, mode, devices);
}

uint32_t Store::format_version() { return DurableFormatVersion(); }

absl::StatusOr<bool> ServerHasStore(const Config& config) {
  return ServerHasDurableStore(config.store);
}

absl::StatusOr<ImportReport> ImportTables(const Config& config, const ImportRequest& request) {
  return ImportModel(config, request, {});
}

absl::StatusOr<ImportReport> ImportModel(const Config& config, const ImportRequest& request,
                                         std::span<const TableSource> tables) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  HPS_ASSIGN_OR_RETURN(const ImportPlan plan, PlanFiles(config, request, tables));
  HPS_RETURN_IF_ERROR(CheckKeptNetwork(config, plan));
  const auto import = StageDurableImport(config.store, plan.specs());
  if (!import.ok()) return WithSourceFiles(import.status(), plan);
  return RunImport(plan, **import, OptionsOf(config, request), nullptr);
}

absl::StatusOr<std::vector<PendingImport>> PendingImports(const Config& config) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  return PendingDurableImports(config.store);
}

absl::Status DropTable(const Config& config, const std::string& name) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  HPS_RETURN_IF_ERROR(ValidateDroppedName(name));
  HPS_RETURN_IF_ERROR(CheckIsThere(config, name));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableStore> store,
                       OpenDurableStore(config.store, OpenMode::kReadWrite, StoreRole::kCommand));
  return store->Drop(name);
}

std::vector<float> DefaultRow(const TableSpec& spec) {
  std::vector<float> row(spec.dim, 0.0F);
  if (!spec.default_row.empty()) {
    ConvertToFloat32(spec.dtype, spec.default_row.data(), spec.dim,
                     std::as_writable_bytes(std::span(row)).data());
  }
  return row;
}

absl::StatusOr<VerifyReport> VerifyStore(const Config& config, bool repair,
                                         const ProgressFunction& progress) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  return VerifyDurableStore(config.store, repair, progress);
}

}  // namespace hps
