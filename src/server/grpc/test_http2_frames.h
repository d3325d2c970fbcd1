// Builds HTTP/2 frames, header fields and gRPC messages byte by byte, for tests and fuzzers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hps::server {

inline std::string BigEndian(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = bytes; i-- > 0;) text += static_cast<char>(value >> (8 * i));
  return text;
}

inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndFields = 4;

struct Http2Frame {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;

  std::string bytes() const {
    return BigEndian(payload.size(), 3) + BigEndian(type, 1) + BigEndian(flags, 1) +
           BigEndian(stream, 4) + payload;
  }
};

// Header fields in HPACK, as literals without compression.
inline std::string PackFields(const std::vector<std::pair<std::string, std::string>>& fields) {
  const auto text = [](const std::string& value) {
    std::string packed;
    size_t rest = value.size();
    if (rest < 127) return std::string(1, static_cast<char>(rest)) + value;
    packed += static_cast<char>(127);
    for (rest -= 127; rest >= 128; rest >>= 7) packed += static_cast<char>(128 | (rest & 127));
    packed += static_cast<char>(rest);
    return packed + value;
  };
  std::string packed;
  for (const auto& [name, value] : fields)
    packed += std::string(1, '\0') + text(name) + text(value);
  return packed;
}

inline std::vector<std::pair<std::string, std::string>> CallFields(const std::string& path) {
  return {{":method", "POST"},
          {":scheme", "http"},
          {":path", path},
          {":authority", "x"},
          {"content-type", "application/grpc"},
          {"te", "trailers"}};
}

// A gRPC message with its prefix.
inline std::string Framed(std::string_view message, uint8_t flag = 0) {
  return BigEndian(flag, 1) + BigEndian(message.size(), 4) + std::string(message);
}

}  // namespace hps::server
