// What a store has answered and what its levels hold, summed since it was opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hps/lookup_session.h"

namespace hps {

// Failed or timed-out operations, by the number of their absl::StatusCode.
inline constexpr size_t kStatusCodeCount = 17;
using ErrorCounts = std::array<uint64_t, kStatusCodeCount>;

// One table in one lossy level (L1 or L2).
struct LevelStatistics {
  uint64_t entries = 0;         // rows held
  uint64_t absent_entries = 0;  // keys held as "no level has it"
  uint64_t bytes_used = 0;      // metadata included
  uint64_t bytes_max = 0;       // the budget
  uint64_t insertions = 0;
  uint64_t updates = 0;
  uint64_t evictions = 0;
  uint64_t refused = 0;          // promotions that the fence kept out
  uint64_t dropped = 0;          // insertions for which there was no room
  uint64_t errors = 0;           // failed or timed-out operations
  ErrorCounts errors_by_code{};  // of them, those that look-ups and promotions met
};

// One table in the L1 of one device. Of the keys that sessions on the device asked for (duplicates
// included), those that L1 answered, and the others.
struct DeviceStatistics {
  int device = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  LevelStatistics l1;
};

struct TableStatistics {
  std::string name;
  LookupCounts keys;
  LevelStatistics l1;                          // over all devices
  std::vector<DeviceStatistics> l1_devices{};  // those where the table has a part
  LevelStatistics l2;
  bool l2_bypassed = false;  // level 2's circuit breaker is open: lookups go to level 3
};

// Level 3 as this process has met it.
struct DurableStatistics {
  uint64_t damaged_reads = 0;      // rows and blocks whose checksum was wrong
  uint64_t background_errors = 0;  // of the disk, while files were written
  bool writable = true;            // false: read-only, or a disk's error keeps writes for now
  uint64_t free_bytes = 0;         // of the store's disk; 0 also when it can't be told
};

struct StoreStatistics {
  uint64_t lookups = 0;
  uint64_t promotions_dropped = 0;  // a queue, or level 1's writer, was full
  uint64_t deadlines_exceeded = 0;
  uint64_t l1_down = 0;  // devices that the look-up which asked last had no answer from
  uint64_t l3_errors = 0;
  ErrorCounts l3_errors_by_code{};
  DurableStatistics l3;
  std::vector<TableStatistics> tables;
};

}  // namespace hps
