// Counters and sizes of an open store. Counters start at 0 when the store is opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hps/lookup_session.h"
#include "hps/update_statistics.h"

namespace hps {

// Number of failed or timed-out operations, indexed by absl::StatusCode.
inline constexpr size_t kStatusCodeCount = 17;
using ErrorCounts = std::array<uint64_t, kStatusCodeCount>;

// One table in level 1 or 2.
struct LevelStatistics {
  uint64_t entries = 0;         // cached rows
  uint64_t absent_entries = 0;  // cached keys that level 3 does not have
  uint64_t bytes_used = 0;      // metadata included
  uint64_t bytes_max = 0;       // the budget; 0 = not in this level, or the level is on Redis
  uint64_t insertions = 0;
  uint64_t updates = 0;
  uint64_t evictions = 0;
  uint64_t refused = 0;       // insertions of rows that an update had already replaced
  uint64_t dropped = 0;       // insertions for which there was no room
  uint64_t not_admitted = 0;  // rows that a full level left out, because they are asked for rarely
  uint64_t errors = 0;        // failed or timed-out operations
  ErrorCounts errors_by_code{};  // those of lookups and promotions only
};

// One table in level 1 of one device. Hits and misses count the keys of sessions on the device,
// duplicates included.
struct DeviceStatistics {
  int device = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  LevelStatistics l1;
};

struct TableStatistics {
  std::string name;
  LookupCounts keys;
  LevelStatistics l1;                          // sum over all devices
  std::vector<DeviceStatistics> l1_devices{};  // devices on which the table has a budget
  LevelStatistics l2;
  // Lookups bypass level 2, or one part of it: its circuit breaker is open, or it lacks a change.
  bool l2_bypassed = false;
};

// One server of a level 2 on Redis.
struct RemoteNodeStatistics {
  std::string address;
  bool bypassed = false;  // its circuit breaker is open
  uint64_t failures = 0;  // calls that it failed or did not answer in time
};

// A level 2 on Redis: the servers that have its rows.
struct RemoteLevelStatistics {
  std::vector<RemoteNodeStatistics> nodes{};  // those that have slots now
  uint64_t failures = 0;                      // of all nodes, also of those that are gone
  ErrorCounts failures_by_code{};
  uint64_t moved = 0;  // replies that name another node, by kind
  uint64_t ask = 0;
  uint64_t try_again = 0;
  uint64_t slot_maps_learnt = 0;
  // Of tables that nodes share: changes that went on without a server that did not take them.
  uint64_t changes_given_up = 0;
};

// Level 3, as used by this process.
struct DurableStatistics {
  uint64_t damaged_reads = 0;      // rows and blocks with a wrong checksum
  uint64_t background_errors = 0;  // disk errors while files were written
  bool writable = true;            // false: opened read-only, or refusing writes after a disk error
  bool read_only = false;          // opened read-only
  uint64_t free_bytes = 0;         // on the store's disk; 0 also if unknown
  uint64_t merges = 0;             // of a table's changes into new page files
  uint64_t merged_bytes = 0;       // of the page files that they made
  uint64_t merges_failed = 0;
};

// A device that level 1 was to be on.
struct DeviceState {
  int device = 0;
  bool up = false;  // it has a cache, and answered when it was last asked
};

struct StoreStatistics {
  uint64_t l1_bytes_max = 0;  // level 1's budget on each device; 0 without a device
  uint64_t l2_bytes_max = 0;  // level 2's budget; 0 if it is not in this process's memory
  uint64_t lookups = 0;
  uint64_t promotions_dropped = 0;  // because a queue or level 1's writer was full
  uint64_t deadlines_exceeded = 0;  // lookups that did not get all rows in time
  uint64_t l1_unavailable = 0;      // devices that did not answer their latest lookup
  uint64_t l3_errors = 0;
  ErrorCounts l3_errors_by_code{};
  DurableStatistics l3;
  UpdateStatistics updates;
  std::vector<TableStatistics> tables;
  std::vector<DeviceState> devices{};
  RemoteLevelStatistics l2_remote{};  // without a level 2 on Redis, it is empty
};

}  // namespace hps
