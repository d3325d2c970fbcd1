// How deep the keys of a configuration nest, found out before its text is parsed: the parser takes
// its tables apart by recursion, one call for each part of a dotted key, and a file has room for a
// key that no stack has.
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

// Where the first key of `text`, TOML, has more than `parts_max` parts (a.b.c has three), if any
// has. What looks like a key and is none, a dotted version number without quotes for example, is no
// TOML either.
std::optional<TextPlace> FindDeepKey(std::string_view text, uint32_t parts_max);

}  // namespace hps
