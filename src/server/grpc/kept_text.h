// Clears a string that is reused by the next call and bounds the memory that it keeps.
#pragma once

#include <cstddef>
#include <string>

namespace hps::server {

inline constexpr size_t kKeptTextBytesMax = 4096;

inline void ClearText(std::string* text) {
  text->clear();
  if (text->capacity() > kKeptTextBytesMax) *text = std::string();
}

}  // namespace hps::server
