// Which models of a store are loaded: lists them, loads and unloads them while others are served,
// and holds on to one as of one switch.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/lookup_session.h"
#include "hps/table_spec.h"

namespace hps {

enum class ModelCondition {
  kWaiting,   // not loaded yet: nobody has asked for it since the store was opened
  kLoaded,    // it is served
  kUnloaded,  // by Unload
  kFailed,    // it could not be loaded, and nothing of it is served
  kDropped,   // it was served, and the store has no table of it any more
};

struct ModelInfo {
  std::string name;
  // The number of its switches to other rows (imports) since the store was opened; kept while it is
  // unloaded. 0 = it has never been loaded.
  uint64_t version = 0;
  ModelCondition condition = ModelCondition::kWaiting;
  std::string reason;  // why it failed, or why it keeps the tables that it had; else empty
};

// A model as of one switch. Its tables stay in memory while this object lives, whatever the model
// switches to; it must be destroyed before its store, and after its sessions.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;

  virtual uint64_t version() const = 0;
  // In declared order; a session's table numbers are their indices.
  virtual const std::vector<TableSpec>& tables() const = 0;
  // A session that always answers from these tables. Errors: those of Store::NewSession.
  virtual absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      const SessionOptions& options) = 0;
};

class ModelLifeCycle {
 public:
  virtual ~ModelLifeCycle() = default;

  // Every model of the configuration (all of the store when it names none), and those that have
  // been loaded before, by name.
  virtual std::vector<ModelInfo> List() const = 0;

  // Store::Reload, and what a store waits for that was opened with OpenMode::kServe.
  virtual absl::Status LoadAll() = 0;

  // Commits staged imports and switches the model to its newest tables; also loads it when it was
  // unloaded. The other models keep their tables. Errors: NOT_FOUND, which names the nearest model;
  // FAILED_PRECONDITION: an import that was staged for a table of it (or, where it is too damaged
  // to tell, for any) was damaged or does not fit the tables that there are, and has been removed,
  // and the table has not been imported again since: said once, also where nothing is left of the
  // model; else it is loaded with the tables that it has; those of DurableStore (DATA_LOSS,
  // RESOURCE_EXHAUSTED, UNAVAILABLE): what was served before stays.
  virtual absl::Status Load(const std::string& model) = 0;

  // Takes the model's tables out of service: sessions answer UNAVAILABLE from now on. Returns when
  // the calls that ran, and every LoadedModel of it, have ended and its memory in L1 and L2 has
  // been given back. Errors: NOT_FOUND; DEADLINE_EXCEEDED when that took longer than `wait_max`
  // (the memory follows later).
  virtual absl::Status Unload(const std::string& model, std::chrono::nanoseconds wait_max) = 0;

  // Errors: those of Store::NewSession; UNAVAILABLE for a model that is not loaded.
  virtual absl::StatusOr<std::unique_ptr<LoadedModel>> Open(const std::string& model) = 0;

  // For a process that is to end: loads under way and to come leave levels 1 and 2 as they are,
  // instead of filling them.
  virtual void StopPreloading() = 0;

  // Devices that sessions may use; empty = the host alone.
  virtual std::vector<int> devices() const = 0;
};

}  // namespace hps
