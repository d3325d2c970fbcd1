// What a fuzzer feeds: the readers of what a Redis server sends. Each checks what must hold for any
// input and crashes (or a sanitizer does) when it does not.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <span>

namespace hps {

// Replies; the first byte says in which pieces they arrive. What a client reads out of a reply is
// read, too: slots, redirects, names of hashes.
void FuzzRedisReply(std::span<const std::byte> bytes);

// The first byte is the table's row size; the value of a row follows. It is also taken for a row
// that is written and read back.
void FuzzRedisRowValue(std::span<const std::byte> bytes);

// The same of a row that nodes share, and of a mark.
void FuzzRedisSharedValue(std::span<const std::byte> bytes);

}  // namespace hps
