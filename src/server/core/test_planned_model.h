// A model and a call of which a request's plan is made, for tests: only what a plan asks of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_manager.h"
#include "hps/table_spec.h"
#include "server/core/inference_call.h"

namespace hps::server {

class PlannedModel final : public LoadedModel {
 public:
  explicit PlannedModel(std::vector<TableSpec> tables) : tables_(std::move(tables)) {}
  uint64_t version() const override { return 3; }
  std::shared_ptr<const ModelNetwork> network() const override { return nullptr; }
  bool IsCurrent() const override { return true; }
  std::span<const TableSpec> tables() const override { return tables_; }
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const SessionOptions&) override {
    return absl::UnimplementedError("not asked here");
  }

 private:
  const std::vector<TableSpec> tables_;
};

class PlannedCall final : public InferenceCall {
 public:
  uint64_t AnswerBytes() const override { return TensorBytes(); }
  void OnDone(const absl::Status&) override {}
};

}  // namespace hps::server
