#include "query/lookup_session_impl.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "query/call_pieces.h"
#include "types/names.h"

namespace hps {
namespace {

// Longest wait for a device if the host's levels can answer in its place. A device answers in
// microseconds; one that does not answer within this time is down.
constexpr Duration kDeviceWaitMax = std::chrono::seconds(1);
// Longest wait if they can't (outputs on the device), even if the caller would wait longer: a
// thread must come back from a device that hangs.
constexpr Duration kOutputsWaitMax = std::chrono::minutes(1);
// Shortest wait for a device, even if the caller leaves less time or none. A device that works may
// first have to copy the rows of other large calls, and must not be taken for one that hangs.
constexpr Duration kDeviceWaitMin = std::chrono::milliseconds(100);

// The highest level of a lookup that does not ask level 1.
TableLookup::Top TopOnHost(const LiveTable& table) {
  return table.l2().empty() ? TableLookup::Top::kL3 : TableLookup::Top::kL2;
}

// Whether the device itself has failed: one that has no call or no memory left for this lookup
// may answer the next one, and a lookup may have waited for the caller's own work.
bool IsOfDevice(absl::StatusCode failed, bool is_behind_callers_work) {
  if (failed == absl::StatusCode::kDeadlineExceeded) return !is_behind_callers_work;
  return failed == absl::StatusCode::kInternal || failed == absl::StatusCode::kUnavailable;
}

}  // namespace

// ---- The read path ----

absl::Status LookupSessionImpl::Lookup(const HostLookupRequest& request, LookupCounts* counts) {
  return LookupIn(request, counts);
}

absl::Status LookupSessionImpl::Lookup(const DeviceLookupRequest& request, LookupCounts* counts) {
  if (staged_fetch_ == nullptr)
    return absl::UnimplementedError("lookup: device queries need a session on a device");
  return LookupIn(request, counts);
}

template <MemorySpace kSpace>
absl::Status LookupSessionImpl::LookupIn(const LookupRequest<kSpace>& request,
                                         LookupCounts* counts) {
  const LiveModel::Guard guard(model_, reader_,
                               pin_.snapshot());  // one snapshot for the whole call
  HPS_RETURN_IF_ERROR(CheckRequest(request, session_tables_, guard.snapshot()));
  LookupCounts sum;
  try {
    HPS_RETURN_IF_ERROR(LookupPieces(request, guard, sum));
  } catch (const std::bad_alloc&) {
    EndCall(PlaceOf(request), guard);
    return OutOfMemory("lookup: out of memory; try again later");
  }
  if (counts != nullptr) *counts = sum;
  shared_.lookups.Add(number_, 1);
  return absl::OkStatus();
}

// One piece after the other. On a device, the next one is probed while the misses of the present
// one are answered: neither the device nor the host's threads wait for the other.
template <MemorySpace kSpace>
absl::Status LookupSessionImpl::LookupPieces(const LookupRequest<kSpace>& request,
                                             const LiveModel::Guard& guard, LookupCounts& sum) {
  CallPieces<kSpace> pieces(request.queries, options_.keys_max,
                            [this](TableIndex table) { return output_row_bytes(table); });
  BeginCall(request);
  const DeviceCallPlace place = PlaceOf(request);
  BeginPiece(*piece_, pieces.piece(), request, guard.snapshot());
  for (;;) {
    const bool is_last = !pieces.Next();
    const auto begin_next = [&] {
      if (is_last) return;
      BeginPiece(*next_piece_, pieces.piece(), request, guard.snapshot());
      ProbeNextPiece(place);
    };
    HPS_RETURN_IF_ERROR(AnswerPiece(place, guard, begin_next));
    Count(sum);
    level_fetch_.PromoteHeld(guard);
    if (is_last) return absl::OkStatus();
    if (next_piece_ != nullptr && next_piece_->probes) {
      TakeNextPiece();
    } else {
      BeginPiece(*piece_, pieces.piece(), request, guard.snapshot());
    }
  }
}

absl::Status LookupSessionImpl::AnswerPiece(const DeviceCallPlace& place,
                                            const LiveModel::Guard& guard, BeginNext begin_next) {
  if (piece_->cache != nullptr) return AnswerOnDevice(place, guard, begin_next);
  AnswerFromHostLevels(guard);
  return absl::OkStatus();
}

// Fails only where the outputs are on the device: only the cache can write there.
absl::Status LookupSessionImpl::AnswerOnDevice(const DeviceCallPlace& place,
                                               const LiveModel::Guard& guard,
                                               BeginNext begin_next) {
  const bool on_host = place.space == MemorySpace::kHost;
  // A caller who has no other way to the rows may wait for the device.
  const bool may_give_up =
      on_host || (place.stream.handle != nullptr && !place.is_behind_callers_work);
  if (may_give_up && !piece_->probes && !health_->Admits(shared_.fetch.clock().Now())) {
    if (!on_host) {
      return absl::UnavailableError(absl::StrCat("device ", health_->device(),
                                                 " did not answer a lookup in the last second"));
    }
    AnswerWithoutCache(guard);
    return absl::OkStatus();
  }
  absl::Status asked = AnswerThroughCache(place, guard, begin_next);
  if (asked.ok()) {
    health_->NoteAnswer();
    return asked;
  }
  EndCall(place, guard);
  // It is one failure, whatever the number of tables.
  if (!piece_->tables.empty()) piece_->tables.front().counters->l1_errors().Add(asked.code());
  if (IsOfDevice(asked.code(), place.is_behind_callers_work))
    health_->NoteFailure(shared_.fetch.clock().Now(), asked);
  if (!on_host) return asked;  // nothing that it has read is shown
  BypassCache();
  AnswerWithoutCache(guard);
  return absl::OkStatus();
}

void LookupSessionImpl::AnswerWithoutCache(const LiveModel::Guard& guard) {
  RestartCall();
  AnswerFromHostLevels(guard);
  BypassCache();  // also the changes that this call may have shown
}

void LookupSessionImpl::AnswerFromHostLevels(const LiveModel::Guard& guard) {
  const std::span<TableLookup> tables = piece_->tables;
  for (TableLookup& table : tables) FetchDirectly(table);
  FetchFromL2(guard);
  ApplyMissPolicy(TableLookup::Top::kL2, guard);
  level_fetch_.FetchFromL3(tables, guard, deadline_);
  ServeDefaults();
}

// From the parts that have not been asked yet, each for what those before it lack. Returns whether
// there was one to ask.
bool LookupSessionImpl::FetchFromL2(const LiveModel::Guard& guard) {
  bool any = false;
  while (level_fetch_.FetchFromL2(piece_->tables, guard, L2Deadline())) any = true;
  return any;
}

absl::Status LookupSessionImpl::AnswerThroughCache(const DeviceCallPlace& place,
                                                   const LiveModel::Guard& guard,
                                                   BeginNext begin_next) {
  CacheLookup& cache = *piece_->cache;
  const std::span<QueryLookup> queries = piece_->queries;
  const std::span<TableLookup> tables = piece_->tables;
  const MemorySpace space = place.space;
  const auto send_answered = [&] { cache.SendAnswered(queries, DeviceDeadline(space)); };
  const bool is_probed = std::exchange(piece_->probes, false);
  const TimePoint began = shared_.fetch.clock().Now();
  if (!is_probed) HPS_RETURN_IF_ERROR(Probe(place));  // hits go to their places
  begin_next();
  staged_fetch_->set_lookup(cache);
  const Deadline probe_deadline = DeviceDeadline(space);
  if (!cache.reads_level2()) {
    staged_fetch_->CallHelpers();
    staged_fetch_->FetchAhead(tables, queries, probe_deadline);  // while the device probes
  }
  HPS_RETURN_IF_ERROR(cache.TakeMisses(queries, tables, piece_->arena,
                                       std::min(probe_deadline, DeviceDeadline(space))));
  NoteProbe();
  ApplyMissPolicy(TableLookup::Top::kL1, guard);
  // The rest from the first part of level 2, if it can't block.
  staged_fetch_->Fetch(tables, queries, DeviceDeadline(space) - shared_.fetch.clock().Now());
  const bool asks_more_of_l2 = FetchFromL2(guard);
  ApplyMissPolicy(TableLookup::Top::kL2, guard);
  send_answered();  // nothing that is known waits for L3
  HPS_RETURN_IF_ERROR(cache.sent());
  const bool asks_l3 = std::ranges::any_of(
      tables, [](const TableLookup& table) { return !table.misses.pending().empty(); });
  level_fetch_.FetchFromL3(tables, guard, deadline_, send_answered);
  ServeDefaults();
  send_answered();
  staged_fetch_->Promote(tables, guard);  // while the device is at its copies
  const bool is_timed = direct_choice_.wants_time() && !is_probed && !asks_more_of_l2 && !asks_l3 &&
                        !place.is_behind_callers_work;
  HPS_RETURN_IF_ERROR(cache.Finish(queries, DeviceDeadline(space), is_timed));
  if (is_timed) direct_choice_.NoteTime(shared_.fetch.clock().Now() - began);
  return absl::OkStatus();
}

// ---- Its steps, in order ----

template <MemorySpace kSpace>
void LookupSessionImpl::BeginCall(const LookupRequest<kSpace>& request) {
  const Duration timeout = request.timeout.value_or(shared_.timeout);
  may_wait_ = timeout > Duration::zero();
  deadline_ = DeadlineAfter(shared_.fetch.clock(), std::max(timeout, Duration::zero()));
  half_time_ = deadline_ == kNoDeadline ? deadline_ : deadline_ - timeout / 2;
  outputs_deadline_ = std::min(deadline_, DeadlineAfter(shared_.fetch.clock(), kOutputsWaitMax));
  level_fetch_.set_cancel(CancelPoint::Of(request.cancel));
}

template <MemorySpace kSpace>
LookupSessionImpl::DeviceCallPlace LookupSessionImpl::PlaceOf(
    const LookupRequest<kSpace>& request) {
  const bool has_stream = kSpace == MemorySpace::kDevice && request.stream.handle != nullptr;
  return {.space = kSpace,
          .stream = request.stream,
          .is_behind_callers_work = has_stream && !request.stream_is_idle};
}

template <MemorySpace kSpace>
void LookupSessionImpl::BeginPiece(PieceLookup& piece, std::span<const TableQuery<kSpace>> queries,
                                   const LookupRequest<kSpace>& request,
                                   const ModelSnapshot& snapshot) {
  piece.arena.Reset();
  piece.queries.clear();
  piece.tables.clear();
  std::fill(piece.table_by_index.begin(), piece.table_by_index.end(), nullptr);
  for (const TableQuery<kSpace>& query : queries) BeginQuery(piece, query, request, snapshot);
}

template <MemorySpace kSpace>
void LookupSessionImpl::BeginQuery(PieceLookup& piece, const TableQuery<kSpace>& query,
                                   const LookupRequest<kSpace>& request,
                                   const ModelSnapshot& snapshot) {
  TableLookup*& table = piece.table_by_index[query.table.value];
  if (table == nullptr) {
    table = &piece.tables.emplace_back();
    BeginTable(piece, *table, query.table, request.hit_rate_threshold, snapshot);
  }
  table->keys_on_host = kSpace == MemorySpace::kHost;
  QueryLookup& work = piece.queries.emplace_back();
  work.table = table;
  work.keys = query.keys.data();
  work.key_count = query.keys.size();
  work.status = query.status.empty() ? nullptr : query.status.data();
  work.out = OutputRows(
      *table->table, options_.output_dtype == Dtype::kFloat32, query.rows.data(),
      query.row_stride_bytes == 0 ? output_row_bytes(query.table) : query.row_stride_bytes);
  (table->first_query == nullptr ? table->first_query : table->last_query->next_of_table) = &work;
  table->last_query = &work;
}

void LookupSessionImpl::BeginTable(PieceLookup& piece, TableLookup& table, TableIndex index,
                                   std::optional<double> threshold, const ModelSnapshot& snapshot) {
  LiveTable* served = snapshot.table(session_tables_[index.value].slot);
  table.table = served;
  table.counters = session_tables_[index.value].counters;
  table.queries = piece.queries.data();
  table.hit_rate_threshold = threshold.value_or(served->hit_rate_threshold());
  table.epoch = served->epochs().published();
  ListAskedParts(table);
  table.cache = cache_index_;
  const bool has_l1 = cache_index_ != kNoCache && served->l1(cache_index_) != nullptr &&
                      !served->l1_health(cache_index_).quarantined();
  table.top = has_l1 ? TableLookup::Top::kL1 : TopOnHost(*served);
}

absl::Status LookupSessionImpl::Probe(const DeviceCallPlace& place) {
  size_t key_count = 0;
  for (const QueryLookup& query : piece_->queries) key_count += query.key_count;
  return piece_->cache->Begin(piece_->queries, place.space, place.stream,
                              CacheLookup::CallUse::kLookup,
                              direct_choice_.WantsDirectReads(key_count));
}

void LookupSessionImpl::NoteProbe() {
  size_t key_count = 0;
  size_t miss_count = 0;
  for (const TableLookup& table : piece_->tables) {
    key_count += table.key_count();
    miss_count += table.misses.size();
  }
  direct_choice_.NoteMisses(key_count, miss_count);
  const CacheLookup::DirectOutcome& reads = piece_->cache->direct_outcome();
  direct_choice_.NoteReads(reads.asked, reads.answered);
}

// A lookup may hold one device call, and one more for its next piece if the device has one to
// spare. If the device has none or fails, or there is no memory for the piece, the piece is begun
// when its turn comes. The host answers the misses of a piece that is begun ahead: such a piece may
// wait long for the present one, and the device's reads of level 2 must not stay open that long.
void LookupSessionImpl::ProbeNextPiece(const DeviceCallPlace& place) {
  using enum CacheLookup::CallUse;
  CacheLookup& next = *next_piece_->cache;
  const CacheLookup::CallUse use = piece_->cache->use() == kLookup ? kPieceAhead : kLookup;
  try {
    next_piece_->probes = next.Begin(next_piece_->queries, place.space, place.stream, use).ok();
  } catch (const std::bad_alloc&) {
    next_piece_->probes = false;  // the present piece is well
  }
  if (!next_piece_->probes) next.Abandon();
}

void LookupSessionImpl::TakeNextPiece() {
  std::swap(piece_, next_piece_);
  // The last piece may have found that a level 2 fails, or may have used up the time for asking it.
  for (TableLookup& table : piece_->tables) ListAskedParts(table);
}

// Asks the first part of L2, if it can't block, for every position. Then lists the keys that it has
// not answered, each once.
void LookupSessionImpl::FetchDirectly(TableLookup& table) {
  bool asked = false;
  for (QueryLookup* query = table.first_query; query != nullptr; query = query->next_of_table) {
    const bool answered = direct_fetch_->Fetch(table, *query, deadline_);
    asked |= answered;
    if (answered && direct_fetch_->answered_all()) continue;
    const auto number = static_cast<uint32_t>(query - piece_->queries.data());
    for (size_t i = 0; i < query->key_count; ++i) {
      if (!answered || !direct_fetch_->IsAnswered(i))
        piece_->arena.Add(query->keys[i], number, static_cast<uint32_t>(i));
    }
  }
  if (asked) table.asks_l2[0] = false;  // it is asked once
  table.missed_positions = piece_->arena.added_count();
  table.misses = piece_->arena.MakeList();
}

// If the highest level of a table, which has just been asked, held enough of the keys, the call
// does not wait for the other keys: they are fetched in the background. A table that has been
// replaced meanwhile takes no insertions, so its keys would stay pending for ever: the call waits
// for them.
void LookupSessionImpl::ApplyMissPolicy(TableLookup::Top asked, const LiveModel::Guard& guard) {
  for (TableLookup& table : piece_->tables) {
    if (table.top != asked || table.misses.pending().empty() || !IsHitRateReached(table)) continue;
    if (table.table->retired()) continue;
    level_fetch_.FetchInBackground(table, asked == TableLookup::Top::kL1 ? 0 : kLevel3, guard);
  }
}

// The hit rate is 1 - unique misses / (unique misses + positions that hit): both are known without
// looking at the keys again.
bool LookupSessionImpl::IsHitRateReached(const TableLookup& table) {
  if (table.hit_rate_threshold >= 1.0) return false;
  if (table.hit_rate_threshold <= 0.0) return true;
  const uint64_t hit_positions = table.key_count() - table.missed_positions;
  const auto key_count = static_cast<double>(table.misses.size() + hit_positions);
  const auto open_count = static_cast<double>(table.misses.pending().size());
  return 1.0 - open_count / key_count >= table.hit_rate_threshold;
}

// A later piece of a call may have little time left: too little to tell a part that hangs from one
// that works.
void LookupSessionImpl::ListAskedParts(TableLookup& table) const {
  table.asks_l2 = {};
  for (size_t i = 0; i < table.table->l2().size(); ++i) {
    const L2Part& part = table.table->l2()[i];
    table.asks_l2[i] =
        !part.health().quarantined() && (!part.can_block() || deadline_ == kNoDeadline ||
                                         shared_.fetch.clock().Now() <= half_time_);
  }
}

// A part of L2 that hangs must leave those below it time to answer.
Deadline LookupSessionImpl::L2Deadline() const {
  if (deadline_ == kNoDeadline) return kNoDeadline;
  const TimePoint now = shared_.fetch.clock().Now();
  return now + std::max(deadline_ - now, Duration::zero()) / 2;
}

// A device that hangs must leave the host's levels time to answer. If the outputs are on the
// device, the host's levels can't answer: the device has all of the caller's time, in which the
// caller's stream may be at work, too.
Deadline LookupSessionImpl::DeviceDeadline(MemorySpace space) const {
  const TimePoint now = shared_.fetch.clock().Now();
  if (space == MemorySpace::kDevice) {
    if (level_fetch_.is_cancelled()) return now + kDeviceWaitMin;
    // Also where the other levels have taken most of the time.
    const Deadline at_least =
        now + std::clamp<Duration>(deadline_ - now, kDeviceWaitMin, kDeviceWaitMax);
    return std::max(outputs_deadline_, at_least);
  }
  if (deadline_ == kNoDeadline) return now + kDeviceWaitMax;
  return now + std::clamp<Duration>((deadline_ - now) / 2, kDeviceWaitMin, kDeviceWaitMax);
}

void LookupSessionImpl::ServeDefaults() {
  bool any = false;
  for (TableLookup& table : piece_->tables) {
    for (uint32_t index : table.misses.pending()) {
      table.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
      any = true;
    }
    table.misses.ClearPending();
  }
  if (any && may_wait_ && shared_.fetch.clock().Now() >= deadline_)
    shared_.deadlines_exceeded.fetch_add(1, std::memory_order_relaxed);
}

// Ends everything of the call that is under way. Rows that have been fetched already are promoted
// all the same. A caller without a stream may free its outputs on return, so for such a caller this
// waits for the probes, which may write hits there.
void LookupSessionImpl::EndCall(const DeviceCallPlace& place, const LiveModel::Guard& guard) {
  const bool writes_unordered =
      place.space == MemorySpace::kDevice && place.stream.handle == nullptr;
  if (staged_fetch_ != nullptr) {
    staged_fetch_->DismissHelpers();
    for (PieceLookup* piece : {piece_.get(), next_piece_.get()}) {
      if (writes_unordered) piece->cache->WaitForProbe(DeviceDeadline(place.space));
      piece->cache->Abandon();
      piece->probes = false;
    }
  }
  level_fetch_.PromoteHeld(guard);
}

void LookupSessionImpl::BypassCache() {
  for (TableLookup& table : piece_->tables) table.table->l1_health(cache_index_).Quarantine();
}

// The call begins anew, without the cache.
void LookupSessionImpl::RestartCall() {
  piece_->arena.Reset();
  for (QueryLookup& query : piece_->queries) {
    query.staged = false;
    query.direct = false;
    query.counts = LookupCounts();
  }
  for (TableLookup& table : piece_->tables) {
    table.misses = MissList();
    table.missed_positions = 0;
    ListAskedParts(table);
    if (table.top == TableLookup::Top::kL1) table.top = TopOnHost(*table.table);
  }
}

void LookupSessionImpl::Count(LookupCounts& sum) {
  for (const QueryLookup& query : piece_->queries) {
    query.table->counters->Add(number_, query.counts, cache_index_);
    for (size_t i = 0; i < kKeyStatusCount; ++i) sum.by_status[i] += query.counts.by_status[i];
  }
}

// ---- Making a session, and what it knows of the tables ----

absl::StatusOr<std::unique_ptr<LookupSession>> LookupSessionImpl::Create(Parts parts) {
  DeviceCache* const cache = parts.cache;
  try {
    std::unique_ptr<LookupSessionImpl> session(new LookupSessionImpl(std::move(parts)));
    HPS_RETURN_IF_ERROR(session->ListTables());
    session->MakeSteps(cache);
    return session;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("session: no memory for its scratch");
  }
}

LookupSessionImpl::LookupSessionImpl(Parts parts)
    : model_(parts.model),
      pin_(std::move(parts.pin)),
      shared_(parts.shared),
      options_(parts.options),
      cache_index_(parts.cache_index),
      health_(parts.health),
      number_(parts.number),
      reader_(std::move(parts.reader)),
      level_fetch_(shared_.fetch) {}

// Needs the list of tables.
void LookupSessionImpl::MakeSteps(DeviceCache* cache) {
  const auto make_piece = [&] {
    auto piece = std::make_unique<PieceLookup>(options_.keys_max, session_tables_.size());
    if (cache != nullptr)
      piece->cache = std::make_unique<CacheLookup>(*cache, cache_index_, options_.keys_max);
    return piece;
  };
  piece_ = make_piece();
  size_t converted_bytes_max = 0;
  for (const SessionTable& table : session_tables_) {
    if (options_.output_dtype.has_value())
      converted_bytes_max = std::max(converted_bytes_max, table.spec.row_bytes());
  }
  direct_fetch_ = std::make_unique<DirectFetch>(options_.keys_max, converted_bytes_max);
  if (cache == nullptr) return;
  next_piece_ = make_piece();
  staged_fetch_ =
      std::make_unique<StagedFetch>(StagedFetch::Options{.service = &shared_.fetch,
                                                         .lookup = piece_->cache.get(),
                                                         .keys_max = options_.keys_max,
                                                         .team = shared_.teams.Acquire(),
                                                         .tuning = shared_.tuning});
}

absl::Status LookupSessionImpl::ListTables() {
  const LiveModel::Guard guard(model_, reader_, pin_.snapshot());
  if (guard.snapshot().number() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("session: model '", model_.name(), "' has no tables yet"));
  }
  if (guard.snapshot().unloaded()) {
    return absl::UnavailableError(
        absl::StrCat("session: model '", model_.name(), "' was unloaded; load it to use it again"));
  }
  for (const auto& served : guard.snapshot().tables()) {
    SessionTable table{.spec = served->spec(), .slot = model_.SlotOf(served->spec().name)};
    table.counters = &model_.counters(table.slot);
    table.output_row_bytes = options_.output_dtype.has_value()
                                 ? size_t{table.spec.dim} * sizeof(float)
                                 : table.spec.row_bytes();
    specs_.push_back(table.spec);
    session_tables_.push_back(std::move(table));
  }
  return absl::OkStatus();
}

absl::StatusOr<TableIndex> LookupSessionImpl::FindTable(std::string_view name) const {
  const bool has_model = name.find('/') != std::string_view::npos;
  const std::string full_name =
      has_model ? std::string(name) : absl::StrCat(model_.name(), "/", std::string(name));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].name == full_name) return TableIndex{i};
    names.push_back(specs_[i].name);
  }
  return absl::NotFoundError(absl::StrCat("session: model '", model_.name(), "' has no table '",
                                          std::string(name), "'",
                                          NearestNameHint(full_name, names)));
}

size_t LookupSessionImpl::output_row_bytes(TableIndex table) const {
  return table.value < session_tables_.size() ? session_tables_[table.value].output_row_bytes : 0;
}

}  // namespace hps
