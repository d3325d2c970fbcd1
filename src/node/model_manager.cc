#include "node/model_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/free_memory.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"

namespace hps {
namespace {

// `options` as far as the device allows them.
absl::StatusOr<SessionOptions> Granted(const StoreModelManager::Parts& parts,
                                       SessionOptions options) {
  HPS_RETURN_IF_ERROR(parts.l1->devices().CheckDevice(options.device));
  if (options.device != -1) options.keys_max = std::min(options.keys_max, parts.device_keys_max);
  return options;
}

class PinnedModel final : public LoadedModel {
 public:
  PinnedModel(SnapshotPin pin, const StoreModelManager::Parts& parts)
      : parts_(parts), pin_(std::move(pin)) {
    for (const auto& table : pin_.snapshot()->tables()) tables_.push_back(table->spec());
  }

  uint64_t version() const override { return pin_.snapshot()->version(); }
  std::span<const TableSpec> tables() const override { return tables_; }
  std::shared_ptr<const ModelNetwork> network() const override {
    return pin_.snapshot()->network();
  }
  bool IsCurrent() const override {
    return pin_.state()->PinCurrent().snapshot() == pin_.snapshot();
  }

  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const SessionOptions& options) override {
    HPS_ASSIGN_OR_RETURN(const SessionOptions granted, Granted(parts_, options));
    return parts_.sessions->NewPinnedSession(pin_, granted, parts_.resources);
  }

 private:
  const StoreModelManager::Parts parts_;  // declared first: its resources outlive the pin
  const SnapshotPin pin_;
  std::vector<TableSpec> tables_;
};

// Describes the first one; the log has all of them.
std::string DescribeRejected(const std::vector<RejectedImport>& lost) {
  const RejectedImport& first = lost.front();
  const char* why = absl::IsDataLoss(first.why) ? " was corrupt and was discarded"
                                                : " could not be committed and was discarded";
  if (first.table.empty()) return absl::StrCat("a staged import of this or another model", why);
  const auto others = std::count_if(lost.begin() + 1, lost.end(),
                                    [](const RejectedImport& one) { return !one.table.empty(); });
  return absl::StrCat("the staged import of table '", first.table, "'", why,
                      others == 0 ? std::string() : absl::StrCat(" (and ", others, " more)"));
}

bool MayBeOf(const std::string& model, const WaitingImport& import) {
  return import.names.empty() ||
         std::any_of(import.names.begin(), import.names.end(),
                     [&](const std::string& name) { return name.starts_with(model + "/"); });
}

// The error of a load before which a staged import of the model could not be committed.
absl::Status NotTaken(const std::string& model, const absl::Status& why) {
  const std::string reason = IsPublic(why) || IsDiskFull(why)
                                 ? MessageForClients(why)
                                 : "a staged import can't be committed now; the log has the reason";
  return Public(Reworded(why, absl::StrCat("model '", model, "': ", reason)));
}

}  // namespace

void LogErrors(const ServedModels::ModelErrors& errors, const std::string& except) {
  for (const auto& [model, error] : errors) {
    if (model != except)
      LogWarning(absl::StrCat("a model keeps its current version: ", TextForLog(error)));
  }
}

absl::Status FirstError(const absl::StatusOr<ServedModels::ModelErrors>& errors) {
  if (!errors.ok() || errors->empty()) return errors.status();
  LogErrors(*errors, errors->begin()->first);
  return errors->begin()->second;
}

// An import that cannot be committed does not prevent serving the current tables; the next Load
// reports it. It is returned here only if a model is not loaded because of it, or none is.
absl::Status StoreModelManager::LoadAll() {
  if (parts_.stream != nullptr) parts_.stream->AwaitReady();
  const absl::Status refreshed = ErrorOf(parts_.durable->Refresh());
  HPS_RETURN_IF_ERROR(FirstError(parts_.models->Switch(ServedModels::Missing::kIgnored)));
  if (refreshed.ok()) return refreshed;
  const std::vector<ModelInfo> models = List();
  const auto has = [&models](ModelCondition condition) {
    return std::any_of(models.begin(), models.end(), [condition](const ModelInfo& model) {
      return model.condition == condition;
    });
  };
  if (!has(ModelCondition::kLoaded) || has(ModelCondition::kNotLoaded)) return refreshed;
  LogWarning(absl::StrCat(
      "a staged import could not be committed and will be tried again at the next load: ",
      TextForLog(refreshed)));
  return absl::OkStatus();
}

absl::Status StoreModelManager::Load(const std::string& model) {
  // The import that cannot be committed may be another model's: load this one as it is.
  const absl::StatusOr<RefreshResult> refreshed = parts_.durable->Refresh();
  const absl::Status loaded = parts_.models->Load(model);
  // After any other error, the next Load that gets this far reports rejected imports.
  if (!loaded.ok() && !absl::IsNotFound(loaded)) return loaded;
  if (!refreshed.ok()) return NotTaken(model, refreshed.status());
  for (const WaitingImport& import : refreshed->waiting)
    if (MayBeOf(model, import)) return NotTaken(model, import.why);
  const std::vector<RejectedImport> lost = parts_.durable->TakeRejectedImports(model);
  if (lost.empty()) return loaded;
  if (!loaded.ok() && lost.front().table.empty())  // the name may be misspelt
    return Public(
        absl::NotFoundError(absl::StrCat(loaded.message(), "; ", DescribeRejected(lost))));
  return Public(absl::FailedPreconditionError(absl::StrCat(
      "model '", model, "': ", DescribeRejected(lost), "; the log has the reason. ",
      loaded.ok() ? "Its current tables are served" : "It has no tables", ": import it again")));
}

absl::Status StoreModelManager::Unload(const std::string& model,
                                       std::chrono::nanoseconds wait_max) {
  HPS_RETURN_IF_ERROR(parts_.models->Unload(model));
  if (parts_.models->AwaitReclaimed(model, DeadlineAfter(RealClock(), wait_max))) {
    ReturnFreeMemory();
    return absl::OkStatus();
  }
  return Public(absl::DeadlineExceededError(
      absl::StrCat("model '", model,
                   "' is unloaded, but running lookups or open handles still hold its memory")));
}

absl::Status StoreModelManager::RefreshLevel1(const std::string& model,
                                              std::chrono::nanoseconds timeout) {
  return parts_.updates->RefreshModel(model, DeadlineAfter(RealClock(), timeout));
}

absl::StatusOr<std::unique_ptr<LoadedModel>> StoreModelManager::Open(const std::string& model) {
  HPS_ASSIGN_OR_RETURN(SnapshotPin pin, parts_.models->Pin(model));
  return std::make_unique<PinnedModel>(std::move(pin), parts_);
}

absl::StatusOr<std::unique_ptr<LookupSession>> StoreModelManager::NewSession(
    const std::string& model, const SessionOptions& options) {
  HPS_ASSIGN_OR_RETURN(const SessionOptions granted, Granted(parts_, options));
  return parts_.models->NewSession(model, granted, parts_.resources);
}

std::vector<LookupDevice> StoreModelManager::devices() const {
  std::vector<LookupDevice> devices;
  for (const DeviceCache* cache : parts_.l1->devices().caches()) {
    const uint64_t left = parts_.l1->devices().BytesLeftOn(cache->device());
    devices.push_back({.number = cache->device(),
                       .prediction_row_bytes_max = left == UINT64_MAX ? left : left / 2});
  }
  return devices;
}

}  // namespace hps
