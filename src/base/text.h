// Text of unknown origin made safe to write: on a terminal, in a log, in JSON.
#pragma once

#include <string>
#include <string_view>

namespace hps {

// One line of valid UTF-8: control characters (also DEL and U+0080 to U+009F) become blanks, bytes
// that are no part of a valid sequence '?'.
std::string PrintableText(std::string_view text);

// Appends `text` with quotes as a JSON string: valid UTF-8, whatever the bytes; one that is no part
// of a valid sequence becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string* json);

}  // namespace hps
