// Hints for errors about unknown names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hps {

// The candidate with the smallest edit distance, or "" if none is within a third of the length.
// Cost: length x length per candidate.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// "; did you mean 'x'?" with the NearestName, or "".
std::string NearestNameHint(std::string_view name, std::span<const std::string> candidates);

}  // namespace hps
