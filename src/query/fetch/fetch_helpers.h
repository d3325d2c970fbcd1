// The fork-join team of one StagedFetch, and how many of its helpers a call is worth.
//
// To wake a thread takes the caller 2 us and the thread 30 to 60 us. So a call with little to
// gather is left to the caller, and a large one has a helper for each share of it. The next call is
// expected to need as many as the last one: its helpers are called before its pieces are known.
//
// Belongs to one session; for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/fork_join_team.h"
#include "query/fetch/staged_fetch_tuning.h"

namespace hps {

// What a call, or a part of it, gathers from level 2.
struct GatherWork {
  size_t pieces = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

class FetchHelpers {
 public:
  FetchHelpers(ForkJoinLease team, const StagedFetchTuning& tuning)
      : team_(std::move(team)), tuning_(tuning) {}

  // Wakes as many helpers as the last call that NoteCall was told of needed.
  void CallAhead() { Call(last_wanted_); }

  // Publishes the first `known.pieces` pieces, and wakes helpers for them.
  void Publish(ForkJoinTeam::Work& pieces, const GatherWork& known) {
    if (!team_->is_open()) team_->Open(pieces);
    team_->Publish(known.pieces);
    Call(WantedFor(known));
  }

  // All pieces of the call are known, and the next call is expected to have as many.
  void NoteCall(const GatherWork& all) { last_wanted_ = WantedFor(all); }

  // Runs the next piece on this thread. False: all published pieces are taken.
  bool RunOne() { return team_->is_open() && team_->RunOne(); }

  // Dismisses the helpers. All pieces that were taken are done when this returns.
  void Close() {
    team_->Close();
    called_ = 0;
  }

 private:
  // What gathering from L2 takes one thread: 28 ns for a row of 128 bytes and 66 ns for one of 512
  // (bench/results/l2-*.json, "fetch").
  static constexpr uint64_t kGatherRowPs = 15'000;
  static constexpr uint64_t kGatherBytePs = 100;

  void Call(size_t helper_count) {
    if (helper_count <= called_) return;
    called_ = helper_count;
    team_->Call(helper_count);
  }

  size_t WantedFor(const GatherWork& work) const {
    const Duration time =
        std::chrono::nanoseconds((work.rows * kGatherRowPs + work.bytes * kGatherBytePs) / 1000);
    if (time <= tuning_.alone_max || work.pieces < 2) return 0;
    const auto shares = static_cast<size_t>(time / std::max(tuning_.helper_share, Duration(1)));
    return std::min({shares, work.pieces - 1, team_->helpers_max()});
  }

  const ForkJoinLease team_;
  const StagedFetchTuning tuning_;
  size_t called_ = 0;  // for this call
  size_t last_wanted_ = 0;
};

}  // namespace hps
