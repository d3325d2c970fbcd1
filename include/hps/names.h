// The name that was probably meant, for errors about unknown ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hps {

// "; did you mean 'x'?" with the candidate that is nearest to `name`, or "" when none is near.
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates);

}  // namespace hps
