// A counter in memory that several processes have mapped: one of them raises it, the others wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hps {

using SharedWord = std::atomic<uint32_t>;
static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == sizeof(uint32_t));

// Everything that this thread wrote before is visible to a thread that has seen the value.
void RaiseWord(SharedWord& word, uint32_t value);

// Whether the word has reached the value (modulo 2^32) within this time. Looks at it for a moment
// before it sleeps, because the ranks of a step arrive together.
bool WaitForWord(const SharedWord& word, uint32_t value, std::chrono::nanoseconds time);

}  // namespace hps
