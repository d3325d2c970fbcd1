// The head of an HTTP/1.x request, as far as the server reads it, and the framing of its body.
//
// Boost.Beast's parser does the parsing, on contiguous memory and without allocating; here are the
// stricter rules of a server that may stand behind a proxy: what two parsers could understand
// differently (request smuggling) is refused, not repaired.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "server/http/http_error.h"
#include "server/net/compression.h"

namespace hps::server {

inline constexpr size_t kHeadBytesMax = 16 << 10;
inline constexpr size_t kTargetBytesMax = 8 << 10;  // path and query
inline constexpr size_t kChunksMax = 65536;

enum class Method : uint8_t {
  kGet,
  kHead,
  kPost,
  kOther,    // another one that HTTP has
  kUnknown,  // HTTP has no such method
};
enum class Expectation : uint8_t { kNone, kContinue, kUnknown };

// Views point into the text that was parsed.
struct RequestHead {
  Method method = Method::kOther;
  std::string_view host;   // of the target, else of the field Host; empty: the request names none
  std::string_view path;   // decoded, but for "%2F": it separates no segments
  std::string_view query;  // without "?", not decoded
  bool keep_alive = false;
  bool is_1_0 = false;
  Expectation expectation = Expectation::kNone;
  bool chunked = false;
  uint64_t content_length = 0;
  Coding content_coding = Coding::kIdentity;
  Coding accepted_coding = Coding::kIdentity;  // the one that the client prefers
  bool refuses_identity = false;
  std::optional<uint64_t> json_bytes;  // Inference-Header-Content-Length
  std::string_view authorization;
};

// How far a search for the end of a head has come.
class HeadEnd {
 public:
  // Looks at what is there of a head: `text` is everything from its first byte on and may only grow
  // between two calls. The length of the head with its empty line, or nullopt: more is needed.
  // Errors: 400 for a bare LF and for a folded line; over kHeadBytesMax 414 if the target is what
  // is too long, else 431.
  std::optional<size_t> Find(std::string_view text, HttpError* error);
  void Reset() { seen_ = line_begin_ = 0; }

 private:
  size_t seen_ = 0;        // no line ends before it that has not been looked at
  size_t line_begin_ = 0;  // of the line that has not ended yet
};

// Reads one request: its head in one piece, then the chunks of its body, if it has such.
class RequestParser {
 public:
  RequestParser();
  ~RequestParser();

  // `text` is a whole head; it is changed, as the path is decoded in place. Errors (false): 400,
  // 414, 501, 505.
  bool ParseHead(std::span<char> text, RequestHead* head, HttpError* error);

  // The next piece of a chunked body.
  struct ChunkStep {
    size_t consumed = 0;
    std::string_view data;  // of the body, in the text given
    bool finished = false;  // the body is complete
    bool needs_more = false;
  };
  // Errors (false): 400, 413 when the body would exceed `bytes_max` or kChunksMax chunks.
  bool ParseChunk(std::string_view text, uint64_t bytes_max, ChunkStep* step, HttpError* error);

 private:
  class Impl;
  // Room for the one Impl, made anew for each request: Beast's parser can't be used again.
  static constexpr size_t kImplBytes = 384;
  struct Destroy {
    void operator()(Impl* impl) const;
  };
  alignas(16) std::array<std::byte, kImplBytes> memory_;
  std::unique_ptr<Impl, Destroy> impl_;
};

}  // namespace hps::server
