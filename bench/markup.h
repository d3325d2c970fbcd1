// Text in a page of HTML that is well-formed XML, too.
#pragma once

#include <string>
#include <string_view>

namespace hps::bench {

// Text as it may stand between tags and in quoted attributes: markup is escaped, and characters
// that no page may have become spaces.
std::string Escaped(std::string_view text);

// Short for an axis or a table: 1234567 is "1.23 M", 0.5 is "0.5".
std::string ShortNumber(double value);

// A coordinate in a picture: one digit after the point.
std::string Coordinate(double value);

}  // namespace hps::bench
