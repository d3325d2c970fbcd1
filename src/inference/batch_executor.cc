#include "inference/batch_executor.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "inference/plan_parts.h"

namespace hps {
namespace {

// A batch whose device fails has waited for its rows once already.
constexpr Duration kSecondLookupMin = std::chrono::seconds(1);

// A device that has not answered one lookup for so long has failed, and so has one whose lookups of
// the parts of a request have taken as long together.
constexpr Duration kAllPartsMax = std::chrono::minutes(1);

bool IsUnwanted(const BatchExecutor::LookupLimits& limits) {
  return limits.unwanted != nullptr && limits.unwanted->load(std::memory_order_relaxed);
}

void Add(const LookupCounts& counts, LookupCounts& sum) {
  for (size_t i = 0; i < kKeyStatusCount; ++i) sum.by_status[i] += counts.by_status[i];
}

template <typename T>
void Widen(const std::byte* from, std::span<Key> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = LoadLittleEndian<T>(from + i * sizeof(T));
}

// Copies keys that are not aligned, or have 32 bits.
void CopyKeys(Datatype type, const std::byte* from, std::span<Key> to) {
  if (type == Datatype::kInt32) return Widen<int32_t>(from, to);
  if (type == Datatype::kUint32) return Widen<uint32_t>(from, to);
  std::memcpy(to.data(), from, to.size_bytes());
}

// Points the prediction of a plan at its rows.
void BindRows(const NetworkSignature& signature, ExecutionPlan& plan) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    plan.prediction.inputs[i].rows = nullptr;
    for (const TablePart& part : plan.parts) {
      if (signature.inputs[i].table != part.table) continue;
      const std::byte* const rows = part.rows().is_set() ? plan.At(part.rows()) : part.network_rows;
      plan.prediction.inputs[i].rows = AsAligned<float>(rows);
    }
  }
}

void BindPrediction(const NetworkSignature& signature, ExecutionPlan& plan) {
  BindRows(signature, plan);
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const size_t output = plan.prediction_outputs[i];
    plan.prediction.outputs[i] = output == OutputPlace::kNone ? nullptr : plan.outputs[output].data;
  }
}

// Names the inputs whose shapes the network leaves open; what the engine says of them, `refusal`,
// is for the log. Where only the batch is open, it is the network that is wrong.
absl::Status ShapesError(const ModelVersion& version, const Prediction& prediction,
                         const absl::Status& refusal) {
  const NetworkSignature& signature = version.predictor()->signature();
  std::vector<std::string> open;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const NetworkSignature::Input& input = signature.inputs[i];
    const PredictionInput& given = prediction.inputs[i];
    const auto& dims = input.sample_dims;
    if (input.table.has_value()) {
      if (input.pooling != RowPooling::kNone || input.sample_keys != 0) continue;
      open.push_back(absl::StrCat("input '", version.tables()[*input.table].name, "' with ",
                                  given.sample_keys, " keys for each sample"));
    } else if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) {
      open.push_back(absl::StrCat("input '", input.name, "' of shape [", prediction.batch, ", ",
                                  absl::StrJoin(given.sample_dims, ", "), "]"));
    }
  }
  if (open.empty()) return absl::InternalError(refusal.message());
  LogWarning(absl::StrCat("a request was refused: ", std::string(refusal.message())));
  return absl::InvalidArgumentError(
      absl::StrCat("the dense network does not take these shapes: ", absl::StrJoin(open, ", ")));
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
  LookupSession& session = version.session(options_.slot);
  counts_ = {};
  deadline_ = limits.deadline;
  const OnDevice on_device = LookUpOnDevice(version, session, plans, limits);
  if (on_device == OnDevice::kDone) return absl::OkStatus();
  rows_ = RowsPlace::kHost;
  LookupLimits on_host = limits;
  // A device that hangs may have taken all of the time: the levels below have the rows.
  if (on_device == OnDevice::kFailed)
    on_host.deadline = std::max(limits.deadline, options_.clock->Now() + kSecondLookupMin);
  return LookUpOnHost(session, plans, on_host);
}

Duration BatchExecutor::TimeUntil(Deadline deadline) const {
  const TimePoint now = options_.clock->Now();
  return deadline > now ? deadline - now : Duration::zero();
}

