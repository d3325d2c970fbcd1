// Checks of a configuration's keys: how deep they nest, and which are reserved.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hps {

// Parts that a key of a configuration may have; settings have three at most.
inline constexpr uint32_t kConfigKeyPartsMax = 8;

// A place in a text, both counted from 1; columns in bytes.
struct TextPlace {
  uint32_t line = 0;
  uint32_t column = 0;
};

// The place in the TOML `text` of the first key with more than `parts_max` parts (a.b.c has three).
// Run this before parsing: the parser recurses once per part, and a file of the permitted size can
// hold a key that overflows the stack. Other text that looks like a key, such as an unquoted
// version number, is not valid TOML either.
std::optional<TextPlace> FindDeepKey(std::string_view text, uint32_t parts_max);

}  // namespace hps
