#include "bench/serve/serve_http_head.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hps::bench {
namespace {

constexpr size_t kBodyBytesMax = size_t{4} << 20;
constexpr std::string_view kLineEnd = "\r\n";

// Whatever the case of ASCII letters.
bool IsSame(std::string_view left, std::string_view right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

// The value of a header in `line`, if it is that one. `name` ends with a colon.
std::optional<std::string_view> ValueOf(std::string_view line, std::string_view name) {
  if (line.size() < name.size() || !IsSame(line.substr(0, name.size()), name)) return std::nullopt;
  line.remove_prefix(name.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

}  // namespace

absl::StatusOr<HttpAnswerHead> ParseHttpAnswerHead(std::string_view head) {
  HttpAnswerHead parsed;
  constexpr size_t kCodeAt = 9;  // after "HTTP/1.1 "
  if (!head.starts_with("HTTP/1.") || head.size() < kCodeAt + 3 ||
      !absl::SimpleAtoi(std::string(head.substr(kCodeAt, 3)), &parsed.code))
    return absl::InternalError(absl::StrCat("bench serve: no status line: ", std::string(head)));
  bool has_length = false;
  for (size_t at = head.find(kLineEnd); at != std::string_view::npos;) {
    const size_t from = at + kLineEnd.size();
    at = head.find(kLineEnd, from);
    const std::string_view line = head.substr(from, at == std::string_view::npos ? at : at - from);
    if (const auto length = ValueOf(line, "content-length:")) {
      uint64_t bytes = 0;
      has_length = absl::SimpleAtoi(std::string(*length), &bytes) && bytes <= kBodyBytesMax;
      parsed.body_bytes = bytes;
    } else if (const auto connection = ValueOf(line, "connection:")) {
      parsed.closes = IsSame(*connection, "close");
    }
  }
  if (has_length) return parsed;
  return absl::InternalError(
      absl::StrCat("bench serve: an answer without its length: ", std::string(head)));
}

}  // namespace hps::bench
