// A fuzz target: the query of /api/lookup, which a browser sends.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <span>

namespace hps::server {

// Checks what must hold for any query, and crashes (or a sanitizer does) when it does not.
void FuzzKeyQuestion(std::span<const std::byte> bytes);

}  // namespace hps::server
