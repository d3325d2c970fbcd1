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
    if (status.ok()) calls = EndAnswered(calls, interrupted || now >= deadline);
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
  for (Place place{.call = first}; place.call != nullptr;) {
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
void BatchRunner::AddPiece(Place& place, bool with_statuses) {
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

void BatchRunner::AddPart(const CallState& call, const TablePart& part, Place& place,
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
  query.rows = {at(part.rows()) + place.key * part.row_bytes, key_count * part.row_bytes};
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

// Ends the calls whose rows have come or whose time is up; returns the others. Where the lookup
// was not ended early, a default row stands for a level that failed: waiting would not help.
CallList BatchRunner::EndAnswered(CallList calls, bool ended_early) {
  calls = EndCancelled(calls);
  const bool is_end = ended_.load(std::memory_order_relaxed);
  CallList again;
  while (CallState* call = calls.Pop()) {
    const bool is_late = ended_early && call->degraded_count != 0;
    if (is_late && !is_end && call->lookup_deadline > options_.clock->Now()) {
      again.Push(call);
    } else {
      EndOne(call, is_late);
    }
  }
  return again;
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

void BatchRunner::EndOne(CallState* call, bool is_late) {
  // A call that was not to wait has got what there was.
  const bool was_to_wait = call->lookup_deadline != Deadline::min();
  if (is_late && was_to_wait) {
    options_.counters->CountDeadlineExceeded(LateStage::kLookup);
    if (options_.late_answers == LateAnswers::kError) {
      call->Finish(TerminalStatuses::Get().late_in_lookup);
      return;
    }
  }
  call->CopyJointOutputs();
  call->Finish(absl::OkStatus());
}

}  // namespace hps::server
