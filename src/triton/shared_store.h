// The stores of this process, one for each configuration file: all models and instances that name
// the file share it, with its memory, threads and update streams. (One more, if some of them want
// it read-only.)
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "hps/config.h"
#include "hps/store.h"
#include "inference/model_version.h"

namespace hps::triton {

class SharedStore;

// A model of a store as Triton has loaded it: the version that its requests are answered from.
// Triton has two of one name while it loads a model again. Thread-safe.
class ServedModel {
 public:
  explicit ServedModel(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // What a request that comes now is answered from. It has sessions for at least the slots that
  // have been taken.
  ModelVersionRef version() const;

 private:
  friend class SharedStore;

  const std::string name_;
  mutable Mutex mutex_;
  ModelVersionRef version_ HPS_GUARDED_BY(mutex_);
  std::vector<bool> slots_ HPS_GUARDED_BY(mutex_);  // by number: whether it is taken
};

class SharedStore {
 public:
  // Opens the store of a configuration file with the first use in this process; the last one
  // closes it. Errors: those of LoadConfig and of Store::Open, which name the file.
  struct EndUse {
    void operator()(SharedStore* store) const;
  };
  using Use = std::unique_ptr<SharedStore, EndUse>;
  // `mode`: kServe, or kReadOnly beside another process that has the store.
  static absl::StatusOr<Use> Acquire(const std::string& configuration, OpenMode mode);

  const Config& config() const { return config_; }
  size_t lookup_keys_max() const { return LookupKeysMax(config_, store_->models()); }

  // Commits what was imported beside this process, switches the model to it, and serves it with
  // sessions for `slot_count` instances. Other models of Triton over the same model follow.
  // Errors: NOT_FOUND (names the nearest model); those of ModelManager::Load and
  // ModelVersion::Open. A model that is served already keeps what it serves then, and its operator
  // can load it again. The first load of a model only warns in the log, if an earlier version can
  // be served: nothing would be served otherwise.
  absl::Status Load(ServedModel& model, size_t slot_count);
  // Ends serving it. The model's memory is given back when no other ServedModel has its name.
  void Unload(ServedModel& model);

  // A slot for one instance. Errors: those of ModelVersion::Open, where there are more instances
  // than were loaded for.
  absl::StatusOr<size_t> TakeSlot(ServedModel& model);
  static void ReturnSlot(ServedModel& model, size_t slot);

 private:
  SharedStore(Config config, std::unique_ptr<Store> store)
      : config_(std::move(config)), store_(std::move(store)) {}

  absl::StatusOr<ModelVersionRef> OpenVersion(const std::string& model, size_t slot_count)
      HPS_REQUIRES(change_mutex_);
  bool IsServed(const std::string& model) const HPS_REQUIRES(change_mutex_);
  void RefreshOthers() HPS_REQUIRES(change_mutex_);

  const Config config_;
  const std::unique_ptr<Store> store_;
  Mutex change_mutex_;  // one load or unload
  std::vector<ServedModel*> models_ HPS_GUARDED_BY(change_mutex_);
};

}  // namespace hps::triton
