// How HugeCTR HPS names a table's rows in Redis, since its version 4.2: each of a table's
// partitions is a hash "hps_et{hps_et.<model>.<table>/p<partition>}v", whose fields are the keys'
// bytes, little-endian, and whose values are the rows' bytes. A second hash, with "t" for "v", has
// times or counts of the same fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hps/types.h"

namespace hps {

// Matches all names of hashes with rows, and perhaps others, for SCAN.
inline constexpr std::string_view kHugectrHashPattern = "hps_et{hps_et.*/p*}v";

// `table` is "<model>/<table>".
std::string HugectrHashName(const std::string& table, uint32_t partition);

// The partition that a key's row is in, of `count`; of one partition, 0.
uint32_t HugectrPartition(Key key, uint32_t count);

struct HugectrHash {
  std::string table;
  uint32_t partition = 0;

  friend bool operator==(const HugectrHash&, const HugectrHash&) = default;
};

// Nothing if it is no such name.
std::optional<HugectrHash> ParseHugectrHashName(std::string_view name);

}  // namespace hps
