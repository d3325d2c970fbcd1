// Reads a row of level 2 as a device does (tier/direct_rows.h).
#pragma once

#include <cstddef>
#include <span>

#include "hps/types.h"
#include "tier/direct_rows.h"

namespace hps {

// Writes the row of a key to `row`; false if it is not found. REQUIRES: reads are under way.
bool ReadDirectRow(const DirectRows& direct, Key key, std::span<std::byte> row);

}  // namespace hps
