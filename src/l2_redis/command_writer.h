// Writes commands for a Redis server: an array of strings each.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace hps {

// The beginning of a command with `count` parts, which follow.
void AppendCommandHeader(size_t count, std::string& out);
// The beginning of a part of `size` bytes, which follow with kPartEnd.
void AppendPartHeader(size_t size, std::string& out);
inline constexpr std::string_view kPartEnd = "\r\n";
void AppendPart(std::string_view part, std::string& out);
void AppendCommand(std::initializer_list<std::string_view> parts, std::string& out);

}  // namespace hps
