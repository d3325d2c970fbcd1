#include "types/key_text.h"

#include <charconv>
#include <cstdint>
#include <system_error>

namespace hps {
namespace {

template <typename Number>
bool IsWhole(std::string_view text, Number& number) {
  const char* const last = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), last, number);
  return read.ec == std::errc() && read.ptr == last;
}

}  // namespace

std::optional<Key> ParseKey(std::string_view text) {
  Key key = 0;
  if (IsWhole(text, key)) return key;
  uint64_t bits = 0;
  if (IsWhole(text, bits)) return static_cast<Key>(bits);
  return std::nullopt;
}

}  // namespace hps
