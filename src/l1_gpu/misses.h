// What one lookup needs to remember its misses: which keys, each once, and which positions wait
// for them. On the device and, for the host, in pinned memory.
//
// Nothing is cleared between calls: what a call writes carries its generation, and anything else is
// left over from an earlier call. So a call without misses costs nothing, and the host needs no
// count from the device: the records of a query lie one behind the other, and the first one that is
// not of the call's generation ends them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// A missing key of a query; its index among the query's records is its unique index.
//
// The host reads records while the device writes them. The device writes a record with one 128-bit
// store, which PTX's memory model does not divide. `check` depends on the key and on the
// generation: a record of which the host sees only a part counts as not written yet.
struct alignas(16) MissRecord {
  Key key;
  uint32_t position;  // of the query's keys: one that asks for the key
  uint32_t check;     // MissCheck of the key and the call's generation
};
static_assert(sizeof(MissRecord) == 16);

constexpr uint32_t MissCheck(Key key, uint32_t generation) {
  return generation ^
         static_cast<uint32_t>((static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u) >> 32);
}

// Whether a call of this generation has written the record, all of it. Reads the key behind the
// check. On success `*key` is the record's.
inline bool ReadMissRecord(const MissRecord& record, uint32_t generation, Key* key) {
  const uint32_t check = __atomic_load_n(&record.check, __ATOMIC_ACQUIRE);
  *key = __atomic_load_n(&record.key, __ATOMIC_RELAXED);
  return check == MissCheck(*key, generation);
}

// More positions of a query that ask for a key which has a MissRecord. A key may have several.
struct alignas(16) DuplicateRecord {
  uint32_t position;  // the one in the key's MissRecord
  uint32_t count;     // 1 to 32 more
  uint32_t generation;
  uint32_t unused;
};
static_assert(sizeof(DuplicateRecord) == 16);

// A position that waits for the row of another one, on the device.
struct DuplicatePosition {
  uint32_t position;
  uint32_t owner;  // the position in the key's MissRecord
};

struct QueryTask;  // query_task.h

// The buffers of one call, of up to `keys_max` keys over all its queries. Query q's part of each
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
  // Odd, drawn when the buffers are made: the multiplier by which a key finds its claim
  // (multiply-shift hashing, Dietzfelbinger et al. 1997). Nobody can choose keys that all collide.
  uint64_t claim_multiplier = 1;
};

// The buffers' memory, and where they lie in it. Both blocks are aligned to 256 bytes.
size_t MissDeviceBytes(size_t keys_max);
size_t MissPinnedBytes(size_t keys_max);
MissBuffers CarveMissBuffers(size_t keys_max, std::byte* device, std::byte* pinned);

}  // namespace hps