BatchExecutor::OnDevice BatchExecutor::LookUpOnDevice(ModelVersion& version, LookupSession& session,
                                                      Plans plans, const LookupLimits& limits) {
  if (plans.empty() || !DeviceLookup::Takes(plans)) return OnDevice::kNotTried;
  PredictionSession& network = version.prediction_session(options_.slot);
  RowRoom* const room = network.row_room();
  if (room == nullptr || !device_.Admits(options_.clock->Now())) return OnDevice::kNotTried;
  rows_ = RowsPlace::kDevice;
  const absl::Status looked_up =
      IsForParts(network, plans)
          ? LookUpInParts(version, session, network, *plans.front(), limits)
          : device_lookup_.Run(session, *room, plans,
                               {.timeout = TimeUntil(limits.deadline), .cancel = limits.cancel},
                               counts_);
  if (looked_up.ok()) {
    device_.NoteAnswer();
    return OnDevice::kDone;
  }
  counts_ = {};
  NoteDeviceFailure(looked_up);
  return OnDevice::kFailed;
}

bool BatchExecutor::IsForParts(PredictionSession& network, Plans plans) const {
  if (options_.part_samples == 0 || plans.size() != 1) return false;
  const ExecutionPlan& plan = *plans.front();
  if (!network.TakesParts(plan.prediction)) return false;
  const RowRoom& room = *network.row_room();
  const DeviceLookup::Size size = DeviceLookup::SizeOf(plan);
  return plan.prediction.batch / 2 >= PartSamplesMax(network) || size.keys > room.keys_max() ||
         size.row_bytes > room.row_bytes();
}

uint64_t BatchExecutor::PartSamplesMax(const PredictionSession& network) const {
  return std::bit_floor(std::min(options_.part_samples, network.device_limits().part_samples_max));
}

// As many samples as fit into a part's room if all have as many keys.
uint64_t BatchExecutor::PartSamples(PredictionSession& network, const ExecutionPlan& plan) const {
  const RowRoom& room = *network.row_room();
  const uint64_t batch = plan.prediction.batch;
  const DeviceLookup::Size size = DeviceLookup::SizeOf(plan);
  const uint64_t row_bytes_max = room.part_row_bytes();
  const uint64_t slack = std::min(row_bytes_max, plan.parts.size() * RowRoom::kTableAlignment);
  const uint64_t by_rows = (row_bytes_max - slack) * batch / std::max<uint64_t>(size.row_bytes, 1);
  const uint64_t by_keys = room.keys_max() * batch / std::max<uint64_t>(size.keys, 1);
  return std::bit_floor(
      std::max<uint64_t>(1, std::min({PartSamplesMax(network), by_rows, by_keys})));
}

// Sets part_ to the plan of these samples, or of fewer where their bags have no room. The room
// refuses a single sample that has none.
void BatchExecutor::CutPart(const NetworkSignature& signature, const RowRoom& room,
                            const ExecutionPlan& plan, SampleRange samples) {
  for (;; samples.count = std::bit_ceil(samples.count) / 2) {
    CutPlan(signature, plan, samples, part_);
    const DeviceLookup::Size size = DeviceLookup::SizeOf(part_);
    const bool fits = size.keys <= room.keys_max() && size.row_bytes <= room.part_row_bytes();
    if (fits || samples.count == 1) return;
  }
}

// Each part is looked up while the network runs for the parts before it.
absl::Status BatchExecutor::LookUpInParts(ModelVersion& version, LookupSession& session,
                                          PredictionSession& network, ExecutionPlan& plan,
                                          const LookupLimits& limits) {
  const NetworkSignature& signature = version.predictor()->signature();
  const Deadline parts_end = DeadlineAfter(*options_.clock, kAllPartsMax);
  const Deadline deadline = std::min(limits.deadline, parts_end);
  const uint64_t batch = plan.prediction.batch;
  plan.degraded_count = 0;
  HPS_RETURN_IF_ERROR(network.BeginParts(plan.prediction));
  const uint64_t part_samples = PartSamples(network, plan);
  size_t number = 0;
  for (uint64_t begin = 0; begin < batch; begin += part_.prediction.batch) {
    if (IsUnwanted(limits)) {
      rows_ = RowsPlace::kLost;
      return absl::OkStatus();
    }
    CutPart(signature, *network.row_room(), plan,
            {.begin = begin, .count = std::min(part_samples, batch - begin)});
    ExecutionPlan* const part = &part_;
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(device_lookup_.Run(
        session, *network.row_room(), {&part, 1},
        {.timeout = TimeUntil(deadline), .cancel = limits.cancel, .part = number++}, counts));
    if (deadline < limits.deadline && options_.clock->Now() >= deadline)
      return absl::DeadlineExceededError("the lookups of a request's parts took over a minute");
    Add(counts, counts_);
    plan.degraded_count += part_.degraded_count;
    BindRows(signature, part_);
    HPS_RETURN_IF_ERROR(network.EnqueuePart(part_.prediction, begin));
  }
  rows_ = RowsPlace::kInParts;
  return absl::OkStatus();
}

