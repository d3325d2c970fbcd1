#include "server/http/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "server/net/listener.h"

namespace hps::server {
namespace {

// As inet_pton, for text that no zero byte ends.
template <typename Address>
bool ParseAddress(int family, std::string_view text, Address* address) {
  std::array<char, INET6_ADDRSTRLEN> copy{};
  if (text.size() >= copy.size()) return false;
  text.copy(copy.data(), text.size());
  return inet_pton(family, copy.data(), address) == 1;
}

std::string_view WithoutBrackets(std::string_view text) {
  const bool has_brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  return has_brackets ? text.substr(1, text.size() - 2) : text;
}

bool IsRegisteredName(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_hex = [&](size_t at) {
      return at < text.size() && absl::ascii_isxdigit(static_cast<unsigned char>(text[at]));
    };
    constexpr std::string_view kMarks = "-._~!$&'()*+;=";
    const bool is_allowed = absl::ascii_isalnum(static_cast<unsigned char>(text[i])) ||
                            kMarks.find(text[i]) != std::string_view::npos ||
                            (text[i] == '%' && is_hex(i + 1) && is_hex(i + 2));
    if (!is_allowed) return false;
  }
  return true;
}

}  // namespace

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase({a.data(), a.size()}, {b.data(), b.size()});
}

bool ParseHost(std::string_view text, std::string_view* name) {
  const bool is_address = text.starts_with('[');
  const size_t end = std::min(is_address ? text.find(']') + 1 : text.find(':'), text.size());
  *name = text.substr(0, end);
  in6_addr address{};
  if (!(is_address ? ParseAddress(AF_INET6, WithoutBrackets(*name), &address)
                   : IsRegisteredName(*name))) {
    return false;
  }
  if (name->ends_with('.')) name->remove_suffix(1);
  if (end > 0 && name->empty()) return false;
  text.remove_prefix(end);
  uint16_t port = 0;
  if (text.size() <= 1) return text.empty() || text == ":";
  const char* const last = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + 1, last, port);
  return text.front() == ':' && read.ec == std::errc() && read.ptr == last;
}

bool IsLocalName(std::string_view name) {
  in_addr v4{};
  if (ParseAddress(AF_INET, name, &v4)) return IsLoopback(v4);
  in6_addr v6{};
  if (ParseAddress(AF_INET6, WithoutBrackets(name), &v6)) return IsLoopback(v6);
  return EqualIgnoringCase(name, "localhost") ||
         absl::EndsWithIgnoreCase({name.data(), name.size()}, ".localhost");
}

// The system also takes short forms of an address, as 127.1.
bool IsLoopback(std::string_view address) {
  const std::string_view host = address.substr(0, address.rfind(':'));
  return IsLocalName(host) || (host.starts_with("127.") &&
                               host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace hps::server
