#include "triton/key_metrics.h"

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "triton/triton_status.h"

namespace hps::triton {
namespace {

constexpr const char* kName = "hps_lookup_keys_total";

Mutex family_mutex;
TRITONSERVER_MetricFamily* family HPS_GUARDED_BY(family_mutex) = nullptr;

// Null: the server has no metrics.
TRITONSERVER_MetricFamily* Family() {
  MutexLock lock(family_mutex);
  if (family != nullptr) return family;
  const absl::Status made = FromTriton(TRITONSERVER_MetricFamilyNew(
      &family, kMetricCounter, kName, "Keys by what was answered, duplicates included."));
  if (made.ok()) return family;
  family = nullptr;
  LogInfo(absl::StrCat("the server counts no ", kName, ": ", made.message().data()));
  return nullptr;
}

}  // namespace

KeyMetrics::KeyMetrics(const std::string& model) {
  TRITONSERVER_MetricFamily* const all = Family();
  if (all == nullptr) return;
  for (size_t status = 0; status < kKeyStatusCount; ++status) {
    const std::string name(kKeyStatusNames[status]);
    TRITONSERVER_Parameter* const of_model =
        TRITONSERVER_ParameterNew("model", kParameterString, model.c_str());
    TRITONSERVER_Parameter* const of_status =
        TRITONSERVER_ParameterNew("status", kParameterString, name.c_str());
    const TRITONSERVER_Parameter* labels[] = {of_model, of_status};
    const absl::Status made =
        FromTriton(TRITONSERVER_MetricNew(&by_status_[status], all, labels, 2));
    if (!made.ok()) by_status_[status] = nullptr;
    TRITONSERVER_ParameterDelete(of_model);
    TRITONSERVER_ParameterDelete(of_status);
  }
}

KeyMetrics::~KeyMetrics() {
  for (TRITONSERVER_Metric* metric : by_status_) {
    if (metric != nullptr) FromTriton(TRITONSERVER_MetricDelete(metric)).IgnoreError();
  }
}

void KeyMetrics::Count(const LookupCounts& counts) {
  for (size_t status = 0; status < kKeyStatusCount; ++status) {
    if (counts.by_status[status] == 0 || by_status_[status] == nullptr) continue;
    FromTriton(TRITONSERVER_MetricIncrement(by_status_[status],
                                            static_cast<double>(counts.by_status[status])))
        .IgnoreError();
  }
}

void KeyMetrics::Finalize() {
  MutexLock lock(family_mutex);
  if (family != nullptr) FromTriton(TRITONSERVER_MetricFamilyDelete(family)).IgnoreError();
  family = nullptr;
}

}  // namespace hps::triton
