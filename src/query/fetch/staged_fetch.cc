#include "query/fetch/staged_fetch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/spin.h"
#include "query/miss_route.h"

namespace hps {
namespace {

// When the caller has no piece left to fetch, it watches the pieces of its helpers for this long,
// to send each on its way as soon as it is fetched. Then it blocks. Longer than the gathering of
// most calls takes.
constexpr Duration kLastPiecesSpin = std::chrono::microseconds(500);

// Looks without a new miss after which the caller yields between looks.
constexpr size_t kRoundsWithoutPause = 256;
// ... and after which it stops looking: the probe takes longer than lookups do.
constexpr size_t kRoundsMax = 20'000;

}  // namespace

StagedFetch::StagedFetch(FetchService& service, size_t keys_max, ForkJoinLease team,
                         const StagedFetchTuning& tuning)
    : service_(service),
      tuning_(tuning),
      helpers_(std::move(team), tuning),
      pieces_(keys_max),
      sender_(pieces_, tuning, service.clock()) {
  ahead_.reserve(kAheadTablesMax);
  sums_.reserve(kTablesPerCallMax);
}

void StagedFetch::Begin(CacheLookup& lookup, std::span<TableLookup> tables) {
  lookup_ = &lookup;
  fetches_ahead_ = false;
  pieces_.Begin();
  sender_.Begin(lookup);
  sums_.assign(tables.size(), TableSum());
}

void StagedFetch::FetchAhead(std::span<TableLookup> tables, Deadline deadline) {
  fetches_ahead_ = true;
  helpers_.CallAhead();
  ahead_.clear();
  if (tables.size() > kAheadTablesMax) return;
  for (const TableLookup& table : tables) {
    if (!MissRoute::IsStagedAhead(table)) continue;
    ahead_.push_back({.table = &table,
                      .query_number = table.NumberOf(*table.first_query),
                      .piece_keys = (tuning_.piece_bytes - 1) / table.table->row_bytes() + 1});
  }
  if (ahead_.empty()) return;
  for (size_t idle_rounds = 0;; ++idle_rounds) {
    const size_t known = pieces_.work().pieces;
    const bool probed = AddKnownMisses();
    const bool any_new = pieces_.work().pieces > known;
    if (any_new) {
      idle_rounds = 0;
      helpers_.Publish(pieces_, pieces_.work());
    }
    if (probed) return;
    if (pieces_.work().pieces > 0) sender_.CopyAhead();
    if (any_new || helpers_.RunOne()) continue;
    PauseCore();
    if (idle_rounds < kRoundsWithoutPause) continue;
    // TakeMisses waits for the rest later, without keeping a core busy.
    if (idle_rounds >= kRoundsMax || service_.clock().Now() >= deadline) return;
    std::this_thread::yield();
  }
}

// True when the probe is done.
bool StagedFetch::AddKnownMisses() {
  bool probed = true;
  for (Ahead& ahead : ahead_) {
    const DeviceMissesSoFar misses = lookup_->Peek(ahead.query_number);
    probed &= misses.probed;
    size_t& fetched_ahead = ahead.table->first_query->fetched_ahead;
    while (!ahead.is_full) {
      const std::span<const Key> keys = misses.keys.subspan(fetched_ahead);
      const size_t piece_count = pieces_.work().pieces;
      const size_t piece_keys = ahead.piece_keys * (piece_count < kFirstPieces ? 1 : 2);
      if (keys.size() < (misses.probed ? 1 : piece_keys)) break;
      const size_t count = std::min(keys.size(), piece_keys);
      const bool has_room = piece_count < StagedPieces::kAheadMax;
      const HostRows rows = has_room ? lookup_->StageAhead(ahead.query_number, count) : HostRows();
      ahead.is_full = rows.row_count < count;
      if (ahead.is_full) break;
      pieces_.Add(*ahead.table, fetched_ahead, keys.first(count), rows);
      fetched_ahead += count;
    }
  }
  return probed;
}

void StagedFetch::Fetch(std::span<TableLookup> tables, Duration send_wait_max) {
  sender_.EndAhead(send_wait_max);
  AddRest(tables);
  // If the device has read all misses by itself, this call does not tell how many helpers the next
  // one needs.
  if (fetches_ahead_ || pieces_.work().pieces > 0) helpers_.NoteCall(pieces_.work());
  if (pieces_.work().pieces > 0) {
    helpers_.Publish(pieces_, pieces_.work());
    SpinLimit limit(kLastPiecesSpin);
    for (bool in_time = true; !pieces_.are_all_fetched() && in_time;) {
      sender_.CopyAhead();
      sender_.Send(tuning_.send_bytes);
      in_time = helpers_.RunOne() || limit.Spin();
    }
  }
  helpers_.Close();
  sender_.Finish();
  for (const StagedPiece& piece : pieces_.all()) {
    TableSum& sum = sums_[static_cast<size_t>(piece.table - tables.data())];
    ++sum.piece_count;
    sum.hit_count += piece.hit_count;
    sum.absent_count += piece.absent_count;
    if (piece.code != absl::StatusCode::kOk) sum.code = piece.code;
  }
  for (size_t t = 0; t < tables.size(); ++t) TakeAnswers(tables[t], sums_[t]);
}

// What was not fetched ahead.
void StagedFetch::AddRest(std::span<TableLookup> tables) {
  uint64_t rest_bytes = 0;
  const auto rest_of = [](const TableLookup& table) {
    const bool untouched = table.misses.pending().size() == table.misses.size();
    return MissRoute::IsStaged(table) && untouched
               ? table.misses.size() - table.first_query->fetched_ahead
               : 0;
  };
  for (const TableLookup& table : tables) rest_bytes += rest_of(table) * table.table->row_bytes();
  const uint64_t piece_bytes =
      std::max<uint64_t>(tuning_.piece_bytes, rest_bytes / StagedPieces::kAheadMax + 1);
  for (const TableLookup& table : tables) {
    const size_t piece_keys =
        std::max<uint64_t>(1, (piece_bytes - 1) / table.table->row_bytes() + 1);
    for (size_t rest = rest_of(table); rest > 0;) {
      const size_t first = table.misses.size() - rest;
      const size_t count = std::min(piece_keys, rest);
      HostRows rows = table.first_query->staged_rows;
      rows.data = rows.row(first);
      rows.row_count = count;
      pieces_.Add(table, first, table.misses.keys().subspan(first, count), rows);
      rest -= count;
    }
  }
}

void StagedFetch::TakeAnswers(TableLookup& table, TableSum& sum) {
  QueryLookup& query = *table.first_query;
  if (query.direct) {  // the device has found all misses in L2
    table.asks_l2[0] = false;
    sum.hit_count = table.misses.size();
    std::fill_n(pieces_.outcomes_of(table), sum.hit_count, FetchOutcome::kHit);
    return;
  }
  if (sum.piece_count == 0) return;
  table.asks_l2[0] = false;  // it is asked once
  if (sum.code != absl::StatusCode::kOk) {
    table.table->l2()[0].health().Quarantine();
    table.counters->l2_errors().Add(sum.code);
  }
  if (sum.hit_count + sum.absent_count == table.misses.size()) {
    table.misses.ClearPending();
    return;
  }
  const FetchOutcome* const outcomes = pieces_.outcomes_of(table);
  table.misses.BeginFilter();
  for (const uint32_t index : table.misses.pending()) {
    if (outcomes[index] != FetchOutcome::kHit && outcomes[index] != FetchOutcome::kAbsent)
      table.misses.Keep(index);
  }
  table.misses.EndFilter();
  if (query.staged_rows.data == nullptr) lookup_->StageRows(table.NumberOf(query), query);
}

void StagedFetch::Promote(std::span<TableLookup> tables, const LiveModel::Guard& guard) {
  for (size_t t = 0; t < tables.size(); ++t) {
    if (sums_[t].hit_count > 0) PromoteTable(tables[t], sums_[t].hit_count, guard);
  }
}

void StagedFetch::PromoteTable(const TableLookup& table, size_t hit_count,
                               const LiveModel::Guard& guard) {
  const FetchJob::Spec order = table.JobAt(0, kNoDeadline);
  if (!FetchJob::HasTaker(order)) return;
  const FetchOutcome* const outcomes = pieces_.outcomes_of(table);
  size_t miss = 0;
  while (hit_count > 0) {
    FetchJobLease job = service_.Acquire(order.level);
    const size_t key_count = std::min(hit_count, FetchJob::KeysMax(table.table->row_bytes()));
    if (job == nullptr) {
      service_.CountDroppedPromotion();
      return;
    }
    job->Prepare(order, key_count);
    for (size_t filled = 0; filled < key_count; ++miss) {
      if (outcomes[miss] == FetchOutcome::kHit) job->keys()[filled++] = table.misses.key(miss);
    }
    service_.PromoteByKeys(std::move(job), SnapshotPin(guard));
    hit_count -= key_count;
  }
}

}  // namespace hps
