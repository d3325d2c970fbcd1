// Compresses messages as a client does. Include it in tests only.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>
#include <vector>

namespace hps::server {

inline constexpr int kGzipWindowBits = 31;

// `window_bits`: zlib's window bits, which also choose the format.
inline std::string Packed(std::string_view plain, int window_bits = kGzipWindowBits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<Bytef> in(plain.begin(), plain.end());
  std::vector<Bytef> out(deflateBound(&stream, plain.size()));
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return {out.begin(), out.end()};
}

}  // namespace hps::server
