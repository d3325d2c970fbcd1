#include "server/grpc/grpc_status.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>

namespace hps::server {
namespace {

// Clients limit the size of trailers.
constexpr size_t kMessageBytesMax = 1024;
constexpr std::string_view kHexDigits = "0123456789ABCDEF";

}  // namespace

std::string_view StatusCodeText(absl::StatusCode code) {
  static constexpr std::array<std::string_view, 17> kTexts = {
      "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};
  const auto index = static_cast<size_t>(code);
  return index < kTexts.size() ? kTexts[index] : kTexts[2];  // UNKNOWN
}

std::string StatusMessageText(std::string_view message) {
  std::string text;
  for (const char letter : message.substr(0, kMessageBytesMax)) {
    if (letter >= ' ' && letter <= '~' && letter != '%') {
      text += letter;
      continue;
    }
    const auto byte = static_cast<unsigned char>(letter);
    text += '%';
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::optional<Duration> ParseTimeout(std::string_view text) {
  constexpr size_t kDigitsMax = 8;
  if (text.size() < 2 || text.size() > kDigitsMax + 1) return std::nullopt;
  int64_t number = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  switch (text.back()) {
    case 'H':  // at most a year, so that it does not overflow
      return std::chrono::hours(std::min<int64_t>(number, 24 * 366));
    case 'M':
      return std::chrono::minutes(number);
    case 'S':
      return std::chrono::seconds(number);
    case 'm':
      return std::chrono::milliseconds(number);
    case 'u':
      return std::chrono::microseconds(number);
    case 'n':
      return std::chrono::nanoseconds(number);
    default:
      return std::nullopt;
  }
}

}  // namespace hps::server
