// One rank's rows of an embedding table, wherever they are: out for exports, checkpoints and
// changes, and in again. The steps that train them are EmbeddingShard's or TableSet's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "train/initializer.h"
#include "train/shard_rows.h"
#include "train/sparse_optimizer.h"

namespace hps {

// A plain value; check it with ValidateShardOptions.
struct ShardOptions {
  std::string name;  // for messages
  uint32_t dim = 0;
  // Of the elements of the vectors; states are float32. See train/row_rounding.h.
  Dtype dtype = Dtype::kFloat32;
  SparseOptimizer optimizer{};
  Initializer initializer{};
  // Steps that must have a key before it gets a row. One step counts a key once.
  uint32_t admit_after = 1;
  // A row that was not in the last `expire_after` steps is erased; 0 = never.
  uint32_t expire_after = 0;
  // The least recently seen rows beyond this are erased when a training step begins, some more than
  // needed at a time; the step's new rows come on top. 0 = no bound.
  uint64_t rows_max = 0;
};

// Errors: INVALID_ARGUMENT: no name, a dim of 0 or above kDimMax / 4, no type of elements, those of
// its parts, an admit_after of 0.
absl::Status ValidateShardOptions(const ShardOptions& options);

// Whether these can be rows of such a table. Errors: INVALID_ARGUMENT: sizes that do not fit.
absl::Status ValidateRows(const ShardRows& rows, const ShardOptions& options);

// The readers of changes; each has marks of its own.
enum class DeltaReader {
  kPublication,  // vectors, for serving
  kCheckpoint,   // rows with state; also those that a step had without changing them
};

struct ShardStatistics {
  uint64_t rows = 0;
  uint64_t bytes = 0;    // of memory: rows, index, keys that wait, keys of erased rows
  uint64_t pending = 0;  // keys that wait for admission
  uint64_t erased = 0;   // rows so far
  uint32_t step = 0;
};

class TableRows {
 public:
  virtual ~TableRows() = default;

  virtual const ShardOptions& options() const = 0;

  // All rows. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<ShardRows> ReadRows(bool with_state) = 0;

  // Inserts rows, or replaces them. Values are rounded to the table's type. Without state, a row
  // that exists keeps its own, and a new one gets that of a new row. Rows with state may have been
  // published elsewhere: a delta names them when they are erased. The numbers of the table's steps
  // and updates become those of the rows if these are larger.
  // Errors: INVALID_ARGUMENT (sizes), RESOURCE_EXHAUSTED.
  virtual absl::Status WriteRows(const ShardRows& rows) = 0;

  // Keys without a row are ignored.
  virtual absl::Status EraseRows(std::span<const Key> keys) = 0;

  // The changes since the reader's last acknowledged delta, all rows before the first. The same
  // rows come again until they are acknowledged, so that a reader that fails loses nothing.
  // Cost: one look at every row.
  virtual absl::StatusOr<ShardDelta> CollectDelta(DeltaReader reader) = 0;
  // `through` as CollectDelta gave it; 0: the next delta has all rows.
  virtual void AcknowledgeDelta(DeltaReader reader, DeltaMark through) = 0;

  virtual ShardStatistics Statistics() const = 0;
};

}  // namespace hps
