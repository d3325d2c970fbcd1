// Text that is safe to write to a terminal, a log or JSON, and numbers that read back unchanged.
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

// The shortest decimal that reads back as the same number, with a point or an exponent so that it
// is a TOML float; "nan", "inf" or "-inf".
std::string PrintDouble(double value);

}  // namespace hps
