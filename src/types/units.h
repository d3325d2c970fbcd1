// Parses and prints sizes and durations: "512MiB", "500ms".
//
// Only whole numbers with a unit, so that nothing is rounded: Parse(Format(x)) == x.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps {

// Units B, KiB, MiB, GiB, TiB. Errors: INVALID_ARGUMENT (says what is expected), also for a size of
// 2^64 bytes or more.
absl::StatusOr<uint64_t> ParseByteSize(std::string_view text);

// Units ns, us, ms, s, min, h. Errors: INVALID_ARGUMENT, also for more than 292 years.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// Uses the largest unit that gives a whole number: 1536 -> "1536B", 2048 -> "2KiB".
std::string FormatByteSize(uint64_t bytes);
std::string FormatDuration(std::chrono::nanoseconds duration);

}  // namespace hps