// Errors of other codes than these concern this batch alone, and its lookup on the host returns
// them again.
void BatchExecutor::NoteDeviceFailure(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    LogWarning(absl::StrCat("a batch of predictions takes its rows through the host: ",
                            TextForLog(status)));
    return;
  }
  const bool is_of_device =
      absl::IsInternal(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!is_of_device) return;
  device_.NoteFailure(options_.clock->Now());
  LogWarning(absl::StrCat("for a second, predictions of lookup slot ", options_.slot,
                          " take their rows through the host: ", TextForLog(status)));
}

absl::Status BatchExecutor::LookUpOnHost(LookupSession& session, Plans plans,
                                         const LookupLimits& limits) {
  // Of a single plan the counts tell whether it is complete.
  const bool with_statuses = plans.size() > 1;
  for (ExecutionPlan* plan : plans) plan->degraded_count = 0;
  PlaceRows(plans);
  for (KeyPlace place; place.plan < plans.size();) {
    AddPiece(plans, with_statuses, place);
    if (queries_.empty()) break;
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(session.Lookup(
        HostLookupRequest{
            .queries = queries_, .timeout = TimeUntil(limits.deadline), .cancel = limits.cancel},
        &counts));
    CountDegraded(with_statuses, counts);
    Add(counts, counts_);
    if (plans.size() == 1 && IsUnwanted(limits)) break;
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
  const size_t key_bytes = DatatypeBytes(part.key_type);
  const std::byte* const given = part.keys + place.key * key_bytes;
  const Key* keys = key_bytes == sizeof(Key) ? AsAligned<Key>(given) : nullptr;
  if (keys == nullptr) {
    CopyKeys(part.key_type, given, {&aligned_keys_[key_count_], key_count});
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
  PredictionSession& session = version.prediction_session(options_.slot);
  const NetworkSignature& signature = version.predictor()->signature();
  const auto bind = [&] {
    predictions_.clear();
    for (ExecutionPlan* plan : plans) {
      BindPrediction(signature, *plan);
      predictions_.push_back(&plan->prediction);
    }
  };
  if (rows_ == RowsPlace::kDevice || rows_ == RowsPlace::kInParts) {
    bind();
    const absl::Status ran = rows_ == RowsPlace::kInParts
                                 ? session.EndParts(plans.front()->prediction)
                                 : session.RunFromRows(predictions_);
    if (ran.ok()) return ran;
    NoteDeviceFailure(ran);
    rows_ = RowsPlace::kLost;
  }
  if (rows_ == RowsPlace::kLost) HPS_RETURN_IF_ERROR(LookUpAgain(version, plans));
  bind();
  absl::Status ran = session.Run(predictions_);
  if (absl::IsInvalidArgument(ran) && plans.size() == 1)
    ran = ShapesError(version, plans.front()->prediction, ran);
  return ran;
}

// The rows on the device are lost, so the rows of these plans are looked up again on the host. It
// is an error if more of them are missing than before: an answer must not have default rows that
// are not counted.
absl::Status BatchExecutor::LookUpAgain(ModelVersion& version, Plans plans) {
  std::vector<size_t> before;
  for (const ExecutionPlan* plan : plans) before.push_back(plan->degraded_count);
  const Deadline at_least = options_.clock->Now() + kSecondLookupMin;
  const LookupCounts counted = counts_;  // each key once, whoever looks at them after Predict
  const absl::Status looked_up = LookUpOnHost(version.session(options_.slot), plans,
                                              {.deadline = std::max(deadline_, at_least)});
  counts_ = counted;
  HPS_RETURN_IF_ERROR(looked_up);
  bool are_all_there = true;
  for (size_t i = 0; i < plans.size(); ++i) {
    are_all_there = are_all_there && plans[i]->degraded_count <= before[i];
    plans[i]->degraded_count = before[i];
  }
  if (are_all_there) return absl::OkStatus();
  return absl::UnavailableError(
      "the device with the rows of the network failed, and they did not come again in time");
}

}  // namespace hps
