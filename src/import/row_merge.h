// Merges sorted runs into one strictly ascending sequence. A key that occurs twice is an error, or,
// of a table whose keys repeat, the row with the highest position counts.
//
// Uses a binary heap of cursors; a row costs about log2(runs) comparisons. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "import/sorted_run.h"

namespace hps {

// INVALID_ARGUMENT with the message "FILE: key K occurs twice, at rows A and B (counted from 0)".
absl::Status DuplicateKeyError(const std::string& keys_path, Key key, uint64_t position,
                               uint64_t other_position);

enum class RepeatedKeys { kRefused, kLastCounts };

class RowMerge {
 public:
  // `buffer` is divided among the spilled slices; each share holds at least one record. `keys_path`
  // is for messages.
  RowMerge(std::span<const RunSlice> slices, size_t row_bytes, std::span<std::byte> buffer,
           std::string keys_path, RepeatedKeys repeated);

  // Fills at most keys.size() keys, positions (unless empty) and rows, and returns their number; 0
  // = the end. Errors: INVALID_ARGUMENT (a duplicate key, with both positions), DATA_LOSS.
  absl::StatusOr<size_t> Next(std::span<Key> keys, std::span<uint64_t> positions, HostRows rows);

 private:
  struct Node {
    OrderedKey key = 0;
    size_t cursor = 0;
  };

  absl::Status Start();
  void SiftDown(size_t index);
  absl::Status AdvanceTop();
  // Skips the rows of the key that was taken last; the newest of them becomes `row`.
  absl::Status SkipRepeated(std::byte* row);

  const size_t row_bytes_;
  const std::string keys_path_;
  const RepeatedKeys repeated_;
  std::vector<RunCursor> cursors_;
  std::vector<Node> heap_;
  bool started_ = false;
  std::optional<SortEntry> last_;
};

}  // namespace hps
