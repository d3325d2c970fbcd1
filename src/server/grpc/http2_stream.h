// One stream of a GrpcSession: what the session reports of it, and the response that it sends.
//
// The connection owns the streams. GrpcSession changes `state`, Http2Output changes `output_end`.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>

#include "server/grpc/response_writer.h"

namespace hps::server {

class Http2Stream {
 public:
  enum class State : uint8_t {
    kClosed,
    kOpen,
    kAnswering,  // open, and the response's header fields were submitted
  };

  virtual ~Http2Stream() = default;

  // A header field or trailer. Returns the size of all fields of the stream so far, as HTTP/2
  // counts them.
  virtual size_t OnField(std::string_view name, std::string_view value) = 0;
  virtual void OnFields() = 0;  // all header fields, or all trailers, have arrived
  virtual void OnData(std::span<const std::byte> bytes) = 0;
  virtual void OnEnd() = 0;  // the client sends no more
  // An allocation failed in one of the functions above.
  virtual void OnNoMemory() = 0;

  bool is_open() const { return state != State::kClosed; }
  // Whether the connection's output has views of the response's memory.
  bool is_in_output() const { return output_end != 0; }

  int32_t id = 0;  // HTTP/2's
  State state = State::kClosed;
  uint64_t output_end = 0;  // position in the output where the last view ends; 0 = no view
  ResponseWriter response;
};

// Calls `act`, an event of the stream. If an allocation fails in it, the call ends.
template <typename Act>
void Tell(Http2Stream& stream, const Act& act) {
  try {
    act();
  } catch (const std::bad_alloc&) {
    stream.OnNoMemory();
  }
}

}  // namespace hps::server
