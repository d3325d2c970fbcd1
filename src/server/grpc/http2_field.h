// A header field of HTTP/2 for libnghttp2.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace hps::server {

// `flags`: nghttp2's, which say whether it copies the texts. Texts that it does not copy must live
// until the field was sent. nghttp2 does not write to the texts.
inline nghttp2_nv Http2Field(std::string_view name, std::string_view value, uint8_t flags) {
  const auto bytes = [](std::string_view text) {
    return AsElements<uint8_t>(const_cast<std::byte*>(AsBytePointer(text.data())));
  };
  return {.name = bytes(name),
          .value = bytes(value),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = flags};
}

}  // namespace hps::server
