// The pieces of a call that are gathered from the first part of level 2, and what came of each.
//
// A piece is rows of one query that lie next to each other, in memory from which the device takes
// them. The session's thread adds pieces; a fork-join team and the session run them, each once, on
// any thread. A piece's results may be read once is_fetched says so; those of all pieces that were
// taken, once the team is closed.
//
// For one thread but for RunPiece. Allocates when it is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/fork_join_team.h"
#include "base/limits.h"
#include "query/fetch/fetch_helpers.h"
#include "query/table_lookup.h"

namespace hps {

struct StagedPiece {
  bool is_fetched() const { return fetched.load(std::memory_order_acquire); }
  size_t bytes() const { return keys.size() * rows.row_bytes; }

  const TableLookup* table = nullptr;  // has one query
  std::span<const Key> keys;
  size_t first = 0;  // index of its first key among the query's misses
  HostRows rows;
  bool on_device = false;  // for StagedSender: the rows have been copied there
  // Results. A key's status is kHitL2, kAbsent or kUnanswered.
  std::atomic<bool> fetched{false};  // set after all others
  absl::StatusCode code = absl::StatusCode::kOk;
  KeyStatus* statuses = nullptr;     // [keys], in the query's staged statuses
  FetchOutcome* outcomes = nullptr;  // [keys]
  size_t hit_count = 0;
  size_t absent_count = 0;
};

class StagedPieces final : public ForkJoinTeam::Work {
 public:
  static constexpr size_t kAheadMax = 1024;  // of a call, while the device probes
  static constexpr size_t kPiecesMax = 2 * kAheadMax + kTablesPerCallMax;

  // For calls of at most `keys_max` keys.
  explicit StagedPieces(size_t keys_max)
      : outcomes_(new FetchOutcome[keys_max]),
        pieces_(new StagedPiece[kPiecesMax + kPiecesAhead]) {}

  // Forgets the pieces of the last call.
  void Begin() { work_ = fetched_ = GatherWork(); }

  // Adds the misses of `table` from index `first` on. REQUIRES: fewer than kPiecesMax pieces.
  void Add(const TableLookup& table, size_t first, std::span<const Key> keys,
           const HostRows& rows) {
    StagedPiece& piece = pieces_[work_.pieces++];
    piece.table = &table;
    piece.keys = keys;
    piece.first = first;
    piece.rows = rows;
    piece.statuses = table.first_query->staged_status.data() + first;
    piece.outcomes = outcomes_of(table) + first;
    piece.on_device = false;
    piece.fetched.store(false, std::memory_order_relaxed);
    work_.rows += keys.size();
    work_.bytes += piece.bytes();
  }

  // Fetches the rows of one piece. Threads may run different pieces at the same time.
  void RunPiece(size_t number) override;

  // The pieces before the first one that is not fetched yet.
  const GatherWork& TakeFetched() {
    for (; !are_all_fetched(); ++fetched_.pieces) {
      __builtin_prefetch(&pieces_[fetched_.pieces + kPiecesAhead].fetched);
      const StagedPiece& piece = pieces_[fetched_.pieces];
      if (!piece.is_fetched()) break;
      fetched_.bytes += piece.bytes();
    }
    return fetched_;
  }
  bool are_all_fetched() const { return fetched_.pieces == work_.pieces; }

  StagedPiece& operator[](size_t number) { return pieces_[number]; }
  std::span<const StagedPiece> all() const { return {pieces_.get(), work_.pieces}; }
  const GatherWork& work() const { return work_; }

  // Of the misses of a table's query, by their index; the outcomes of those that are in no piece
  // are undefined.
  FetchOutcome* outcomes_of(const TableLookup& table) {
    return outcomes_.get() + table.first_query->first_miss;
  }

  // Has what helpers wrote to the piece that lies a few behind this one brought to this core.
  void Prefetch(size_t number) const {
    __builtin_prefetch(&pieces_[number + kPiecesAhead].hit_count);
    __builtin_prefetch(&pieces_[number + kPiecesAhead]);
  }

 private:
  static constexpr size_t kPiecesAhead = 8;

  const std::unique_ptr<FetchOutcome[]> outcomes_;  // [keys_max], by the numbers of the misses
  const std::unique_ptr<StagedPiece[]> pieces_;
  GatherWork work_;     // of all pieces
  GatherWork fetched_;  // of the pieces before the first one that is not
};

}  // namespace hps
