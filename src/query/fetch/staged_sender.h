// Brings the fetched pieces of a call to the device, in the order of the pieces.
//
// There are two ways. Pieces that are fetched while the device probes are copied ahead, and their
// answers are sent after all others, when the copies have arrived. Pieces that are fetched later
// are sent where they lie: the device reads each row there. If the first pieces were too few to be
// copied when the probe ended, they are sent as well.
//
// Neighbouring pieces travel as one. Errors are CacheLookup::sent. Belongs to one session; for one
// thread. Allocates when it is made.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "query/cache_lookup.h"
#include "query/fetch/staged_fetch_tuning.h"
#include "query/fetch/staged_pieces.h"

namespace hps {

class StagedSender {
 public:
  StagedSender(StagedPieces& pieces, const StagedFetchTuning& tuning, const Clock& clock)
      : pieces_(pieces), tuning_(tuning), clock_(clock) {
    ready_.reserve(StagedPieces::kPiecesMax);
  }

  // Begins the call of `lookup`, as StagedPieces::Begin does.
  void Begin(CacheLookup& lookup) {
    lookup_ = &lookup;
    copied_ahead_ = sent_ = GatherWork();
    ahead_end_ = {.pieces = SIZE_MAX, .bytes = UINT64_MAX};
  }

  // Copies the fetched pieces ahead if it is worth a copy.
  void CopyAhead();

  // The probe has ended: later pieces are sent. Each time, this waits for the device at most
  // `wait_max`. If pieces have been copied ahead, all pieces that were fetched ahead will be;
  // otherwise none.
  void EndAhead(Duration wait_max) {
    wait_max_ = wait_max;
    sent_ = ahead_end_ = copied_ahead_.pieces > 0 ? pieces_.work() : GatherWork();
  }

  // Sends the fetched pieces that are not copied ahead, if they have at least `bytes_min` bytes.
  void Send(size_t bytes_min);

  // Copies and sends the remaining pieces. REQUIRES: EndAhead was called; all pieces are fetched.
  void Finish() {
    CopyAhead();
    Send(1);
    Send(0, copied_ahead_.pieces);  // last: the device answers them after all copies
  }

 private:
  void Send(size_t first_piece, size_t end_piece);
  void AddReady(const StagedPiece& piece);

  StagedPieces& pieces_;
  const StagedFetchTuning tuning_;
  const Clock& clock_;
  CacheLookup* lookup_ = nullptr;
  Duration wait_max_{};
  // Each stands for the pieces up to one of them.
  GatherWork copied_ahead_;  // or without rows to copy
  GatherWork ahead_end_;     // where copying ahead ends; all pieces before are staged
  GatherWork sent_;          // or copied ahead: those are sent last
  std::vector<DeviceRowPiece> ready_;
};

}  // namespace hps
