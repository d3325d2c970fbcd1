// The path of a lookup's pieces through a device cache, and what takes its place when the device
// fails.
//
// The device probes a piece, and answers what level 1 and perhaps level 2 hold (MissRoute). The
// host's levels answer the rest, and the device writes all rows to their places. The next piece is
// probed meanwhile. If the device fails, the host's levels answer the piece without it, unless the
// outputs are on the device; the cache is then bypassed until the changes that are open have been
// applied to it, because this call may have shown them.
//
// Errors: only where the outputs are on the device, because only the cache can write there.
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "query/call_deadlines.h"
#include "query/fetch/staged_fetch.h"
#include "query/host_levels.h"
#include "query/miss_route.h"
#include "query/piece_lookup.h"
#include "query/session_shared.h"
#include "serving/device_health.h"

namespace hps {

class CachePath {
 public:
  // `health` is of the cache's device.
  CachePath(SessionShared& shared, HostLevels& host, const CallDeadlines& deadlines,
            DeviceHealth& health, size_t keys_max);

  // Where the outputs of a call are, and when they are ready.
  struct Place {
    MemorySpace space = MemorySpace::kHost;
    Stream stream{};
    // Whether work of the caller's may hold the call up.
    bool is_behind_callers_work = false;
  };
  void BeginCall(const Place& place) { place_ = place; }

  // Begins the next piece, if there is one.
  using BeginNext = absl::FunctionRef<void()>;

  // Answers all keys of `piece`. `next` is the piece that `begin_next` begins; if this piece fails,
  // it is abandoned, too.
  absl::Status Answer(PieceLookup& piece, PieceLookup& next, const LiveModel::Guard& guard,
                      BeginNext begin_next);

  // Has the device probe `next` while `present` is being answered. If the device has no call to
  // spare or fails, or there is no memory for the piece, `next` is not probing after this, and is
  // begun when its turn comes.
  void ProbeAhead(PieceLookup& next, const PieceLookup& present);

  // Ends everything of these pieces that is under way. A caller without a stream may free its
  // outputs on return, so for such a caller this waits for the probes, which may write hits there.
  void Abandon(PieceLookup& piece, PieceLookup& next);

 private:
  absl::Status AnswerByDevice(PieceLookup& piece, const LiveModel::Guard& guard,
                              BeginNext begin_next);
  void AnswerWithoutDevice(PieceLookup& piece, const LiveModel::Guard& guard);

  HostLevels& host_;
  const CallDeadlines& deadlines_;
  const Clock& clock_;
  DeviceHealth& health_;
  StagedFetch staged_fetch_;
  MissRoute route_;
  Place place_;  // of the call
};

}  // namespace hps
