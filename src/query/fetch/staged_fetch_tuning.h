// Sizes and times by which StagedFetch divides its work.
//
// The figures are of a Xeon server with DDR5 and an H200 on PCIe 5; none of them is critical.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace hps {

struct StagedFetchTuning {
  // Bytes of one piece. 64 rows of 512 bytes take a thread 3 us to gather, so the first pieces are
  // there soon, and the threads of a team end at about the same time. Smaller pieces take longer
  // per row. Of the pieces that are fetched ahead, only the first ones (kFirstPieces), which are to
  // be on their way at once, have this size; later ones have twice as much.
  size_t piece_bytes = size_t{32} << 10;
  // The caller starts a copy when as many bytes are fetched as it has copied before, but at least
  // the first number, and it waits for no more than the second. To start a copy takes the caller 3
  // us, in which PCIe moves 128 KiB. Fewer rows, and rows that are fetched only after the probe,
  // are not copied: the device reads each where it lies, which takes PCIe a fifth longer.
  size_t copy_ahead_bytes_min = size_t{128} << 10;
  size_t bring_bytes_max = size_t{2} << 20;
  // Bytes that are sent at a time after that: 1 MiB takes PCIe 20 us, and telling the device to
  // fetch it takes the caller 5 us.
  size_t send_bytes = size_t{1} << 20;
  // Gathering that takes the caller less than this is not worth waking a helper: a thread that
  // sleeps takes 30 to 60 us to come.
  Duration alone_max = std::chrono::microseconds(60);
  // One more helper is called for each such share of the gathering. With a smaller share, calling
  // the helper (2 us for the caller) and its start would cost more than the helper saves.
  Duration helper_share = std::chrono::microseconds(20);
};

}  // namespace hps
