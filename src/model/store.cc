#include "hps/store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/export.h"
#include "import/import.h"
#include "import/import_plan.h"
#include "model/device_level.h"
#include "model/life_cycle.h"
#include "model/open_store.h"
#include "model/served_models.h"
#include "model/tier_factory.h"
#include "query/session_factory.h"
#include "types/row_convert.h"

namespace hps {
namespace {

ImportOptions OptionsOf(const Config& config, const ImportRequest& request) {
  return {.spill_directory = config.store.path,
          .memory_bytes_max = request.memory_bytes_max,
          .threads = request.threads,
          .progress = request.progress};
}

// What the store says of a table that is to be imported, with the files that it is to come from.
absl::Status NamingFiles(const absl::Status& status, const ImportPlan& plan) {
  for (const ImportSource& source : plan.tables) {
    if (absl::StrContains(status.message(), absl::StrCat("table '", source.spec.name, "'")))
      return absl::Status(status.code(), absl::StrCat(source.path, ": ", status.message()));
  }
  return status;
}

// The result of a switch that was to bring one model to what has been committed.
absl::Status Concerning(const std::string& model, const std::string& committed,
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

// NOT_FOUND for a table that nobody has: a misspelt name must change no byte of the store, and
// opening it for writing does. What can't be told here the writer will say.
absl::Status CheckCanBeThere(const Config& config, const std::string& table) {
  const auto waiting = WaitingDurableImports(config.store);
  if (!waiting.ok()) return absl::OkStatus();
  for (const WaitingImport& import : *waiting) {
    if (!import.problem.empty()) return absl::OkStatus();
    for (const TableInfo& info : import.tables)
      if (info.spec.name == table) return absl::OkStatus();
  }
  const auto reader = OpenDurableStore(config.store, OpenMode::kReadOnly, StoreRole::kCommand);
  if (!reader.ok()) return absl::OkStatus();
  const absl::Status opened = (*reader)->OpenTable(table).status();
  return absl::IsNotFound(opened) ? opened : absl::OkStatus();
}

// The members end in the opposite order of their making, which is the order that
// query/session_factory.h asks for.
class OpenedStore final : public Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Open(const Config& config, OpenMode mode,
                                                     const DeviceCacheFactory& devices);

  explicit OpenedStore(const Config& config) : config_(config) {}

  absl::StatusOr<std::vector<TableInfo>> Tables() const override { return durable_->Tables(); }
  uint32_t format_version() const override { return DurableFormatVersion(); }
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const std::string& model,
                                                            const SessionOptions& options) override;
  absl::Status Reload() override { return life_cycle_->LoadAll(); }
  absl::StatusOr<ImportReport> Import(const ImportRequest& request) override;
  absl::StatusOr<ExportReport> Export(const ExportRequest& request) override;
  absl::Status Drop(const std::string& table) override;
  absl::Status DrainPromotions(std::chrono::nanoseconds timeout) override {
    return sessions_->DrainPromotions(timeout);
  }
  StoreStatistics Statistics() const override;
  ModelLifeCycle& life_cycle() override { return *life_cycle_; }

 private:
  absl::Status MakeLevels(OpenMode mode, const DeviceCacheFactory& devices);

  const Config config_;
  std::unique_ptr<DurableStore> durable_;
  L2Tier l2_;
  std::unique_ptr<DeviceLevel> l1_;
  std::unique_ptr<SessionFactory> sessions_;
  std::unique_ptr<ServedModels> models_;
  std::unique_ptr<StoreLifeCycle> life_cycle_;
  std::unique_ptr<WorkerPool> promote_executor_;
  std::unique_ptr<WorkerPool> fetch_executor_;
};

absl::StatusOr<std::unique_ptr<Store>> OpenedStore::Open(const Config& config, OpenMode mode,
                                                         const DeviceCacheFactory& devices) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  auto store = std::make_unique<OpenedStore>(config);
  HPS_RETURN_IF_ERROR(store->MakeLevels(mode, devices));
  return store;
}

