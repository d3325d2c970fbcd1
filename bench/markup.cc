#include "bench/markup.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace hps::bench {
namespace {

std::string Formatted(const char* format, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Three digits that count, without zeros at the end.
std::string ThreeDigits(double value) {
  const double magnitude = std::abs(value);
  std::string text = Formatted(magnitude >= 100  ? "%.0f"
                               : magnitude >= 10 ? "%.1f"
                               : magnitude >= 1  ? "%.2f"
                                                 : "%.3g",
                               value);
  if (text.find('.') == std::string::npos || text.find('e') != std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return escaped;
}

std::string ShortNumber(double value) {
  struct Prefix {
    double from;
    const char* text;
  };
  constexpr std::array<Prefix, 4> kPrefixes = {
      {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}}};
  const double magnitude = std::abs(value);
  if (!std::isfinite(value)) return "-";
  for (const Prefix& prefix : kPrefixes) {
    // Thousands have a digit more before they are shortened: 4096 is a number that people know.
    const double unit = prefix.from == 1e4 ? 1e3 : prefix.from;
    if (magnitude >= prefix.from) return ThreeDigits(value / unit) + prefix.text;
  }
  return magnitude >= 1000 ? Formatted("%.0f", value) : ThreeDigits(value);
}

std::string Coordinate(double value) { return Formatted("%.1f", value); }

}  // namespace hps::bench
