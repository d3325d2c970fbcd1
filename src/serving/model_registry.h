// What is live in this process: one LiveModel for each model, and who may write its tables.
//
// A table has at most one writer at a time: its applier, which holds a WriteLease for each change.
// A switch of a model (load, unload, import, drop) holds a SwitchLease: it waits for the writers of
// the model's tables, for a bounded time, and writers wait until it has ended. A switch replaces
// the tables that writers change, so a change that runs at the same time could be lost.
//
// Thread-safe. Must outlive its leases, and everything that LiveModel must outlive.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/epoch.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "serving/live_model.h"
#include "serving/live_table.h"

namespace hps {

class ModelRegistry;
class WriteLease;
struct EndSwitch {
  std::string model;
  void operator()(ModelRegistry* registry) const;
};
// Keeps the writers of a model's tables out.
using SwitchLease = std::unique_ptr<ModelRegistry, EndSwitch>;

class ModelRegistry {
 public:
  ModelRegistry(EpochDomain& domain, Executor& reclaim_executor)
      : domain_(domain), reclaim_executor_(reclaim_executor) {}
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  // Null if the model has never been loaded. Models are never removed: a model without tables has
  // an empty snapshot.
  LiveModel* Find(std::string_view model) const;
  LiveModel& FindOrAdd(const std::string& model);
  std::vector<LiveModel*> models() const;  // by name

  // The live table "MODEL/TABLE"; null if it is not loaded.
  std::shared_ptr<LiveTable> FindTable(std::string_view table) const;

  // Waits until no other writer has the table and no switch of its model is running. The table need
  // not be loaded. Errors: UNAVAILABLE at `deadline`, which says what it waited for.
  absl::StatusOr<WriteLease> AcquireWriter(const std::string& table, Deadline deadline);

  // Waits until no table of the model is being written, and keeps writers out. One switch of a
  // model at a time. Errors: UNAVAILABLE at `deadline`, with the table that is being written.
  absl::StatusOr<SwitchLease> BlockWriters(const std::string& model, Deadline deadline);

 private:
  friend class WriteLease;
  friend struct EndSwitch;

  // Who uses the tables of one model.
  struct Access {
    std::set<std::string> writing;  // tables
    bool switching = false;         // set as soon as a switch waits, so that writers let it pass
  };

  void EndWrite(const std::string& table);

  EpochDomain& domain_;
  Executor& reclaim_executor_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::unique_ptr<LiveModel>, std::less<>> models_ HPS_GUARDED_BY(mutex_);
  std::map<std::string, Access> access_ HPS_GUARDED_BY(mutex_);
};

// The right to write one table. Its end lets the next writer or switch in.
class WriteLease {
 public:
  WriteLease(WriteLease&&) = default;
  WriteLease& operator=(WriteLease&&) = delete;  // would end the write before its table

  // Null if the table is not loaded: it is then written in level 3 only.
  const std::shared_ptr<LiveTable>& live() const { return live_; }

 private:
  friend class ModelRegistry;
  struct EndWrite {
    std::string table;
    void operator()(ModelRegistry* registry) const { registry->EndWrite(table); }
  };
  WriteLease(ModelRegistry* registry, const std::string& table) : registry_(registry, {table}) {}

  std::unique_ptr<ModelRegistry, EndWrite> registry_;
  std::shared_ptr<LiveTable> live_;  // ends first: it may be the last reference
};

}  // namespace hps
