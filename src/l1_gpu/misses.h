// What one look-up needs to remember its misses: which keys, each once, and which positions wait
// for them. On the device and, for the host, in pinned memory.
//
// Nothing is cleared between calls: what a call writes carries its generation, and anything else is
// left over from an earlier call. So a call without misses costs nothing, and the host needs no
// count from the device: the records of a query lie one behind the other, and the first one of
// another generation ends them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// A missing key of a query; its index among the query's records is its unique index. Written with
// one 16-byte store.
struct alignas(16) MissRecord {
  Key key;
  uint32_t position;    // of the query's keys: one that asks for the key
  uint32_t generation;  // of the call
};
static_assert(sizeof(MissRecord) == 16);

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
};

// The buffers' memory, and where they lie in it. Both blocks are aligned to 256 bytes.
size_t MissDeviceBytes(size_t keys_max);
size_t MissPinnedBytes(size_t keys_max);
MissBuffers CarveMissBuffers(size_t keys_max, std::byte* device, std::byte* pinned);

}  // namespace hps
