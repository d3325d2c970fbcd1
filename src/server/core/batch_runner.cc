#include "server/core/batch_runner.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "server/core/server_model.h"

namespace hps::server {
namespace {

Deadline EarliestDeadline(const CallState* first) {
  Deadline earliest = kNoDeadline;
  for (const CallState* call = first; call != nullptr; call = call->next)
    earliest = std::min(earliest, call->lookup_deadline);
  return earliest;
}

// Points the prediction of a call at its rows and outputs.
void BindPrediction(const NetworkSignature& signature, CallState& call) {
  const auto at = [&](const OutputPlace& place) {
    return call.call->outputs[place.output].data + place.offset_bytes;
  };
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    call.prediction.inputs[i].rows = nullptr;
    for (const TablePart& part : call.parts) {
      if (signature.inputs[i].table != part.table) continue;
      const std::byte* const rows = part.rows().is_set() ? at(part.rows()) : part.network_rows;
      call.prediction.inputs[i].rows = AsAligned<float>(rows);
    }
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const size_t output = call.prediction_outputs[i];
    call.prediction.outputs[i] =
        output == OutputPlace::kNone ? nullptr : call.call->outputs[output].data;
  }
}

}  // namespace

BatchRunner::BatchRunner(const Options& options)
    : options_(options),
      aligned_keys_(new Key[options.keys_max]),
      statuses_(new KeyStatus[options.keys_max]) {
  queries_.reserve(kTablesPerCallMax);
}

void BatchRunner::Run(CallList calls) {
  const ModelVersionRef version = calls.head()->version.Share();
  ModelCounters& counters = calls.head()->model->counters;
  const size_t call_count = calls.size();
  counters.CountBatch(call_count);
  absl::Status status;
  calls = EndCancelled(calls);
  while (status.ok() && !calls.empty()) {
    const Deadline deadline = EarliestDeadline(calls.head());
    BeginLookUp(calls.head());
    const TimePoint begun_at = options_.clock->Now();
    status = LookUp(*version, calls.head(), deadline);
    const bool interrupted = EndLookUp(calls.head());
    const TimePoint now = options_.clock->Now();
    counters.AddBatchTime(call_count, now - begun_at);
    if (status.ok()) calls = EndAnswered(*version, calls, interrupted || now >= deadline);
  }
  while (CallState* call = calls.Pop()) call->Finish(status);
}

void BatchRunner::Interrupt(const CallState& call) {
  MutexLock lock(mutex_);
  if (call.in_lookup) cancel_.Cancel();
}

void BatchRunner::End() {
  MutexLock lock(mutex_);
  ended_.store(true, std::memory_order_relaxed);
  cancel_.Cancel();
}

// Who cancels a call marks it first and then comes here for the lock: so either it finds the call
// in the lookup, or the mark is seen.
void BatchRunner::BeginLookUp(CallState* first) {
  MutexLock lock(mutex_);
  cancel_.Reset();
  bool is_in_vain = ended_.load(std::memory_order_relaxed);
  for (CallState* call = first; call != nullptr; call = call->next) {
    call->in_lookup = true;
    is_in_vain |= call->cancelled.load(std::memory_order_relaxed);
  }
  if (is_in_vain) cancel_.Cancel();
}

// Whether it was interrupted.
bool BatchRunner::EndLookUp(CallState* first) {
  MutexLock lock(mutex_);
  for (CallState* call = first; call != nullptr; call = call->next) call->in_lookup = false;
  return cancel_.is_cancelled();
}

// Looks up all parts of the calls, in as many lookups as they take.
absl::Status BatchRunner::LookUp(ModelVersion& version, CallState* first, Deadline deadline) {
  try {
    HPS_ASSIGN_OR_RETURN(LookupSession * session, version.session(options_.slot));
    return LookUpIn(*session, first, deadline);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory; try again later");
  }
}

absl::Status BatchRunner::LookUpIn(LookupSession& session, CallState* first, Deadline deadline) {
  // Of a single call the counts tell whether it is complete.
  const bool with_statuses = first->next != nullptr;
  for (CallState* call = first; call != nullptr; call = call->next) call->degraded_count = 0;
  PlaceRows(first);
  for (KeyPlace place{.call = first}; place.call != nullptr;) {
    AddPiece(place, with_statuses);
    if (queries_.empty()) break;
    const TimePoint now = options_.clock->Now();
    const Duration timeout = deadline > now ? deadline - now : Duration::zero();
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(session.Lookup(
        HostLookupRequest{.queries = queries_, .timeout = timeout, .cancel = &cancel_}, &counts));
    CountDegraded(first, with_statuses, counts);
    if (first->cancelled.load(std::memory_order_relaxed) && first->next == nullptr) break;
  }
  return absl::OkStatus();
}

// Fills queries_ with the next keys_max keys.
void BatchRunner::AddPiece(KeyPlace& place, bool with_statuses) {
  queries_.clear();
  key_count_ = 0;
  while (place.call != nullptr) {
    if (place.part == place.call->parts.size()) {
      place = {.call = place.call->next};
      continue;
    }
    if (key_count_ == options_.keys_max || queries_.size() == kTablesPerCallMax) return;
    AddPart(*place.call, place.call->parts[place.part], place, with_statuses);
  }
}

