// Rows on their way out of a shard and into one: for exports, checkpoints and changes.
#pragma once

#include <cstdint>
#include <vector>

#include "hps/types.h"

namespace hps {

// Rows of a table, sorted by key. With state, `values` has [dim elements, then the optimizer's
// state] per row, and the vectors of a row's history are filled; without, dim elements per row.
struct ShardRows {
  std::vector<Key> keys;
  std::vector<float> values;            // [keys, dim] or [keys, dim + state_count(dim)]
  std::vector<uint32_t> last_seen;      // [keys], with state: the step that last had the key
  std::vector<uint32_t> update_counts;  // [keys], with state: the row's own updates
  uint32_t step = 0;                    // with state: training steps so far
  uint32_t table_updates = 0;           // with state: those that had gradients, for sparse Adam
  // With state: keys that occurred, but not often enough to have a row.
  std::vector<Key> pending_keys{};
  std::vector<uint32_t> pending_counts{};
};

// A moment in a shard's life.
struct DeltaMark {
  uint32_t change = 0;  // changes of rows so far
  uint32_t step = 0;    // training steps so far
};

// What changed in a table since the last change that its reader acknowledged.
struct ShardDelta {
  ShardRows changed;        // for a checkpoint with state, else without
  std::vector<Key> erased;  // sorted; keys that an earlier delta had and that have no row now
  DeltaMark through;        // for AcknowledgeDelta
};

}  // namespace hps
