#include "query/lookup_session.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/names.h"

namespace hps {
namespace {

// Rows that are fetched before they are converted: few enough to stay in a core's cache.
constexpr size_t kConvertChunkKeys = 256;

// A device answers in microseconds; one that does not within this is down. It is waited for also
// where the caller's deadline is shorter, because the buffers are its own until it is done.
constexpr Duration kDeviceWaitMax = std::chrono::seconds(1);

}  // namespace

// ---- The read path ----

absl::Status LevelSession::Lookup(const HostLookupRequest& request, LookupCounts* counts) {
  return LookupIn(request, counts);
}

absl::Status LevelSession::Lookup(const DeviceLookupRequest& request, LookupCounts* counts) {
  if (cache_lookup_ == nullptr)
    return absl::UnimplementedError("look-up: device queries need a session on a device");
  if (options_.output_dtype.has_value()) {
    return absl::UnimplementedError(
        "look-up: device queries are answered in the table's own dtype only; make the session "
        "without an output dtype");
  }
  return LookupIn(request, counts);
}

template <MemorySpace kSpace>
absl::Status LevelSession::LookupIn(const LookupRequest<kSpace>& request, LookupCounts* counts) {
  const ModelState::Guard guard(model_, reader_);  // one snapshot for the whole call
  HPS_RETURN_IF_ERROR(
      CheckRequest(request, {.tables = tables_, .keys_max = options_.keys_max}, guard.snapshot()));
  BeginCall(request, guard.snapshot());
  if (cache_lookup_ == nullptr) {
    AnswerFromHostLevels(guard);
  } else if (absl::Status failed = AnswerThroughCache(kSpace, request.stream, guard);
             !failed.ok()) {
    level_fetch_.PromoteHeld(guard);
    if (kSpace == MemorySpace::kDevice) return failed;  // only the cache can write there
    RestartCall();
    AnswerFromHostLevels(guard);
    PassByCache();  // also the changes that this call may have shown
  }
  Count(counts);
  level_fetch_.PromoteHeld(guard);
  return absl::OkStatus();
}

void LevelSession::AnswerFromHostLevels(const ModelState::Guard& guard) {
  for (QueryWork& work : works_) {
    const bool l2_has_answered = work.out.converts() ? FetchL2Converted(work)  //
                                                     : FetchL2IntoOutput(work);
    CollectMisses(work, l2_has_answered);
  }
  level_fetch_.Fetch(works_, FetchJob::Level::kL2, guard, L2Deadline());  // those that can block
  ApplyMissPolicy(QueryWork::Top::kL2, guard);
  level_fetch_.Fetch(works_, FetchJob::Level::kL3, guard, deadline_);
  ServeDefaults();
}

absl::Status LevelSession::AnswerThroughCache(MemorySpace space, Stream stream,
                                              const ModelState::Guard& guard) {
  const Deadline device_deadline =
      std::max(deadline_, DeadlineAfter(shared_.fetch.clock(), kDeviceWaitMax));
  absl::Status status = cache_lookup_->Probe(works_, space, stream, arena_, device_deadline);
  if (status.ok()) {
    ApplyMissPolicy(QueryWork::Top::kL1, guard);
    level_fetch_.Fetch(works_, FetchJob::Level::kL2, guard, L2Deadline());
    ApplyMissPolicy(QueryWork::Top::kL2, guard);
    level_fetch_.Fetch(works_, FetchJob::Level::kL3, guard, deadline_);
    ServeDefaults();
    status = cache_lookup_->Finish(works_, space, device_deadline);
  }
  if (status.ok()) return status;
  PassByCache();
  for (QueryWork& work : works_) work.counters->l1_errors().fetch_add(1, std::memory_order_relaxed);
  return status;
}

// ---- Its steps, in order ----

template <MemorySpace kSpace>
void LevelSession::BeginCall(const LookupRequest<kSpace>& request, const ModelSnapshot& snapshot) {
  const Duration timeout = request.timeout.value_or(shared_.timeout);
  may_wait_ = timeout > Duration::zero();
  deadline_ = DeadlineAfter(shared_.fetch.clock(), std::max(timeout, Duration::zero()));
  arena_.Reset();
  works_.clear();
  for (const TableQuery<kSpace>& query : request.queries) BeginQuery(query, request, snapshot);
}

template <MemorySpace kSpace>
void LevelSession::BeginQuery(const TableQuery<kSpace>& query, const LookupRequest<kSpace>& request,
                              const ModelSnapshot& snapshot) {
  const SessionTable& table = tables_[query.table];
  ServedTable* served = snapshot.table(table.slot);
  QueryWork work;
  work.table = served;
  work.counters = table.counters;
  work.keys = query.keys.data();
  work.key_count = query.keys.size();
  work.status = query.status.empty() ? nullptr : query.status.data();
  work.out =
      RowWriter(*served, options_.output_dtype == Dtype::kFloat32, query.rows.data(),
                query.row_stride_bytes == 0 ? table.output_row_bytes : query.row_stride_bytes);
  work.keys_on_host = kSpace == MemorySpace::kHost;
  work.hit_rate_threshold = request.hit_rate_threshold.value_or(served->hit_rate_threshold());
  work.epoch = served->epochs().published();
  work.l2_usable = served->l2() != nullptr && !served->l2_bypass().bypassed();
  work.cache = cache_index_;
  const bool has_l1 = cache_index_ != kNoCache && served->l1(cache_index_) != nullptr &&
                      !served->l1_bypass(cache_index_).bypassed();
  work.top = has_l1                    ? QueryWork::Top::kL1
             : served->l2() != nullptr ? QueryWork::Top::kL2
                                       : QueryWork::Top::kL3;
  works_.push_back(work);
}

void LevelSession::PassByCache() {
  for (QueryWork& work : works_) work.table->l1_bypass(cache_index_).Trip();
}

// The cache has failed: the call begins anew without it.
void LevelSession::RestartCall() {
  arena_.Reset();
  for (QueryWork& work : works_) {
    work.misses = MissList();
    work.staged = false;
    work.counts = LookupCounts();
    if (work.top == QueryWork::Top::kL1)
      work.top = work.table->l2() != nullptr ? QueryWork::Top::kL2 : QueryWork::Top::kL3;
  }
}

// An L2 that can't block writes straight into the caller's rows, all positions, duplicates
// included. False: it was not asked, or it failed.
bool LevelSession::FetchL2IntoOutput(QueryWork& work) {
  if (!work.l2_usable || work.table->l2()->can_block() || work.key_count == 0) return false;
  const FetchBatch batch = {.keys = {work.keys, work.key_count},
                            .rows = {.data = work.out.row(0),
                                     .row_count = work.key_count,
                                     .row_bytes = work.table->row_bytes(),
                                     .stride_bytes = work.out.stride_bytes()},
                            .outcomes = {outcomes_.get(), work.key_count}};
  return NoteL2Outcomes(work, work.table->l2()->Fetch(batch, deadline_));
}

// The same for rows that have to be converted on their way, by way of a small buffer.
bool LevelSession::FetchL2Converted(QueryWork& work) {
  if (!work.l2_usable || work.table->l2()->can_block() || work.key_count == 0) return false;
  const size_t row_bytes = work.table->row_bytes();
  absl::StatusOr<FetchCounts> sum = FetchCounts();
  for (size_t first = 0; first < work.key_count; first += kConvertChunkKeys) {
    const size_t count = std::min(kConvertChunkKeys, work.key_count - first);
    const std::span<FetchOutcome> outcomes(outcomes_.get() + first, count);
    const FetchBatch batch = {.keys = {work.keys + first, count},
                              .rows = {.data = native_rows_.data(),
                                       .row_count = count,
                                       .row_bytes = row_bytes,
                                       .stride_bytes = row_bytes},
                              .outcomes = outcomes};
    const absl::StatusOr<FetchCounts> counts = work.table->l2()->Fetch(batch, deadline_);
    if (!counts.ok()) return NoteL2Outcomes(work, counts);
    sum->hits += counts->hits;
    for (size_t i = 0; i < count; ++i) {
      if (outcomes[i] == FetchOutcome::kHit)
        work.out.Write(first + i, native_rows_.data() + i * row_bytes);
    }
  }
  return NoteL2Outcomes(work, sum);
}

// L2 has written the rows of its hits; this gives them their status, and the default row to what L2
// knows to be absent.
bool LevelSession::NoteL2Outcomes(QueryWork& work, const absl::StatusOr<FetchCounts>& counts) {
  if (!counts.ok()) {
    work.table->l2_bypass().Trip();
    work.counters->l2_errors().fetch_add(1, std::memory_order_relaxed);
    work.l2_usable = false;
    return false;
  }
  work.counts[KeyStatus::kHitL2] += counts->hits;
  if (counts->hits == work.key_count) {
    if (work.status != nullptr) std::fill_n(work.status, work.key_count, KeyStatus::kHitL2);
    return true;
  }
  for (size_t i = 0; i < work.key_count; ++i) {
    if (outcomes_[i] == FetchOutcome::kHit) {
      if (work.status != nullptr) work.status[i] = KeyStatus::kHitL2;
    } else if (outcomes_[i] == FetchOutcome::kAbsent) {
      work.AnswerPosition(i, KeyStatus::kAbsent, nullptr);
    }
  }
  return true;
}

// De-duplicates what is not answered yet.
void LevelSession::CollectMisses(QueryWork& work, bool l2_has_answered) {
  work.l2_usable &= !l2_has_answered;  // it is asked once
  const bool all_hit = l2_has_answered && work.counts[KeyStatus::kHitL2] == work.key_count;
  for (size_t i = 0; i < work.key_count && !all_hit; ++i) {
    const bool answered = l2_has_answered && (outcomes_[i] == FetchOutcome::kHit ||
                                              outcomes_[i] == FetchOutcome::kAbsent);
    if (!answered) arena_.Add(work.keys[i], static_cast<uint32_t>(i));
  }
  work.misses = arena_.MakeList();
  work.missed_positions = 0;
}

// Where the highest level, which has just been asked, held enough of the keys, the call does not
// wait for the others.
void LevelSession::ApplyMissPolicy(QueryWork::Top asked, const ModelState::Guard& guard) {
  for (QueryWork& work : works_) {
    if (work.top != asked || work.misses.open().empty() || !IsHitRateReached(work)) continue;
    const bool ask_l2 = asked == QueryWork::Top::kL1 && work.l2_usable;
    level_fetch_.FetchInBackground(work, ask_l2 ? FetchJob::Level::kL2 : FetchJob::Level::kL3,
                                   guard);
  }
}

bool LevelSession::IsHitRateReached(const QueryWork& work) {
  if (work.hit_rate_threshold >= 1.0) return false;
  if (work.hit_rate_threshold <= 0.0) return true;
  const size_t open_count = work.misses.open().size();
  // Keys on a device are not read for this: its hits are counted with duplicates.
  const size_t unique_count = work.keys_on_host
                                  ? arena_.CountUnique({work.keys, work.key_count})
                                  : work.key_count - work.missed_positions + work.misses.size();
  const double hit_rate = 1.0 - static_cast<double>(open_count) / static_cast<double>(unique_count);
  return hit_rate >= work.hit_rate_threshold;
}

// An L2 that hangs must leave L3 time to answer.
Deadline LevelSession::L2Deadline() const {
  if (deadline_ == kNoDeadline) return kNoDeadline;
  const TimePoint now = shared_.fetch.clock().Now();
  return now + std::max(deadline_ - now, Duration::zero()) / 2;
}

void LevelSession::ServeDefaults() {
  bool any = false;
  for (QueryWork& work : works_) {
    for (uint32_t index : work.misses.open()) {
      work.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
      any = true;
    }
    work.misses.CloseAll();
  }
  if (any && may_wait_ && shared_.fetch.clock().Now() >= deadline_)
    shared_.deadlines_exceeded.fetch_add(1, std::memory_order_relaxed);
}

void LevelSession::Count(LookupCounts* counts) {
  LookupCounts sum;
  for (const QueryWork& work : works_) {
    work.counters->Add(number_, work.counts, cache_index_);
    for (size_t i = 0; i < kKeyStatusCount; ++i) sum.by_status[i] += work.counts.by_status[i];
  }
  if (counts != nullptr) *counts = sum;
  shared_.lookups.fetch_add(1, std::memory_order_relaxed);
}

// ---- Making a session, and what it knows of the tables ----

absl::StatusOr<std::unique_ptr<LookupSession>> LevelSession::Create(Parts parts) {
  try {
    std::unique_ptr<LevelSession> session(new LevelSession(std::move(parts)));
    HPS_RETURN_IF_ERROR(session->ListTables());
    return session;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("session: no memory for its scratch");
  }
}

LevelSession::LevelSession(Parts parts)
    : model_(parts.model),
      shared_(parts.shared),
      options_(parts.options),
      cache_(parts.cache),
      cache_index_(parts.cache_index),
      number_(parts.number),
      reader_(std::move(parts.reader)),
      arena_(options_.keys_max, kTablesPerCallMax),
      outcomes_(new FetchOutcome[options_.keys_max]),
      level_fetch_(shared_.fetch) {
  works_.reserve(kTablesPerCallMax);
  if (cache_ != nullptr) cache_lookup_ = std::make_unique<CacheLookup>(*cache_, cache_index_);
}

absl::Status LevelSession::ListTables() {
  const ModelState::Guard guard(model_, reader_);
  if (guard.snapshot().number() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("session: model '", model_.name(), "' has no tables yet"));
  }
  size_t row_bytes_max = 0;
  for (const auto& served : guard.snapshot().tables()) {
    SessionTable table{.spec = served->spec(), .slot = model_.SlotOf(served->spec().name)};
    table.counters = &model_.counters(table.slot);
    table.output_row_bytes = options_.output_dtype.has_value()
                                 ? size_t{table.spec.dim} * sizeof(float)
                                 : table.spec.row_bytes();
    row_bytes_max = std::max(row_bytes_max, table.spec.row_bytes());
    tables_.push_back(std::move(table));
  }
  if (options_.output_dtype.has_value()) native_rows_.resize(kConvertChunkKeys * row_bytes_max);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> LevelSession::FindTable(std::string_view name) const {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i].spec.name == name) return i;
    names.push_back(tables_[i].spec.name);
  }
  return absl::NotFoundError(absl::StrCat("session: model '", model_.name(), "' has no table '",
                                          std::string(name), "'", DidYouMean(name, names)));
}

std::vector<TableSpec> LevelSession::tables() const {
  std::vector<TableSpec> specs;
  for (const SessionTable& table : tables_) specs.push_back(table.spec);
  return specs;
}

size_t LevelSession::output_row_bytes(uint32_t table) const {
  return table < tables_.size() ? tables_[table].output_row_bytes : 0;
}

}  // namespace hps
