// What a table's files say, read in the plainest way, for comparison with what was imported.
//
// Independent of src/import: written from the formats' definitions. A file that these readers can't
// make sense of must have been refused by the import.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "hps/types.h"

namespace hps {

struct ReferenceTable {
  uint64_t dim = 0;
  std::string element;              // "f4", "f2", "bf16"
  std::map<Key, std::string> rows;  // bytes as in the file
};

// nullopt: not a table (also when a key is there twice).
std::optional<ReferenceTable> ReadReferenceHugectr(std::string_view keys, std::string_view rows);
std::optional<ReferenceTable> ReadReferenceNpy(std::string_view keys, std::string_view rows);
std::optional<ReferenceTable> ReadReferenceSafetensors(std::string_view file);

}  // namespace hps
