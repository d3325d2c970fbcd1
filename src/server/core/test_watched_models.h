// The models of a real store, whose lookups a test watches: a hook runs on the lookup's thread
// before each, and may bring other calls meanwhile, move a clock, or take the lookup's time away.
//
// So one thread steps through everything that happens while a lookup runs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hps/model_manager.h"

namespace hps::server {

class WatchedModels final : public ModelManager {
 public:
  struct Look {
    std::string model;
    size_t number = 0;  // of the lookup, from 1
    int device = -1;    // that its session was asked for
    const HostLookupRequest* request = nullptr;
    bool no_time = false;  // set by the hook: the deadline has passed before level 3 is asked
    absl::Status failure;  // set by the hook: what the lookup answers instead
  };
  using Hook = std::function<void(Look&)>;

  explicit WatchedModels(ModelManager& models) : models_(models) {}

  void set_hook(Hook hook) { hook_ = std::move(hook); }
  size_t look_count() const { return look_count_; }
  // When set, sessions on other devices than the host are asked for on the host.
  std::vector<LookupDevice> pretended_devices;
  // When set, LoadAll ends with it before it comes to the models.
  absl::Status load_all_failure;
  // When set, what Load says after it has loaded the model.
  absl::Status load_failure;

  std::vector<ModelInfo> List() const override { return models_.List(); }
  absl::Status LoadAll() override {
    return load_all_failure.ok() ? models_.LoadAll() : load_all_failure;
  }
  absl::Status Load(const std::string& model) override {
    const absl::Status loaded = models_.Load(model);
    return load_failure.ok() ? loaded : load_failure;
  }
  absl::Status Unload(const std::string& model, std::chrono::nanoseconds wait_max) override {
    return models_.Unload(model, wait_max);
  }
  absl::Status RefreshLevel1(const std::string& model, std::chrono::nanoseconds timeout) override {
    return models_.RefreshLevel1(model, timeout);
  }
  void StopPreloading() override { models_.StopPreloading(); }
  absl::StatusOr<std::optional<ModelNetwork>> ImportedNetwork(
      const std::string& model) const override {
    return models_.ImportedNetwork(model);
  }
  std::vector<LookupDevice> devices() const override {
    return pretended_devices.empty() ? models_.devices() : pretended_devices;
  }
  std::shared_ptr<void> Follow(const std::string& model,
                               std::function<absl::Status()> on_switch) override {
    return models_.Follow(model, std::move(on_switch));
  }
  absl::StatusOr<std::unique_ptr<LoadedModel>> Open(const std::string& model) override {
    auto opened = models_.Open(model);
    if (!opened.ok()) return opened.status();
    return std::make_unique<Model>(*this, model, *std::move(opened));
  }

 private:
  class Session final : public LookupSession {
   public:
    Session(WatchedModels& watch, std::string model, int device,
            std::unique_ptr<LookupSession> session)
        : watch_(watch), model_(std::move(model)), device_(device), session_(std::move(session)) {}
    absl::StatusOr<TableIndex> FindTable(std::string_view name) const override {
      return session_->FindTable(name);
    }
    std::span<const TableSpec> tables() const override { return session_->tables(); }
    size_t output_row_bytes(TableIndex table) const override {
      return session_->output_row_bytes(table);
    }
    absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) override {
      Look look = {
          .model = model_, .number = ++watch_.look_count_, .device = device_, .request = &request};
      const Hook hook = watch_.hook_;  // it may put another one into its place
      if (hook) hook(look);
      if (!look.failure.ok()) return look.failure;
      HostLookupRequest changed = request;
      if (look.no_time) changed.timeout = std::chrono::nanoseconds(0);
      return session_->Lookup(changed, counts);
    }
    absl::Status Lookup(const DeviceLookupRequest& request, LookupCounts* counts) override {
      return session_->Lookup(request, counts);
    }

   private:
    WatchedModels& watch_;
    const std::string model_;
    const int device_;
    const std::unique_ptr<LookupSession> session_;
  };

  class Model final : public LoadedModel {
   public:
    Model(WatchedModels& watch, std::string name, std::unique_ptr<LoadedModel> model)
        : watch_(watch), name_(std::move(name)), model_(std::move(model)) {}
    uint64_t version() const override { return model_->version(); }
    std::shared_ptr<const ModelNetwork> network() const override { return model_->network(); }
    bool IsCurrent() const override { return model_->IsCurrent(); }
    std::span<const TableSpec> tables() const override { return model_->tables(); }
    absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
        const SessionOptions& options) override {
      SessionOptions granted = options;
      if (!watch_.pretended_devices.empty()) granted.device = -1;
      auto session = model_->NewSession(granted);
      if (!session.ok()) return session.status();
      return std::make_unique<Session>(watch_, name_, options.device, *std::move(session));
    }

   private:
    WatchedModels& watch_;
    const std::string name_;
    const std::unique_ptr<LoadedModel> model_;
  };

  ModelManager& models_;
  Hook hook_;
  std::atomic<size_t> look_count_ = 0;
};

}  // namespace hps::server
