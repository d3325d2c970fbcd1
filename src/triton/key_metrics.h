// Triton's metric `hps_lookup_keys_total{model, status}`: how the keys of a model's requests were
// answered, by level.
//
// Thread-safe.
#pragma once

#include <array>
#include <string>

#include "hps/lookup_session.h"
#include "hps/types.h"
#include "triton/triton_api.h"

namespace hps::triton {

// The counters of one model. Two of one model count together.
class KeyMetrics {
 public:
  // Where the server has no metrics, it counts nothing.
  explicit KeyMetrics(const std::string& model);
  KeyMetrics(const KeyMetrics&) = delete;
  KeyMetrics& operator=(const KeyMetrics&) = delete;
  ~KeyMetrics();

  void Count(const LookupCounts& counts);

  // Gives back what is common to all models. REQUIRES: there is no KeyMetrics.
  static void Finalize();

 private:
  std::array<TRITONSERVER_Metric*, kKeyStatusCount> by_status_{};  // null: not counted
};

}  // namespace hps::triton