absl::Status OpenedStore::MakeLevels(OpenMode mode, const DeviceCacheFactory& devices) {
  HPS_ASSIGN_OR_RETURN(durable_, OpenDurableStore(config_.store, mode, StoreRole::kServer));
  l2_ = MakeL2Tier(config_.l2);
  HPS_ASSIGN_OR_RETURN(l1_, DeviceLevel::Create(config_, mode == OpenMode::kServe, devices));
  HPS_ASSIGN_OR_RETURN(promote_executor_,
                       MakePool("hps-promote", config_.threads.promote, kPromotionsQueuedMax));
  HPS_ASSIGN_OR_RETURN(fetch_executor_,
                       MakePool("hps-fetch", config_.threads.fetch, kFetchesQueuedMax));
  HPS_ASSIGN_OR_RETURN(sessions_,
                       SessionFactory::Create({.fetch_executor = fetch_executor_.get(),
                                               .promote_executor = promote_executor_.get(),
                                               .caches = l1_->caches(),
                                               .timeout = config_.lookup.timeout,
                                               .helper_spin = config_.threads.helper_spin}));
  models_ = std::make_unique<ServedModels>(ServedModels::Parts{.config = &config_,
                                                               .durable = durable_.get(),
                                                               .l2 = &l2_,
                                                               .l1 = l1_.get(),
                                                               .sessions = sessions_.get(),
                                                               .reclaim = promote_executor_.get()});
  life_cycle_ = std::make_unique<StoreLifeCycle>(
      StoreLifeCycle::Parts{.durable = durable_.get(),
                            .l1 = l1_.get(),
                            .sessions = sessions_.get(),
                            .models = models_.get(),
                            .device_keys_max = config_.l1.call_keys_max});
  if (mode == OpenMode::kServe) return models_->CheckConfigured();
  // A store that is being made lacks what its first import will bring.
  const auto errors = models_->Switch(mode == OpenMode::kCreate ? ServedModels::Missing::kIgnored
                                                                : ServedModels::Missing::kError);
  // A model that can't be served does not keep the others from it; NewSession says why.
  if (!errors.ok() || !models_->HasTables()) return FirstOf(errors);
  LogErrors(*errors, "");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LookupSession>> OpenedStore::NewSession(
    const std::string& model, const SessionOptions& options) {
  HPS_RETURN_IF_ERROR(l1_->CheckDevice(options.device));
  SessionOptions granted = options;
  if (options.device != -1)
    granted.keys_max = std::min<size_t>(options.keys_max, config_.l1.call_keys_max);
  return models_->NewSession(model, granted);
}

absl::StatusOr<ImportReport> OpenedStore::Import(const ImportRequest& request) {
  HPS_ASSIGN_OR_RETURN(const ImportPlan plan, PlanImport(request));
  const auto import = durable_->BeginImport(plan.specs());
  if (!import.ok()) return NamingFiles(import.status(), plan);
  HPS_ASSIGN_OR_RETURN(ImportReport report,
                       RunImport(plan, **import, OptionsOf(config_, request), nullptr));
  HPS_RETURN_IF_ERROR(Concerning(ModelOf(request.name), "'" + request.name + "' is imported",
                                 models_->Switch(ServedModels::Missing::kIgnored)));
  return report;
}

absl::StatusOr<ExportReport> OpenedStore::Export(const ExportRequest& request) {
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableTable> table,
                       durable_->OpenTable(request.name));
  return RunExport(*table, request);
}

absl::Status OpenedStore::Drop(const std::string& table) {
  HPS_RETURN_IF_ERROR(ValidateTableName(table));
  HPS_RETURN_IF_ERROR(durable_->Drop(table));
  return Concerning(ModelOf(table), "'" + table + "' is dropped",
                    models_->Switch(ServedModels::Missing::kIgnored));
}

StoreStatistics OpenedStore::Statistics() const {
  StoreStatistics statistics;
  sessions_->AddStatistics(&statistics);
  statistics.l3 = durable_->Statistics();
  statistics.tables = models_->Statistics();
  l1_->NameDevices(statistics.tables);
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

absl::StatusOr<ImportReport> ImportTables(const Config& config, const ImportRequest& request) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  HPS_ASSIGN_OR_RETURN(const ImportPlan plan, PlanImport(request));
  const auto import = StageDurableImport(config.store, plan.specs());
  if (!import.ok()) return NamingFiles(import.status(), plan);
  return RunImport(plan, **import, OptionsOf(config, request), nullptr);
}

absl::StatusOr<std::vector<WaitingImport>> WaitingImports(const Config& config) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  return WaitingDurableImports(config.store);
}

absl::Status DropTable(const Config& config, const std::string& table) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  HPS_RETURN_IF_ERROR(ValidateTableName(table));
  HPS_RETURN_IF_ERROR(CheckCanBeThere(config, table));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableStore> store,
                       OpenDurableStore(config.store, OpenMode::kReadWrite, StoreRole::kCommand));
  return store->Drop(table);
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