void BatchRunner::AddPart(const CallState& call, const TablePart& part, KeyPlace& place,
                          bool with_statuses) {
  const size_t key_count = std::min(part.key_count - place.key, options_.keys_max - key_count_);
  const std::byte* key_bytes = part.keys + place.key * sizeof(Key);
  const Key* keys = AsAligned<Key>(key_bytes);
  if (keys == nullptr) {
    std::memcpy(&aligned_keys_[key_count_], key_bytes, key_count * sizeof(Key));
    keys = &aligned_keys_[key_count_];
  }
  const auto at = [&](const OutputPlace& output) {
    return call.call->outputs[output.output].data + output.offset_bytes;
  };
  HostTableQuery& query = queries_.emplace_back();
  query.table = {part.table};
  query.keys = {keys, key_count};
  std::byte* const rows = part.rows().is_set() ? at(part.rows()) : part.network_rows;
  query.rows = {rows + place.key * part.row_bytes, key_count * part.row_bytes};
  if (part.status().is_set()) {
    query.status = {AsElements<KeyStatus>(at(part.status())) + place.key, key_count};
  } else if (with_statuses) {
    query.status = {&statuses_[key_count_], key_count};
  }
  key_count_ += key_count;
  place.key += key_count;
  if (place.key == part.key_count) place = {.call = place.call, .part = place.part + 1};
}

void BatchRunner::CountDegraded(CallState* first, bool with_statuses, const LookupCounts& counts) {
  const uint64_t degraded_count = counts[KeyStatus::kDefaultDegraded];
  if (degraded_count == 0) return;
  if (!with_statuses) {
    first->degraded_count += degraded_count;
    return;
  }
  const HostTableQuery* query = queries_.data();
  for (CallState* call = first; call != nullptr; call = call->next) {
    for (size_t i = 0; i < call->parts.size(); ++i, ++query) {
      call->degraded_count += static_cast<size_t>(
          std::count(query->status.data(), query->status.data() + query->status.size(),
                     KeyStatus::kDefaultDegraded));
    }
  }
}

// Gives the rows of predictions memory here, those of a table together, so that they can go into
// the network as they are.
void BatchRunner::PlaceRows(CallState* first) {
  // More than this is not kept for the next batch.
  constexpr size_t kKeptFloatsMax = size_t{16} << 20;
  size_t floats = 0;
  uint32_t table_end = 0;
  const auto for_parts = [&](auto visit) {
    for (CallState* call = first; call != nullptr; call = call->next) {
      if (!call->is_prediction) continue;
      for (TablePart& part : call->parts)
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

// Ends the calls whose rows have come or whose time is up; returns the others. Where the lookup
// was not ended early, a default row stands for a level that failed: waiting would not help.
CallList BatchRunner::EndAnswered(ModelVersion& version, CallList calls, bool ended_early) {
  calls = EndCancelled(calls);
  const bool is_end = ended_.load(std::memory_order_relaxed);
  CallList again;
  CallList to_predict;
  while (CallState* call = calls.Pop()) {
    const bool is_late = ended_early && call->degraded_count != 0;
    if (is_late && !is_end && call->lookup_deadline > options_.clock->Now()) {
      again.Push(call);
    } else if (is_late && EndLate(call)) {
      continue;
    } else if (call->is_prediction) {
      to_predict.Push(call);
    } else {
      call->CopyJointOutputs();
      call->Finish(absl::OkStatus());
    }
  }
  Predict(version, to_predict);
  return again;
}

// Runs the network for all of them and ends them. A request that fails takes no other with it.
void BatchRunner::Predict(ModelVersion& version, CallList calls) {
  if (calls.empty()) return;
  const absl::Status status = RunNetwork(version, calls);
  const bool is_one = calls.size() == 1;
  while (CallState* call = calls.Pop()) {
    absl::Status ended = status;
    if (!status.ok() && !is_one) {
      CallList alone;
      alone.Push(call);
      ended = RunNetwork(version, alone);
    }
    if (ended.ok()) call->CopyJointOutputs();
    call->Finish(ended);
  }
}

absl::Status BatchRunner::RunNetwork(ModelVersion& version, const CallList& calls) {
  try {
    HPS_ASSIGN_OR_RETURN(PredictionSession * session, version.prediction_session(options_.slot));
    const NetworkSignature& signature = version.predictor()->signature();
    predictions_.clear();
    for (CallState* call = calls.head(); call != nullptr; call = call->next) {
      BindPrediction(signature, *call);
      predictions_.push_back(&call->prediction);
    }
    return session->Run(predictions_);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory; try again later");
  }
}

// Ends the calls that nobody wants any more; returns the others.
CallList BatchRunner::EndCancelled(CallList calls) {
  CallList others;
  while (CallState* call = calls.Pop()) {
    if (call->cancelled.load(std::memory_order_relaxed)) {
      call->Finish(TerminalStatuses::Get().cancelled);
    } else {
      others.Push(call);
    }
  }
  return others;
}

// Ends a call whose rows have not all come, where that is an error; else it is answered.
bool BatchRunner::EndLate(CallState* call) {
  // A call that was not to wait has got what there was.
  if (call->lookup_deadline == Deadline::min()) return false;
  options_.counters->CountDeadlineExceeded(LateStage::kLookup);
  if (options_.late_answers != LateAnswers::kError) return false;
  call->Finish(TerminalStatuses::Get().late_in_lookup);
  return true;
}

}  // namespace hps::server
