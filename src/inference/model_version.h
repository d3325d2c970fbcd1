// A model as of one switch, as requests are answered from it: its tables by name, its network, and
// sessions for each lookup slot. All of them are made with it, on the thread of the load: no
// request compiles a network, or makes buffers on a device.
//
// Requests hold a ModelVersionRef from their plan until their answer is there; the object that
// serves the model holds one while the version is the newest. With the last use the version ends,
// and with it what only it kept in memory.
//
// Thread-safe; a slot's session is for the thread that has the slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/lookup_session.h"
#include "hps/model_manager.h"
#include "hps/table_spec.h"
#include "inference/predictor.h"

namespace hps {

struct Config;

// The most keys of one lookup: [server.batching] keys_max, or fewer where a device takes fewer at
// once.
size_t LookupKeysMax(const Config& config, const ModelManager& models);

// The error of a new version that can't be opened while requests are answered from a former one. It
// tells the operator that the store has switched to the new tables, so that the old ones take no
// changes any more.
absl::Status BehindTheSwitch(const absl::Status& error);

class ModelVersion;

struct EndModelUse {
  void operator()(ModelVersion* version) const;
};
// Keeps a version alive.
using ModelVersionRef = std::unique_ptr<ModelVersion, EndModelUse>;

class ModelVersion {
 public:
  struct Options {
    size_t slot_count = 1;
    std::vector<int> devices{};  // empty = the host
    size_t keys_max = 0;         // of one lookup
    size_t device_keys_max = 0;  // of one whose rows stay on a device, if that is more
    bool networks_on_devices = true;
    DenseMath dense_math = DenseMath::kFloat32;  // there
    // LookupDevice::prediction_row_bytes_max by device; null: devices do not say.
    std::function<uint64_t(int device)> row_bytes_max{};
  };
  // As the configuration says, on the devices of the store.
  static Options OptionsFor(const Config& config, const ModelManager& models, size_t slot_count);

  struct Table {
    std::string name;  // without the model's
    size_t row_bytes = 0;
    uint32_t dim = 0;
  };

  // The first use of a new version: the model's tables as they are loaded now, its network,
  // compiled, and their sessions, ready. `devices` and `keys_max` go to these. Takes seconds.
  // Errors: those of ModelManager::Open; those of Predictor::Make, Predictor::NewSession and
  // LoadedModel::NewSession, which name the model.
  static absl::StatusOr<ModelVersionRef> Open(ModelManager& manager, const std::string& model,
                                              const Options& options);
  // The same of parts.
  // `predictor`: the model's dense network; null: it has none.
  static absl::StatusOr<ModelVersionRef> Make(std::unique_ptr<LoadedModel> model,
                                              const Options& options,
                                              std::unique_ptr<Predictor> predictor = nullptr);

  ModelVersion(const ModelVersion&) = delete;
  ModelVersion& operator=(const ModelVersion&) = delete;

  // One more use of this version.
  ModelVersionRef Share();

  uint64_t number() const { return model_->version(); }
  const std::string& number_text() const { return number_text_; }
  std::span<const Table> tables() const { return tables_; }  // in declared order
  std::span<const TableSpec> specs() const { return model_->tables(); }

  // Whether the model still has these tables with these levels.
  bool is_current() const { return model_->IsCurrent(); }

  // Index into tables() of the table with this name (without the model's), if there is one.
  std::optional<uint32_t> IndexOfTable(std::string_view name) const;

  // The session of a slot. Output rows are float32.
  LookupSession& session(size_t slot) { return *sessions_[slot]; }

  // Null: the model has no dense network.
  const Predictor* predictor() const { return predictor_.get(); }
  // As session, of the predictor, and on the device of that slot's lookups. REQUIRES: there is one.
  PredictionSession& prediction_session(size_t slot) { return *prediction_sessions_[slot]; }

 private:
  friend struct EndModelUse;

  int DeviceOf(size_t slot) const;  // -1 = the host

  ModelVersion(std::unique_ptr<LoadedModel> model, const Options& options,
               std::unique_ptr<Predictor> predictor);
  absl::Status MakeSessions();

  const Options options_;
  const std::unique_ptr<LoadedModel> model_;
  const std::string number_text_;
  std::vector<Table> tables_;
  std::map<std::string, uint32_t, std::less<>> index_by_name_;
  const std::unique_ptr<Predictor> predictor_;
  std::vector<std::unique_ptr<LookupSession>> sessions_;  // by slot; end before model_
  std::vector<std::unique_ptr<PredictionSession>> prediction_sessions_;  // likewise
  std::atomic<uint64_t> uses_{1};
};

}  // namespace hps
