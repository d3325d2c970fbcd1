// Makes text of unknown origin safe to write to a terminal, a log or JSON.
#pragma once

#include <string>
#include <string_view>

namespace hps {

// Returns one line of valid UTF-8: control characters (also DEL and U+0080 to U+009F) become
// blanks, bytes outside a valid sequence become '?'.
std::string PrintableText(std::string_view text);

// Appends `text` as a quoted JSON string. The result is valid UTF-8: a byte outside a valid
// sequence becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string* json);

}  // namespace hps
