#include "inference/batch_executor.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

// Points the prediction of a plan at its rows and outputs.
void BindPrediction(const NetworkSignature& signature, ExecutionPlan& plan) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    plan.prediction.inputs[i].rows = nullptr;
    for (const TablePart& part : plan.parts) {
      if (signature.inputs[i].table != part.table) continue;
      const std::byte* const rows = part.rows().is_set() ? plan.At(part.rows()) : part.network_rows;
      plan.prediction.inputs[i].rows = AsAligned<float>(rows);
    }
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const size_t output = plan.prediction_outputs[i];
    plan.prediction.outputs[i] = output == OutputPlace::kNone ? nullptr : plan.outputs[output].data;
  }
}

}  // namespace

BatchExecutor::BatchExecutor(const Options& options)
    : options_(options),
      aligned_keys_(new Key[options.keys_max]),
      statuses_(new KeyStatus[options.keys_max]) {
  queries_.reserve(kTablesPerCallMax);
  query_plans_.reserve(kTablesPerCallMax);
}

absl::Status BatchExecutor::LookUp(ModelVersion& version, Plans plans, const LookupLimits& limits) {
  HPS_ASSIGN_OR_RETURN(LookupSession * session, version.session(options_.slot));
  // Of a single plan the counts tell whether it is complete.
  const bool with_statuses = plans.size() > 1;
  for (ExecutionPlan* plan : plans) plan->degraded_count = 0;
  counts_ = {};
  PlaceRows(plans);
  for (KeyPlace place; place.plan < plans.size();) {
    AddPiece(plans, with_statuses, place);
    if (queries_.empty()) break;
    const TimePoint now = options_.clock->Now();
    const Duration timeout = limits.deadline > now ? limits.deadline - now : Duration::zero();
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(session->Lookup(
        HostLookupRequest{.queries = queries_, .timeout = timeout, .cancel = limits.cancel},
        &counts));
    CountDegraded(with_statuses, counts);
    for (size_t i = 0; i < kKeyStatusCount; ++i) counts_.by_status[i] += counts.by_status[i];
    if (plans.size() == 1 && limits.unwanted != nullptr &&
        limits.unwanted->load(std::memory_order_relaxed)) {
      break;
    }
  }
  return absl::OkStatus();
}

// Fills queries_ with the next keys_max keys.
void BatchExecutor::AddPiece(Plans plans, bool with_statuses, KeyPlace& place) {
  queries_.clear();
  query_plans_.clear();
  key_count_ = 0;
  while (place.plan < plans.size()) {
    if (place.part == plans[place.plan]->parts.size()) {
      place = {.plan = place.plan + 1};
      continue;
    }
    if (key_count_ == options_.keys_max || queries_.size() == kTablesPerCallMax) return;
    AddPart(*plans[place.plan], with_statuses, place);
  }
}

void BatchExecutor::AddPart(ExecutionPlan& plan, bool with_statuses, KeyPlace& place) {
  const TablePart& part = plan.parts[place.part];
  const size_t key_count = std::min(part.key_count - place.key, options_.keys_max - key_count_);
  const std::byte* key_bytes = part.keys + place.key * sizeof(Key);
  const Key* keys = AsAligned<Key>(key_bytes);
  if (keys == nullptr) {
    std::memcpy(&aligned_keys_[key_count_], key_bytes, key_count * sizeof(Key));
    keys = &aligned_keys_[key_count_];
  }
  query_plans_.push_back(&plan);
  HostTableQuery& query = queries_.emplace_back();
  query.table = {part.table};
  query.keys = {keys, key_count};
  std::byte* const rows = part.rows().is_set() ? plan.At(part.rows()) : part.network_rows;
  query.rows = {rows + place.key * part.row_bytes, key_count * part.row_bytes};
  if (part.status().is_set()) {
    query.status = {AsElements<KeyStatus>(plan.At(part.status())) + place.key, key_count};
  } else if (with_statuses) {
    query.status = {&statuses_[key_count_], key_count};
  }
  key_count_ += key_count;
  place.key += key_count;
  if (place.key == part.key_count) place = {.plan = place.plan, .part = place.part + 1};
}

void BatchExecutor::CountDegraded(bool with_statuses, const LookupCounts& counts) {
  const uint64_t degraded_count = counts[KeyStatus::kDefaultDegraded];
  if (degraded_count == 0) return;
  if (!with_statuses) {
    query_plans_.front()->degraded_count += degraded_count;
    return;
  }
  for (size_t i = 0; i < queries_.size(); ++i) {
    const auto& status = queries_[i].status;
    query_plans_[i]->degraded_count += static_cast<size_t>(
        std::count(status.data(), status.data() + status.size(), KeyStatus::kDefaultDegraded));
  }
}

// Gives the rows of predictions memory here, those of a table together, so that they can go into
// the network as they are.
void BatchExecutor::PlaceRows(Plans plans) {
  // More than this is not kept for the next batch.
  constexpr size_t kKeptFloatsMax = size_t{16} << 20;
  size_t floats = 0;
  uint32_t table_end = 0;
  const auto for_parts = [&](auto visit) {
    for (ExecutionPlan* plan : plans) {
      if (!plan->is_prediction) continue;
      for (TablePart& part : plan->parts)
        if (!part.rows().is_set()) visit(part);
    }
  };
  for_parts([&](const TablePart& part) {
    floats += part.key_count * part.row_bytes / sizeof(float);
    table_end = std::max(table_end, part.table + 1);
  });
  if (network_rows_.size() < floats || network_rows_.size() > std::max(floats, kKeptFloatsMax)) {
    std::vector<float>().swap(network_rows_);
    network_rows_.resize(floats);
  }
  std::byte* next = std::as_writable_bytes(std::span(network_rows_)).data();
  for (uint32_t table = 0; table < table_end; ++table) {
    for_parts([&](TablePart& part) {
      if (part.table != table) return;
      part.network_rows = next;
      next += part.key_count * part.row_bytes;
    });
  }
}

absl::Status BatchExecutor::Predict(ModelVersion& version, Plans plans) {
  HPS_ASSIGN_OR_RETURN(PredictionSession * session, version.prediction_session(options_.slot));
  const NetworkSignature& signature = version.predictor()->signature();
  predictions_.clear();
  for (ExecutionPlan* plan : plans) {
    BindPrediction(signature, *plan);
    predictions_.push_back(&plan->prediction);
  }
  return session->Run(predictions_);
}

}  // namespace hps
