// A model that requests are planned for, in tests: only what a plan asks of it.
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

namespace hps {

class PlannedModel : public LoadedModel {
 public:
  explicit PlannedModel(std::vector<TableSpec> tables) : tables_(std::move(tables)) {}
  uint64_t version() const override { return 3; }
  std::shared_ptr<const ModelNetwork> network() const override { return nullptr; }
  bool IsCurrent() const override { return true; }
  std::span<const TableSpec> tables() const override { return tables_; }
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const SessionOptions&) override {
    return std::unique_ptr<LookupSession>();  // these tests make no lookup
  }

 private:
  const std::vector<TableSpec> tables_;
};

}  // namespace hps
