// Reads keys as people write them.
#pragma once

#include <optional>
#include <string_view>

#include "hps/types.h"

namespace hps {

// A decimal from -2^63 to 2^64 - 1; above 2^63 - 1 it is the key of the same bits. Nullopt: the
// text is no such number, or more than one.
std::optional<Key> ParseKey(std::string_view text);

}  // namespace hps
