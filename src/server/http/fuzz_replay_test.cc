// Feeds each fuzz target what broke parsers before, and tens of thousands of mutants of valid
// input. libFuzzer (CMake option HPS_FUZZ, clang) goes on from there.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "server/http/fuzz_targets.h"
#include "server/http/test_http_world.h"
#include "server/net/compression.h"
#include "testing/fuzz_replay.h"

namespace hps::server {
namespace {

const std::vector<std::string>& Pieces() {
  static const std::vector<std::string> kPieces = {"\r\n",
                                                   "\n",
                                                   " ",
                                                   ":",
                                                   ",",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "-1",
                                                   "0",
                                                   "9223372036854775807",
                                                   "18446744073709551616",
                                                   "1e999",
                                                   "NaN",
                                                   "-Infinity",
                                                   "null",
                                                   "\xff",
                                                   "binary_data_size",
                                                   "shape",
                                                   "data",
                                                   "INT64",
                                                   "FP32",
                                                   "chunked",
                                                   "Content-Length: 1\r\n"};
  return kPieces;
}

void Replay(const std::function<void(std::span<const std::byte>)>& target,
            const std::vector<std::string>& seeds) {
  ReplayMutants(target, seeds, Pieces(), 20261121);
}

std::string BodyOf(const std::string& request) {
  return request.substr(request.find("\r\n\r\n") + 4);
}

TEST(FuzzReplayTest, HttpRequest) {
  const std::string chunked =
      "\x02POST http://h/v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n";
  Replay(FuzzHttpRequest,
         {"", "\x05", "\x01\r\n\r\n", "\xff" + BinaryInfer({1, 2}), "\x03" + Get("/v2/models/m"),
          "\x40" + Get("/v2?x=y", "Accept-Encoding: gzip;q=0.1, deflate\r\nExpect: x\r\n"), chunked,
          "\xffGET HTTPS://[::1]:80/v2/models/%6d%2F?%zz HTTP/1.9\r\nHost: a.b:1\r\n\r\n",
          // Found by libFuzzer: byte by byte, Beast aborted at the CR after the last chunk.
          "\x01POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          "\x80POST / HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc"});
}

TEST(FuzzReplayTest, V2Json) {
  Replay(FuzzV2Json,
         {"", "{}", "{\"inputs\":[]}", BodyOf(JsonInfer("[[1],[-2]]", "2,1")),
          BodyOf(JsonInfer("[1,NaN]", "2", R"(,"outputs":[{"name":"o"}],"id":"\u00e9")")),
          R"({"inputs":[{"name":"a","shape":[2],"datatype":"FP32","data":[-1e-5,Infinity]},
             {"name":"b","shape":[2,1],"datatype":"BOOL","data":[[true],[false]]}],
             "parameters":{"timeout":10,"x":{"y":[1,2,{"z":null}]}}})",
          std::string(200, '['), R"({"inputs":[{"shape":[1,2,3,4,5,6,7,8,9]}]})"});
}

TEST(FuzzReplayTest, BinaryTensor) {
  const auto seed = [](const std::string& json, const std::string& binary) {
    std::string text(2, '\0');
    StoreLittleEndian(text.data(), static_cast<uint16_t>(json.size()));
    return text + json + binary;
  };
  Replay(FuzzBinaryTensor,
         {"", std::string(2, '\0'),
          seed(R"({"inputs":[{"name":"a","shape":[2],"datatype":"INT64",)"
               R"("parameters":{"binary_data_size":16}}]})",
               std::string(16, 'x')),
          seed(R"({"inputs":[{"name":"a","shape":[1,3],"datatype":"BYTES",)"
               R"("parameters":{"binary_data_size":5}},{"name":"b","shape":[1],)"
               R"("datatype":"UINT8","data":[7]},{"name":"c","shape":[0],"datatype":"FP16",)"
               R"("parameters":{"binary_data_size":0}}]})",
               "12345")});
}

TEST(FuzzReplayTest, Inflate) {
  BufferPool pool({.lent_bytes_max = 1 << 24});
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string("\0\x1f\x8b\x08", 4)};
  for (const Coding coding : {Coding::kGzip, Coding::kDeflate}) {
    for (const std::string& plain : {std::string(), std::string("row"), std::string(1 << 20, 'x'),
                                     std::string((1 << 20) + 1, 'x'), JsonInfer("[1,2]", "2")}) {
      const std::span<const std::byte> piece = AsBytes(std::string_view(plain));
      const auto packed = Deflate(coding, {&piece, 1}, 2 << 20, pool);
      ASSERT_TRUE(packed.ok()) << packed.status();
      seeds.push_back(std::string(1, coding == Coding::kGzip ? '\0' : '\1') +
                      std::string(AsText(packed->memory.bytes().first(packed->size))));
    }
  }
  Replay(FuzzInflate, seeds);
}

}  // namespace
}  // namespace hps::server
