// The number of rows that a message says it has, for rate limits: read before the message is
// checked, so it may be wrong, but never more than the message has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hps {

uint64_t PayloadRows(std::span<const std::byte> payload);

}  // namespace hps
