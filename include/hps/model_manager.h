// Loads, unloads and lists the models of an open store.
//
// Loading switches a model to the newest committed version of all its tables in one step. Running
// lookups finish on the version that they started with. Other models are not interrupted.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/lookup_session.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"

namespace hps {

enum class ModelCondition {
  kNotLoaded,  // not loaded since the store was opened
  kLoaded,     // its lookups are answered
  kUnloaded,   // by Unload
  kFailed,     // loading failed, and no earlier version is loaded
  kDropped,    // it was loaded, and then all of its tables were dropped
};

struct ModelInfo {
  std::string name;
  // Counts the versions that have been loaded since the store was opened. A load that finds the
  // same imports does not count. Unload keeps the number. 0 = never loaded.
  uint64_t version = 0;
  ModelCondition condition = ModelCondition::kNotLoaded;
  // Why the last load failed; OK if it did not. A kLoaded model whose last load failed still serves
  // its earlier version.
  absl::Status load_status;
};

// One loaded version of a model. The handle pins that version: its tables stay in memory, and
// sessions made from it answer from them, whatever the model switches to. It also keeps the store's
// resources alive. Handle, sessions and store may be destroyed in any order.
//
// Thread-safe.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;

  virtual uint64_t version() const = 0;
  // In declared order: element i describes the table with TableIndex{i} in sessions of this handle.
  virtual std::span<const TableSpec> tables() const = 0;
  // The dense network of this version; null if the model has none.
  virtual std::shared_ptr<const ModelNetwork> network() const = 0;
  // Whether the model would be opened with the same tables and levels now. A replaced handle keeps
  // memory of levels 1 and 2 from being released.
  virtual bool IsCurrent() const = 0;
  // A session that always answers from this version. The session pins the version, too.
  // Errors: those of Store::NewSession.
  virtual absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const SessionOptions& options) = 0;
};

// A device with a level 1.
struct LookupDevice {
  int number = 0;
  // Bytes of its memory that predictions may take for the rows of their batches, over all models
  // and lookup slots: half of what level 1 left when the store was opened. UINT64_MAX: the device
  // does not say how much it has.
  uint64_t prediction_row_bytes_max = UINT64_MAX;
};

class ModelManager {
 public:
  virtual ~ModelManager() = default;

  // All models of the configuration (of the store, if the configuration names none) and all models
  // that have been loaded before, sorted by name.
  virtual std::vector<ModelInfo> List() const = 0;

  // Commits staged imports (in a read-only store: picks up what the writer has committed) and
  // switches every changed model that is not unloaded. Costs one directory scan if nothing has
  // changed.
  // In a read-only store, a table that the writer has updated since it was opened restarts with
  // empty levels 1 and 2, because their rows may be out of date.
  // Errors: that of the first model that could not switch. Such a model keeps its current version;
  // all others have switched. The log has the other errors. Also those of followers (Follow): their
  // models have switched.
  virtual absl::Status LoadAll() = 0;

  // Commits staged imports and switches this model to its newest tables. Loads it again if it was
  // unloaded. Other models do not switch.
  // Errors: NOT_FOUND, with the nearest model name. FAILED_PRECONDITION: a staged import of this
  // model was corrupt or had another schema, and was discarded; reported once. If the model has
  // tables in the store, they are loaded all the same. An import that is too damaged to tell its
  // model is reported by the next Load of any model. DATA_LOSS, RESOURCE_EXHAUSTED, UNAVAILABLE:
  // the store failed; the model keeps its current version. Those of followers (Follow): the model
  // has switched.
  virtual absl::Status Load(const std::string& model) = 0;

  // Takes the model out of service: its sessions answer UNAVAILABLE from now on. Then waits until
  // all running lookups, LoadedModel handles and their sessions have released its memory in levels
  // 1 and 2.
  // Errors: NOT_FOUND; DEADLINE_EXCEEDED: not all memory was released within `wait_max`. The model
  // is out of service then, too, and the memory is released later.
  virtual absl::Status Unload(const std::string& model, std::chrono::nanoseconds wait_max) = 0;

  // Pins the version of the model that is loaded now.
  // Errors: those of Store::NewSession; UNAVAILABLE if the model is not loaded.
  virtual absl::StatusOr<std::unique_ptr<LoadedModel>> Open(const std::string& model) = 0;

  // Calls `on_switch` after each switch of the model (a load, an import, a drop, an unload), on the
  // thread that switches it and before that call returns, which then returns its error. A load by
  // name calls it also when the model has not changed. It may use this manager, but not switch a
  // model. The returned handle ends that when it is destroyed, and waits for a running call:
  // neither `on_switch` may destroy it, nor a thread with a lock that `on_switch` takes.
  virtual std::shared_ptr<void> Follow(const std::string& model,
                                       std::function<absl::Status()> on_switch) = 0;

  // The dense network that was imported with a model, if there is one; the model need not be
  // loaded. Reads all its bytes. Errors: DATA_LOSS (it is damaged).
  virtual absl::StatusOr<std::optional<ModelNetwork>> ImportedNetwork(
      const std::string& model) const = 0;

  // Reads every row that level 1 holds of the model again from levels 2 and 3, and updates it in
  // place. Returns when all tables are done. One refresh of a model at a time.
  // Errors: NOT_FOUND (the model is not loaded), FAILED_PRECONDITION (a refresh of the model is
  // running), UNAVAILABLE (a load of the model is running, or the disk fails).
  virtual absl::Status RefreshLevel1(const std::string& model,
                                     std::chrono::nanoseconds timeout) = 0;

  // Ends running preloads and disables later ones, so that a process can exit quickly.
  virtual void StopPreloading() = 0;

  // That sessions may use; empty = host only.
  virtual std::vector<LookupDevice> devices() const = 0;
};

}  // namespace hps
