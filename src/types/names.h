// Names of models and tables: their parts, and hints for errors about unknown ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hps {

// The model's name in a table's full name, MODEL/TABLE.
std::string ModelOf(std::string_view table);

// The candidate with the smallest edit distance, or "" if none is within a third of the length.
// Cost: length x length per candidate.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// "; did you mean 'x'?" with the NearestName, or "".
std::string NearestNameHint(std::string_view name, std::span<const std::string> candidates);

}  // namespace hps
