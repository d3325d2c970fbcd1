// Files in TOML: read and parsed within limits, with the place of each error.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

// Parts that a key of a file may have; settings have three at most.
inline constexpr uint32_t kTomlKeyPartsMax = 8;

// The place in the TOML `text` of the first key with more than `parts_max` parts (a.b.c has three).
// ParseToml looks for one before it parses: the parser recurses once per part, and a file of the
// permitted size can hold a key that overflows the stack. Other text that looks like a key, such as
// an unquoted version number, is not valid TOML either. Lines and columns (in bytes) count from 1.
std::optional<toml::source_position> FindDeepKey(std::string_view text, uint32_t parts_max);

// `status`, with "FILE:LINE:COLUMN: " before the message of an error.
absl::Status WithPlace(const std::string& path, const toml::source_position& place,
                       const absl::Status& status);

// Errors: NOT_FOUND, PERMISSION_DENIED; INVALID_ARGUMENT for a file that is not regular, or has
// more than kConfigBytesMax bytes.
absl::StatusOr<std::string> ReadTomlText(const std::string& path);

// Errors: INVALID_ARGUMENT, in one line with the place, for text that is no TOML or has a key of
// more than kTomlKeyPartsMax parts.
absl::StatusOr<toml::table> ParseToml(const std::string& path, const std::string& text);

}  // namespace hps
