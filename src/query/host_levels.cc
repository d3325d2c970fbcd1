#include "query/host_levels.h"

namespace hps {
namespace {

// The hit rate is 1 - unique misses / (unique misses + positions that hit): both are known without
// looking at the keys again.
bool IsHitRateReached(const TableLookup& table) {
  if (table.hit_rate_threshold >= 1.0) return false;
  if (table.hit_rate_threshold <= 0.0) return true;
  const uint64_t hit_positions = table.key_count - table.missed_positions;
  const auto key_count = static_cast<double>(table.misses.size() + hit_positions);
  const auto open_count = static_cast<double>(table.misses.pending().size());
  return 1.0 - open_count / key_count >= table.hit_rate_threshold;
}

}  // namespace

void HostLevels::ListAskedParts(TableLookup& table) const {
  table.asks_l2 = {};
  for (size_t i = 0; i < table.table->l2().size(); ++i) {
    const L2Part& part = table.table->l2()[i];
    table.asks_l2[i] = !part.health().quarantined() && (!part.can_block() || deadlines_.MayBlock());
  }
}

void HostLevels::Answer(PieceLookup& piece, const LiveModel::Guard& guard) {
  for (TableLookup& table : piece.tables) FetchDirectly(piece, table);
  FetchFromL2(piece, guard);
  ApplyMissPolicy(piece, TableLookup::Top::kL2, guard);
  AnswerRest(piece, guard, [] {});
}

// Asks the first part of L2, if it can't block, for every position. Then lists the keys that it has
// not answered, each once.
void HostLevels::FetchDirectly(PieceLookup& piece, TableLookup& table) {
  bool asked = false;
  for (QueryLookup* query = table.first_query; query != nullptr; query = query->next_of_table) {
    const bool answered = direct_fetch_.Fetch(table, *query, deadlines_.of_call());
    asked |= answered;
    if (answered && direct_fetch_.answered_all()) continue;
    for (size_t i = 0; i < query->key_count; ++i) {
      if (!answered || !direct_fetch_.IsAnswered(i))
        piece.arena.Add(query->keys[i], table.NumberOf(*query), static_cast<uint32_t>(i));
    }
  }
  if (asked) table.asks_l2[0] = false;  // it is asked once
  table.missed_positions = piece.arena.added_count();
  table.misses = piece.arena.MakeList();
}

// A table that has been replaced meanwhile takes no insertions, so its keys would stay pending for
// ever: the call waits for them.
void HostLevels::ApplyMissPolicy(PieceLookup& piece, TableLookup::Top asked,
                                 const LiveModel::Guard& guard) {
  for (TableLookup& table : piece.tables) {
    if (table.top != asked || table.misses.pending().empty() || !IsHitRateReached(table)) continue;
    if (table.table->retired()) continue;
    level_fetch_.FetchInBackground(table, asked == TableLookup::Top::kL1 ? 0 : kLevel3, guard);
  }
}

void HostLevels::AnswerRest(PieceLookup& piece, const LiveModel::Guard& guard,
                            LevelFetch::AfterBatch after_batch) {
  level_fetch_.FetchFromL3(piece.tables, guard, after_batch);
  bool any = false;
  for (TableLookup& table : piece.tables) {
    for (uint32_t index : table.misses.pending()) {
      table.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
      any = true;
    }
    table.misses.ClearPending();
  }
  if (any && deadlines_.IsExceeded())
    shared_.deadlines_exceeded.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hps
