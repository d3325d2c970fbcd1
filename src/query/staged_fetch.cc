#include "query/staged_fetch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/limits.h"
#include "base/spin.h"

namespace hps {
namespace {

// What gathering from L2 takes one thread: 28 ns for a row of 128 bytes and 66 ns for one of 512
// (bench/results/l2-*.json, "fetch").
constexpr uint64_t kGatherRowPs = 15'000;
constexpr uint64_t kGatherBytePs = 100;

// The caller watches the last pieces of others for this long, to send each as it comes, before it
// blocks. Longer than a piece takes.
constexpr Duration kLastPiecesSpin = std::chrono::microseconds(50);

}  // namespace

StagedFetch::StagedFetch(Options options)
    : service_(*options.service),
      lookup_(*options.lookup),
      tuning_(options.tuning),
      crew_(std::move(options.crew)),
      outcomes_(new FetchOutcome[options.keys_max]),
      pieces_(new Piece[kPiecesMax + kTablesPerCallMax]) {
  ready_.reserve(kPiecesMax + kTablesPerCallMax);
}

void StagedFetch::CallHelpers() { crew_->Call(last_helpers_); }

void StagedFetch::Fetch(std::span<TableWork> tables, std::span<QueryWork> queries) {
  queries_ = queries.data();
  MakePieces(tables, queries);
  last_helpers_ = HelpersWanted();
  if (piece_count_ > 0) {
    crew_->Open(*this, piece_count_);
    crew_->Call(last_helpers_);
    while (crew_->DoOne()) SendReady(sent_any_ ? tuning_.send_bytes : tuning_.piece_bytes);
    SpinLimit limit(kLastPiecesSpin);
    while (unsent_count_ > 0 && limit.Spin()) SendReady(tuning_.send_bytes);
  }
  crew_->Close();
  SendReady(0);
  NoteOutcomes(tables);
}

bool StagedFetch::Wanted(const TableWork& table) {
  return table.l2_usable && !table.table->l2()->can_block() && table.has_one_query() &&
         table.misses.open().size() == table.misses.size() && table.misses.size() > 0;
}

void StagedFetch::MakePieces(std::span<TableWork> tables, std::span<QueryWork> queries) {
  piece_count_ = first_unsent_ = 0;
  bytes_ = row_count_ = 0;
  sent_any_ = false;
  for (const TableWork& table : tables) {
    if (!Wanted(table)) continue;
    row_count_ += table.misses.size();
    bytes_ += table.misses.size() * table.table->row_bytes();
  }
  const uint64_t piece_bytes = std::max<uint64_t>(tuning_.piece_bytes, bytes_ / kPiecesMax + 1);
  for (const TableWork& table : tables) {
    if (!Wanted(table)) continue;
    const size_t piece_keys =
        std::max<uint64_t>(1, (piece_bytes - 1) / table.table->row_bytes() + 1);
    for (size_t first = 0; first < table.misses.size(); first += piece_keys) {
      Piece& piece = pieces_[piece_count_++];
      piece.table = &table;
      piece.query = table.first_query;
      piece.query_number = static_cast<size_t>(table.first_query - queries.data());
      piece.first = first;
      piece.count = std::min(piece_keys, table.misses.size() - first);
      piece.sent = false;
      piece.fetched.store(false, std::memory_order_relaxed);
    }
  }
  unsent_count_ = piece_count_;
}

size_t StagedFetch::HelpersWanted() const {
  const Duration work =
      std::chrono::nanoseconds((row_count_ * kGatherRowPs + bytes_ * kGatherBytePs) / 1000);
  if (work <= tuning_.alone_max || piece_count_ < 2) return 0;
  const auto shares = static_cast<size_t>(work / std::max(tuning_.helper_share, Duration(1)));
  return std::min({shares, piece_count_ - 1, crew_->helpers_max()});
}

// On any thread. Writes only what is the piece's: its rows, statuses and outcomes.
void StagedFetch::DoPiece(size_t number) {
  Piece& piece = pieces_[number];
  const QueryWork& query = *piece.query;
  const std::span<FetchOutcome> outcomes(outcomes_.get() + query.first_miss + piece.first,
                                         piece.count);
  HostRows rows = query.staged_rows;
  rows.data = query.staged_rows.row(piece.first);
  rows.row_count = piece.count;
  const FetchBatch batch = {.keys = piece.table->misses.keys().subspan(piece.first, piece.count),
                            .rows = rows,
                            .outcomes = outcomes};
  const absl::StatusOr<FetchCounts> counts = piece.table->table->l2()->Fetch(batch, kNoDeadline);
  piece.failed = !counts.ok();
  piece.hit_count = counts.ok() ? counts->hits : 0;
  piece.absent_count = counts.ok() ? counts->absent : 0;
  if (piece.failed) std::fill(outcomes.begin(), outcomes.end(), FetchOutcome::kMiss);
  for (size_t i = 0; i < piece.count; ++i) {
    query.staged_status[piece.first + i] = outcomes[i] == FetchOutcome::kHit ? KeyStatus::kHitL2
                                           : outcomes[i] == FetchOutcome::kAbsent
                                               ? KeyStatus::kAbsent
                                               : kUnanswered;
  }
  piece.fetched.store(true, std::memory_order_release);
}

// Sends the pieces that have been fetched, if they are `bytes_min` bytes or all that are left.
void StagedFetch::SendReady(size_t bytes_min) {
  const size_t bytes = ReadyBytes();
  if (bytes < bytes_min || unsent_count_ == 0) return;
  ready_.clear();
  for (size_t i = first_unsent_; i < piece_count_; ++i) {
    Piece& piece = pieces_[i];
    if (piece.sent || !piece.fetched.load(std::memory_order_acquire)) continue;
    piece.sent = true;
    --unsent_count_;
    if (piece.hit_count + piece.absent_count > 0) AddReady(piece);
  }
  while (first_unsent_ < piece_count_ && pieces_[first_unsent_].sent) ++first_unsent_;
  sent_any_ |= !ready_.empty();
  lookup_.Send(ready_);
  for (const DeviceRowPiece& ready : ready_) {
    const QueryWork& query = queries_[ready.query];
    std::fill_n(query.staged_status.begin() + static_cast<std::ptrdiff_t>(ready.first),
                ready.statuses.size(), kUnanswered);
  }
}

// Of the pieces that could be sent now; SIZE_MAX when these are all that are left.
size_t StagedFetch::ReadyBytes() const {
  size_t bytes = 0;
  size_t ready_count = 0;
  for (size_t i = first_unsent_; i < piece_count_; ++i) {
    const Piece& piece = pieces_[i];
    if (piece.sent || !piece.fetched.load(std::memory_order_acquire)) continue;
    bytes += piece.count * piece.query->staged_rows.row_bytes;
    ++ready_count;
  }
  return ready_count == unsent_count_ ? SIZE_MAX : bytes;
}

// Neighbours travel as one.
void StagedFetch::AddReady(const Piece& piece) {
  const QueryWork& query = *piece.query;
  // Read after the rows were fetched: a change that has begun later is in none of them.
  const bool changed = piece.table->table->epochs().begun() > piece.table->epoch;
  if (!ready_.empty() && ready_.back().query == piece.query_number &&
      ready_.back().first + ready_.back().statuses.size() == piece.first) {
    DeviceRowPiece& last = ready_.back();
    last.statuses = query.staged_status.subspan(last.first, last.statuses.size() + piece.count);
    last.rows.row_count += piece.count;
    last.probe_again |= changed;
    return;
  }
  HostRows rows = query.staged_rows;
  rows.data = query.staged_rows.row(piece.first);
  rows.row_count = piece.count;
  ready_.push_back({.query = piece.query_number,
                    .first = piece.first,
                    .statuses = query.staged_status.subspan(piece.first, piece.count),
                    .rows = rows,
                    .probe_again = changed});
}

void StagedFetch::NoteOutcomes(std::span<TableWork> tables) {
  size_t next = 0;  // pieces lie in the order of their tables
  for (TableWork& table : tables) {
    if (next == piece_count_) return;
    if (pieces_[next].table != &table) continue;
    bool failed = false;
    size_t answered_count = 0;
    for (; next < piece_count_ && pieces_[next].table == &table; ++next) {
      failed |= pieces_[next].failed;
      answered_count += pieces_[next].hit_count + pieces_[next].absent_count;
    }
    table.l2_usable = false;  // it is asked once
    if (failed) {
      table.table->l2_bypass().Trip();
      table.counters->l2_errors().fetch_add(1, std::memory_order_relaxed);
    }
    if (answered_count == table.misses.size()) {
      table.misses.CloseAll();
      continue;
    }
    const FetchOutcome* const outcomes = outcomes_.get() + table.first_query->first_miss;
    table.misses.BeginNarrowing();
    for (const uint32_t index : table.misses.open()) {
      if (outcomes[index] != FetchOutcome::kHit && outcomes[index] != FetchOutcome::kAbsent)
        table.misses.StaysOpen(index);
    }
    table.misses.EndNarrowing();
  }
}

void StagedFetch::Promote(std::span<TableWork> tables, const ModelState::Guard& guard) {
  size_t next = 0;
  for (const TableWork& table : tables) {
    size_t hit_count = 0;
    for (; next < piece_count_ && pieces_[next].table == &table; ++next)
      hit_count += pieces_[next].hit_count;
    if (hit_count > 0) PromoteTable(table, hit_count, guard);
  }
}

void StagedFetch::PromoteTable(const TableWork& table, size_t hit_count,
                               const ModelState::Guard& guard) {
  const FetchJob::Order order = {.table = table.table,
                                 .counters = table.counters,
                                 .level = FetchJob::Level::kL2,
                                 .cache = table.cache,
                                 .epoch = table.epoch};
  if (!FetchJob::HasTaker(order)) return;
  const FetchOutcome* const outcomes = outcomes_.get() + table.first_query->first_miss;
  size_t miss = 0;
  while (hit_count > 0) {
    FetchJobLease job = service_.Acquire(FetchJob::Level::kL2);
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
