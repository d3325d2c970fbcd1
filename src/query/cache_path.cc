#include "query/cache_path.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// Whether the device itself has failed: one that has no call or no memory left for this lookup
// may answer the next one, and a lookup may have waited for the caller's own work.
bool IsOfDevice(absl::StatusCode failed, bool is_behind_callers_work) {
  if (failed == absl::StatusCode::kDeadlineExceeded) return !is_behind_callers_work;
  return failed == absl::StatusCode::kInternal || failed == absl::StatusCode::kUnavailable;
}

void BypassCache(const PieceLookup& piece) {
  for (const TableLookup& table : piece.tables) table.table->l1_health(table.cache).Quarantine();
}

}  // namespace

CachePath::CachePath(SessionShared& shared, HostLevels& host, const CallDeadlines& deadlines,
                     DeviceHealth& health, size_t keys_max)
    : host_(host),
      deadlines_(deadlines),
      clock_(shared.fetch->clock()),
      health_(health),
      staged_fetch_(*shared.fetch, keys_max, shared.teams.Acquire(), shared.tuning) {}

absl::Status CachePath::Answer(PieceLookup& piece, PieceLookup& next, const LiveModel::Guard& guard,
                               BeginNext begin_next) {
  const bool on_host = place_.space == MemorySpace::kHost;
  // A caller who has no other way to the rows may wait for the device.
  const bool may_give_up =
      on_host || (place_.stream.handle != nullptr && !place_.is_behind_callers_work);
  if (may_give_up && !piece.cache->is_probing() && !health_.Admits(clock_.Now())) {
    if (!on_host) {
      return absl::UnavailableError(
          absl::StrCat("device ", health_.device(), " did not answer a lookup in the last second"));
    }
    AnswerWithoutDevice(piece, guard);
    return absl::OkStatus();
  }
  absl::Status asked = AnswerByDevice(piece, guard, begin_next);
  if (asked.ok()) {
    health_.NoteAnswer();
    return asked;
  }
  Abandon(piece, next);
  host_.PromoteHeld(guard);
  // It is one failure, whatever the number of tables.
  if (!piece.tables.empty()) piece.tables.front().counters->l1_errors().Add(asked.code());
  if (IsOfDevice(asked.code(), place_.is_behind_callers_work))
    health_.NoteFailure(clock_.Now(), asked);
  if (!on_host) return asked;  // nothing that it has read is shown
  BypassCache(piece);
  AnswerWithoutDevice(piece, guard);
  return absl::OkStatus();
}

absl::Status CachePath::AnswerByDevice(PieceLookup& piece, const LiveModel::Guard& guard,
                                       BeginNext begin_next) {
  CacheLookup& cache = *piece.cache;
  const std::span<QueryLookup> queries = piece.queries;
  const std::span<TableLookup> tables = piece.tables;
  const auto device_deadline = [&] { return deadlines_.OfDevice(place_.space); };
  const auto send_answered = [&] { cache.SendAnswered(queries, device_deadline()); };
  const bool is_probed = cache.is_probing();
  const TimePoint began = clock_.Now();
  if (!is_probed) {  // hits go to their places
    HPS_RETURN_IF_ERROR(
        cache.Begin(queries, place_.space, place_.stream, CacheLookup::CallUse::kLookup, &route_));
  }
  begin_next();
  const Deadline probe_deadline = device_deadline();
  staged_fetch_.Begin(cache, tables);
  if (!cache.reads_level2()) staged_fetch_.FetchAhead(tables, probe_deadline);
  HPS_ASSIGN_OR_RETURN(
      const ProbeFigures found,
      cache.TakeMisses(queries, tables, piece.arena, std::min(probe_deadline, device_deadline())));
  route_.NoteProbe(found);
  host_.ApplyMissPolicy(piece, TableLookup::Top::kL1, guard);
  // The rest from the first part of level 2, if it can't block.
  staged_fetch_.Fetch(tables, device_deadline() - clock_.Now());
  const bool asks_more_of_l2 = host_.FetchFromL2(piece, guard);
  host_.ApplyMissPolicy(piece, TableLookup::Top::kL2, guard);
  send_answered();  // nothing that is known waits for L3
  HPS_RETURN_IF_ERROR(cache.sent());
  const bool asks_l3 = std::ranges::any_of(
      tables, [](const TableLookup& table) { return !table.misses.pending().empty(); });
  host_.AnswerRest(piece, guard, send_answered);
  send_answered();
  staged_fetch_.Promote(tables, guard);  // while the device is at its copies
  const bool is_timed = route_.wants_time() && !is_probed && !asks_more_of_l2 && !asks_l3 &&
                        !place_.is_behind_callers_work;
  HPS_RETURN_IF_ERROR(cache.Finish(queries, device_deadline(), is_timed));
  if (is_timed) route_.NoteTime(clock_.Now() - began);
  return absl::OkStatus();
}

// Resets the piece and has the host's levels answer all of its keys.
void CachePath::AnswerWithoutDevice(PieceLookup& piece, const LiveModel::Guard& guard) {
  piece.arena.Reset();
  for (QueryLookup& query : piece.queries) {
    query.staged = false;
    query.direct = false;
    query.counts = LookupCounts();
  }
  for (TableLookup& table : piece.tables) {
    table.misses = MissList();
    table.missed_positions = 0;
    host_.ListAskedParts(table);
    if (table.top == TableLookup::Top::kL1) table.top = TableLookup::TopOnHost(*table.table);
  }
  host_.Answer(piece, guard);
  BypassCache(piece);  // also the changes that this call may have shown
}

// A lookup may hold one device call, and one more for its next piece if the device has one to
// spare. The host answers the misses of a piece that is begun ahead: such a piece may wait long for
// the present one, and the device's reads of level 2 must not stay open that long.
void CachePath::ProbeAhead(PieceLookup& next, const PieceLookup& present) {
  using enum CacheLookup::CallUse;
  const CacheLookup::CallUse use = present.cache->use() == kLookup ? kPieceAhead : kLookup;
  try {
    if (next.cache->Begin(next.queries, place_.space, place_.stream, use).ok()) return;
  } catch (const std::bad_alloc&) {  // the present piece is well
  }
  next.cache->Abandon();
}

void CachePath::Abandon(PieceLookup& piece, PieceLookup& next) {
  const bool writes_unordered =
      place_.space == MemorySpace::kDevice && place_.stream.handle == nullptr;
  staged_fetch_.DismissHelpers();
  for (PieceLookup* const of : {&piece, &next}) {
    if (writes_unordered) of->cache->WaitForProbe(deadlines_.OfDevice(place_.space));
    of->cache->Abandon();
  }
}

}  // namespace hps
