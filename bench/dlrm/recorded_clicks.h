// Samples of a real click log: which key each asks of each table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps::bench {

struct RecordedClicks {
  // [table][rank - 1]: the distinct keys of a table, the one that most samples ask for first, and
  // how many samples ask for each.
  std::vector<std::vector<Key>> keys;
  std::vector<std::vector<uint64_t>> counts;
  std::vector<uint32_t> ranks;  // [sample, table]; from 1

  size_t table_count() const { return keys.size(); }
  size_t sample_count() const { return ranks.size() / keys.size(); }
};

// The key of a field without a value, which is a key as any other.
inline constexpr Key kNoValue = -1;

// Reads lines of Criteo's click logs: 40 fields separated by tabs, the last 26 of which are 32-bit
// numbers in hexadecimal digits, or empty. Errors: INVALID_ARGUMENT, with the number of the line.
absl::StatusOr<RecordedClicks> ParseCriteoClicks(const std::string& text);

// The same of the files train.tsv, dev.tsv and test.tsv of a directory, in this order. Errors:
// NOT_FOUND, and those of ParseCriteoClicks.
absl::StatusOr<RecordedClicks> ReadCriteoClicks(const std::string& directory);

}  // namespace hps::bench
