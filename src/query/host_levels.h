// Asks the levels on the host, level 2 and level 3, for the keys of a piece: all of them, or those
// that a device cache lacks.
//
// Steps may be left out, not changed in their order: parts of level 2, the miss policy, level 3.
// After AnswerRest each key has an answer. Fetched rows are kept until PromoteHeld, so that
// promotion begins after the reply.
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <cstddef>

#include "query/call_deadlines.h"
#include "query/fetch/direct_fetch.h"
#include "query/fetch/level_fetch.h"
#include "query/piece_lookup.h"
#include "query/session_shared.h"
#include "serving/live_model.h"

namespace hps {

class HostLevels {
 public:
  // For pieces of at most `keys_max` keys. `converted_bytes_max`: DirectFetch.
  HostLevels(SessionShared& shared, const CallDeadlines& deadlines, size_t keys_max,
             size_t converted_bytes_max)
      : shared_(shared),
        deadlines_(deadlines),
        level_fetch_(*shared.fetch, deadlines),
        direct_fetch_(keys_max, converted_bytes_max) {}

  // Notes which parts of level 2 a table's lookup may ask (TableLookup::asks_l2): those that have
  // not failed, and that leave those below them enough time.
  void ListAskedParts(TableLookup& table) const;

  // Answers all keys of a piece that has asked no level.
  void Answer(PieceLookup& piece, const LiveModel::Guard& guard);

  // Asks the parts of level 2 that have not been asked yet, each for what those before it lack.
  // Returns whether there was one to ask.
  bool FetchFromL2(PieceLookup& piece, const LiveModel::Guard& guard) {
    return level_fetch_.FetchFromL2(piece.tables, guard);
  }

  // `asked` has just been asked. If it is the highest level of a table and held enough of its keys,
  // the call does not wait for the other keys: they are fetched in the background.
  void ApplyMissPolicy(PieceLookup& piece, TableLookup::Top asked, const LiveModel::Guard& guard);

  // Asks level 3 for all keys that are left. Gives default rows to those that it does not answer.
  void AnswerRest(PieceLookup& piece, const LiveModel::Guard& guard,
                  LevelFetch::AfterBatch after_batch);

  void PromoteHeld(const LiveModel::Guard& guard) { level_fetch_.PromoteHeld(guard); }

 private:
  void FetchDirectly(PieceLookup& piece, TableLookup& table);

  SessionShared& shared_;
  const CallDeadlines& deadlines_;
  LevelFetch level_fetch_;
  DirectFetch direct_fetch_;
};

}  // namespace hps
