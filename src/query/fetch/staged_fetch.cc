#include "query/fetch/staged_fetch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/spin.h"

namespace hps {
namespace {

// What gathering from L2 takes one thread: 28 ns for a row of 128 bytes and 66 ns for one of 512
// (bench/results/l2-*.json, "fetch").
constexpr uint64_t kGatherRowPs = 15'000;
constexpr uint64_t kGatherBytePs = 100;

// When the caller has no piece left to fetch, it watches the pieces of its helpers for this long,
// to send each on its way as soon as it is fetched. Then it blocks. Longer than the gathering of
// most calls takes.
constexpr Duration kLastPiecesSpin = std::chrono::microseconds(500);

// How many pieces ahead the caller prefetches what helpers have written.
constexpr size_t kPiecesAhead = 8;

// Looks without a new miss after which the caller yields between looks.
constexpr size_t kRoundsWithoutPause = 256;
// ... and after which it stops looking: the probe takes longer than lookups do.
constexpr size_t kRoundsMax = 20'000;

}  // namespace

StagedFetch::StagedFetch(Options options)
    : service_(*options.service),
      lookup_(options.lookup),
      tuning_(options.tuning),
      team_(std::move(options.team)),
      outcomes_(new FetchOutcome[options.keys_max]),
      pieces_(new Piece[2 * kPiecesMax + kTablesPerCallMax + kPiecesAhead]) {
  ahead_.reserve(kAheadQueriesMax);
  sums_.reserve(kTablesPerCallMax);
  ready_.reserve(2 * kPiecesMax + kTablesPerCallMax);
}

void StagedFetch::CallHelpers() {
  helpers_called_ = 0;
  CallHelpersFor(last_helpers_);
}

void StagedFetch::CallHelpersFor(size_t helper_count) {
  if (helper_count <= helpers_called_) return;
  helpers_called_ = helper_count;
  team_->Call(helper_count);
}

void StagedFetch::Begin(std::span<TableLookup> tables, std::span<QueryLookup> queries) {
  queries_ = queries;
  sums_.assign(tables.size(), TableSum());
  ahead_.clear();
  piece_count_ = 0;
  bytes_ = row_count_ = 0;
  fetched_ = copied_ahead_ = sent_ = Progress();
  ahead_end_ = {SIZE_MAX, UINT64_MAX};
}

void StagedFetch::FetchAhead(std::span<TableLookup> tables, std::span<QueryLookup> queries,
                             Deadline deadline) {
  Begin(tables, queries);
  begun_ = true;
  if (queries.size() > kAheadQueriesMax) return;
  for (const TableLookup& table : tables) {
    // The miss policy of the others needs to know all misses.
    if (!Wanted(table) || table.hit_rate_threshold < 1.0) continue;
    const size_t row_bytes = table.table->row_bytes();
    ahead_.push_back({.table = &table,
                      .query = table.first_query,
                      .number = static_cast<size_t>(table.first_query - queries.data()),
                      .piece_keys = (tuning_.piece_bytes - 1) / row_bytes + 1});
  }
  if (ahead_.empty()) return;
  for (size_t idle_rounds = 0;; ++idle_rounds) {
    const size_t known = piece_count_;
    const bool probed = AddKnownMisses();
    if (piece_count_ > known) {
      idle_rounds = 0;
      AnnouncePieces();
    }
    if (probed) return;
    if (piece_count_ > 0) CopyFetchedAhead();
    if (piece_count_ > known || (team_->is_open() && team_->RunOne())) continue;
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
  for (Ahead& ahead : ahead_) probed &= AddKnownMisses(ahead, lookup_->Peek(ahead.number));
  return probed;
}

bool StagedFetch::AddKnownMisses(Ahead& ahead, const DeviceMissesSoFar& misses) {
  QueryLookup& query = *ahead.query;
  while (!ahead.is_full) {
    const std::span<const Key> keys = misses.keys.subspan(query.fetched_ahead);
    const size_t piece_keys = piece_count_ < kFirstPieces ? ahead.piece_keys : 2 * ahead.piece_keys;
    if (keys.size() < (misses.probed ? 1 : piece_keys)) break;
    const size_t count = std::min(keys.size(), piece_keys);
    const HostRows rows =
        piece_count_ < kPiecesMax ? lookup_->StageAhead(ahead.number, count) : HostRows();
    ahead.is_full = rows.row_count < count;
    if (ahead.is_full) break;
    AddPiece(*ahead.table, query.fetched_ahead, keys.first(count)).rows = rows;
    query.fetched_ahead += count;
  }
  return misses.probed;
}

void StagedFetch::Fetch(std::span<TableLookup> tables, std::span<QueryLookup> queries,
                        Duration send_wait_max) {
  send_wait_max_ = send_wait_max;
  const bool fetched_ahead = std::exchange(begun_, false);
  if (!fetched_ahead) {
    helpers_called_ = 0;  // those of the call before have been dismissed
    Begin(tables, queries);
  }
  // If pieces have been copied ahead, all pieces that were fetched ahead will be; otherwise none.
  ahead_end_ = copied_ahead_.end > 0 ? Progress{piece_count_, bytes_} : Progress();
  AddRest(tables);
  sent_ = ahead_end_;
  // If the device has read all misses by itself, this call does not tell how many helpers the next
  // one needs.
  if (fetched_ahead || piece_count_ > 0) last_helpers_ = HelpersWanted();
  if (piece_count_ > 0) {
    AnnouncePieces();
    SpinLimit limit(kLastPiecesSpin);
    for (bool in_time = true; fetched_.end < piece_count_ && in_time;) {
      CopyFetchedAhead();
      SendFetched(tuning_.send_bytes);
      in_time = team_->RunOne() || limit.Spin();
    }
  }
  team_->Close();
  CopyFetchedAhead();
  SendFetched(1);
  Send(0, copied_ahead_.end);  // last: the device answers them after all copies
  NoteOutcomes(tables);
}

bool StagedFetch::Wanted(const TableLookup& table) {
  return table.asks_l2[0] && !table.table->l2()[0].can_block() && table.has_one_query();
}

// What was not fetched ahead.
void StagedFetch::AddRest(std::span<TableLookup> tables) {
  uint64_t rest_bytes = 0;
  const auto rest_of = [](const TableLookup& table) {
    const bool untouched = table.misses.pending().size() == table.misses.size();
    return Wanted(table) && untouched ? table.misses.size() - table.first_query->fetched_ahead : 0;
  };
  for (const TableLookup& table : tables) rest_bytes += rest_of(table) * table.table->row_bytes();
  const uint64_t piece_bytes = std::max<uint64_t>(tuning_.piece_bytes, rest_bytes / kPiecesMax + 1);
  for (const TableLookup& table : tables) {
    const size_t piece_keys =
        std::max<uint64_t>(1, (piece_bytes - 1) / table.table->row_bytes() + 1);
    for (size_t rest = rest_of(table); rest > 0;) {
      const size_t first = table.misses.size() - rest;
      const size_t count = std::min(piece_keys, rest);
      Piece& piece = AddPiece(table, first, table.misses.keys().subspan(first, count));
      piece.rows = table.first_query->staged_rows;
      piece.rows.data = table.first_query->staged_rows.row(first);
      piece.rows.row_count = count;
      rest -= count;
    }
  }
}

StagedFetch::Piece& StagedFetch::AddPiece(const TableLookup& table, size_t first,
                                          std::span<const Key> keys) {
  Piece& piece = pieces_[piece_count_++];
  piece.table = &table;
  piece.query = table.first_query;
  piece.query_number = static_cast<size_t>(table.first_query - queries_.data());
  piece.keys = keys;
  piece.first = first;
  piece.on_device = false;
  piece.fetched.store(false, std::memory_order_relaxed);
  row_count_ += keys.size();
  bytes_ += keys.size() * table.table->row_bytes();
  return piece;
}

void StagedFetch::AnnouncePieces() {
  if (!team_->is_open()) team_->Open(*this);
  team_->Publish(piece_count_);
  CallHelpersFor(HelpersWanted());
}

size_t StagedFetch::HelpersWanted() const {
  const Duration work =
      std::chrono::nanoseconds((row_count_ * kGatherRowPs + bytes_ * kGatherBytePs) / 1000);
  if (work <= tuning_.alone_max || piece_count_ < 2) return 0;
  const auto shares = static_cast<size_t>(work / std::max(tuning_.helper_share, Duration(1)));
  return std::min({shares, piece_count_ - 1, team_->helpers_max()});
}

// On any thread. Writes only what is the piece's: its rows, statuses and outcomes.
void StagedFetch::RunPiece(size_t number) {
  Piece& piece = pieces_[number];
  const size_t count = piece.keys.size();
  const std::span<FetchOutcome> outcomes(outcomes_.get() + piece.query->first_miss + piece.first,
                                         count);
  const FetchBatch batch = {
      .keys = piece.keys, .rows = piece.rows, .outcomes = outcomes, .rows_go_to_device = true};
  const absl::StatusOr<FetchCounts> counts =
      piece.table->table->l2()[0].table().Fetch(batch, kNoDeadline);
  piece.code = counts.status().code();
  piece.hit_count = counts.ok() ? counts->hits : 0;
  piece.absent_count = counts.ok() ? counts->absent : 0;
  if (!counts.ok()) std::fill(outcomes.begin(), outcomes.end(), FetchOutcome::kMiss);
  KeyStatus* const statuses = lookup_->statuses_of(*piece.query) + piece.first;
  for (size_t i = 0; i < count; ++i) {
    statuses[i] = outcomes[i] == FetchOutcome::kHit      ? KeyStatus::kHitL2
                  : outcomes[i] == FetchOutcome::kAbsent ? KeyStatus::kAbsent
                                                         : kUnanswered;
  }
  piece.fetched.store(true, std::memory_order_release);
}

void StagedFetch::NoteFetched() {
  for (; fetched_.end < piece_count_; ++fetched_.end) {
    const Piece& piece = pieces_[fetched_.end];
    __builtin_prefetch(&pieces_[fetched_.end + kPiecesAhead].fetched);
    if (!piece.fetched.load(std::memory_order_acquire)) break;
    fetched_.bytes += piece.bytes();
  }
}

// Neighbouring pieces of one width are copied together. Every copy has a cost of its own. The first
// copy is small, since the device has nothing else to do. Each next copy is as large as all copies
// before it: while those travel, as much more is fetched.
void StagedFetch::CopyFetchedAhead() {
  NoteFetched();
  const Progress ready = fetched_.end <= ahead_end_.end ? fetched_ : ahead_end_;
  const bool is_last = ready.end == ahead_end_.end;
  const uint64_t least =
      is_last ? 1
              : std::clamp<uint64_t>(copied_ahead_.bytes, tuning_.copy_ahead_bytes_min,
                                     tuning_.bring_bytes_max);
  if (ready.bytes - copied_ahead_.bytes < least) return;
  HostRows rows;
  for (size_t i = copied_ahead_.end; i < ready.end; ++i) {
    Piece& piece = pieces_[i];
    piece.on_device = piece.hit_count > 0;
    if (!piece.on_device) continue;
    if (rows.row_count > 0 && rows.row_bytes == piece.rows.row_bytes &&
        rows.row(rows.row_count) == piece.rows.data) {
      rows.row_count += piece.keys.size();
      continue;
    }
    lookup_->CopyAhead(rows);
    rows = piece.rows;
  }
  lookup_->CopyAhead(rows);
  copied_ahead_ = ready;
}

// Sends the fetched pieces that were not copied ahead, if they have at least `bytes_min` bytes.
void StagedFetch::SendFetched(size_t bytes_min) {
  NoteFetched();
  if (fetched_.end <= sent_.end || fetched_.bytes - sent_.bytes < bytes_min) return;
  Send(sent_.end, fetched_.end);
  sent_ = fetched_;
}

void StagedFetch::Send(size_t first_piece, size_t end_piece) {
  ready_.clear();
  for (size_t i = first_piece; i < end_piece; ++i) {
    __builtin_prefetch(&pieces_[i + kPiecesAhead].hit_count);  // from another core's cache
    __builtin_prefetch(&pieces_[i + kPiecesAhead]);
    if (pieces_[i].hit_count + pieces_[i].absent_count > 0) AddReady(pieces_[i]);
  }
  lookup_->Send(ready_, DeadlineAfter(service_.clock(), send_wait_max_));
  for (const DeviceRowPiece& ready : ready_) {
    std::fill_n(lookup_->statuses_of(queries_[ready.query]) + ready.first, ready.statuses.size(),
                kUnanswered);
  }
}

// Neighbours travel as one.
void StagedFetch::AddReady(const Piece& piece) {
  const std::span<const KeyStatus> statuses = piece.query->staged_status;
  // Read after the rows were fetched: a change that has begun later is in none of them.
  const bool changed = piece.table->table->epochs().begun() > piece.table->epoch;
  if (!ready_.empty()) {
    DeviceRowPiece& last = ready_.back();
    if (last.query == piece.query_number && last.first + last.statuses.size() == piece.first &&
        last.rows.row(last.rows.row_count) == piece.rows.data &&
        last.on_device == piece.on_device) {
      last.statuses = statuses.subspan(last.first, last.statuses.size() + piece.keys.size());
      last.rows.row_count += piece.keys.size();
      last.reprobe |= changed;
      return;
    }
  }
  ready_.push_back({.query = piece.query_number,
                    .first = piece.first,
                    .statuses = statuses.subspan(piece.first, piece.keys.size()),
                    .rows = piece.rows,
                    .reprobe = changed,
                    .on_device = piece.on_device});
}

void StagedFetch::NoteOutcomes(std::span<TableLookup> tables) {
  for (size_t i = 0; i < piece_count_; ++i) {
    const Piece& piece = pieces_[i];
    TableSum& sum = sums_[static_cast<size_t>(piece.table - tables.data())];
    ++sum.piece_count;
    sum.hit_count += piece.hit_count;
    sum.absent_count += piece.absent_count;
    if (piece.code != absl::StatusCode::kOk) sum.code = piece.code;
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    TableLookup& table = tables[t];
    if (table.first_query->direct) {
      NoteDirectHits(table, sums_[t]);
      continue;
    }
    const TableSum& sum = sums_[t];
    if (sum.piece_count == 0) continue;
    table.asks_l2[0] = false;  // it is asked once
    if (sum.code != absl::StatusCode::kOk) {
      table.table->l2()[0].health().Quarantine();
      table.counters->l2_errors().Add(sum.code);
    }
    if (sum.hit_count + sum.absent_count == table.misses.size()) {
      table.misses.ClearPending();
      continue;
    }
    const FetchOutcome* const outcomes = outcomes_.get() + table.first_query->first_miss;
    table.misses.BeginFilter();
    for (const uint32_t index : table.misses.pending()) {
      if (outcomes[index] != FetchOutcome::kHit && outcomes[index] != FetchOutcome::kAbsent)
        table.misses.Keep(index);
    }
    table.misses.EndFilter();
    if (table.first_query->staged_rows.data == nullptr)
      lookup_->StageRows(static_cast<size_t>(table.first_query - queries_.data()),
                         *table.first_query);
  }
}

// The device has found all misses in L2.
void StagedFetch::NoteDirectHits(TableLookup& table, TableSum& sum) {
  table.asks_l2[0] = false;
  sum.hit_count = table.misses.size();
  std::fill_n(outcomes_.get() + table.first_query->first_miss, sum.hit_count, FetchOutcome::kHit);
}

void StagedFetch::Promote(std::span<TableLookup> tables, const LiveModel::Guard& guard) {
  for (size_t t = 0; t < tables.size(); ++t) {
    if (sums_[t].hit_count > 0) PromoteTable(tables[t], sums_[t].hit_count, guard);
  }
}

void StagedFetch::PromoteTable(const TableLookup& table, size_t hit_count,
                               const LiveModel::Guard& guard) {
  const FetchJob::Spec order = {.table = table.table,
                                .counters = table.counters,
                                .level = 0,
                                .cache = table.cache,
                                .epoch = table.epoch};
  if (!FetchJob::HasTaker(order)) return;
  const FetchOutcome* const outcomes = outcomes_.get() + table.first_query->first_miss;
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
