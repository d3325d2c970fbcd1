// The records of one lookup's misses: the missing keys, each once, and the positions that wait for
// them. On the device and, for the host, in pinned memory.
//
// Nothing is cleared between calls. Every record carries its call's generation; other records are
// left over from earlier calls. A call without misses therefore costs nothing, and the host needs
// no count from the device: a query's records are contiguous, and end at the first record of
// another generation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "hps/types.h"

namespace hps {

// A missing key of a query. Its index among the query's records is its unique index.
//
// The host reads records while the device writes them. The device writes a record with one 128-bit
// store, which PTX's memory model does not divide. `check` depends on the key and on the
// generation: a record that the host sees only partly counts as not yet written.
struct alignas(16) MissRecord {
  Key key;
  uint32_t position;  // that asks for the key; kAnsweredOnDevice may be set
  uint32_t check;     // MissCheck of the key and the call's generation
};
static_assert(sizeof(MissRecord) == 16);

// Set in a record's position if the device has written the row there itself, from level 2.
inline constexpr uint32_t kAnsweredOnDevice = 1u << 31;
static_assert(kKeysPerCallMax <= kAnsweredOnDevice);

constexpr uint32_t MissCheck(Key key, uint32_t generation) {
  return generation ^
         static_cast<uint32_t>((static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u) >> 32);
}

// Whether a call of this generation has completely written the record. Loads the check before the
// key. On success `*key` is the record's key.
inline bool ReadMissRecord(const MissRecord& record, uint32_t generation, Key* key) {
  const uint32_t check = __atomic_load_n(&record.check, __ATOMIC_ACQUIRE);
  *key = __atomic_load_n(&record.key, __ATOMIC_RELAXED);
  return check == MissCheck(*key, generation);
}

// Further positions of a query that ask for a key of a MissRecord. A key may have several of these
// records.
struct alignas(16) DuplicateRecord {
  uint32_t position;  // the one in the key's MissRecord
  uint32_t count;     // 1 to 32 more
  uint32_t generation;
  uint32_t open_count;  // of them, positions that the device has not answered itself
};
static_assert(sizeof(DuplicateRecord) == 16);

// On the device: a position that waits for the row of another position.
struct DuplicatePosition {
  uint32_t position;
  uint32_t owner;  // the position in the key's MissRecord
};

struct QueryTask;  // query_task.h

// The buffers of one call, for up to `keys_max` keys over all its queries. Query q's part of each
// array begins at QueryView::first_key (of `claims`, at twice that).
struct MissBuffers {
  // Device memory.
  uint64_t* claims = nullptr;               // [2 x keys_max], zero at first
  uint32_t* counters = nullptr;             // [8 x kTablesPerCallMax], zero at first
  uint32_t* unique_of = nullptr;            // [keys_max]: a position's unique index
  uint32_t* positions = nullptr;            // [keys_max]: position of a unique index
  Key* keys = nullptr;                      // [keys_max]: key of a unique index
  DuplicatePosition* duplicates = nullptr;  // [keys_max]
  QueryTask* queries = nullptr;             // [kTablesPerCallMax]
  // Pinned memory, zero at first.
  MissRecord* records = nullptr;                 // [keys_max]
  DuplicateRecord* duplicate_records = nullptr;  // [keys_max]
  QueryTask* pinned_queries = nullptr;           // [kTablesPerCallMax]
  // Odd, drawn when the buffers are made: the multiplier that maps a key to its claim
  // (multiply-shift hashing, Dietzfelbinger et al. 1997). Clients can't choose keys that all
  // collide.
  uint64_t claim_multiplier = 1;
};

// The sizes and the layout of the buffers. Both blocks are aligned to 256 bytes.
size_t MissDeviceBytes(size_t keys_max);
size_t MissPinnedBytes(size_t keys_max);
MissBuffers CarveMissBuffers(size_t keys_max, std::byte* device, std::byte* pinned);

}  // namespace hps
