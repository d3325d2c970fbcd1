// Finding the name that was probably meant: used wherever an unknown name is an error.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hps/names.h"

namespace hps {

// The candidate with the smallest edit distance, or "" when there is none within a third of the
// length. Cost: length x length per candidate.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

}  // namespace hps
