// One connection of a load generator to a server, over HTTP or gRPC.
//
// For one thread. An answer that is no error ends with the rows of its only output in both
// protocols, so that they are checked without a decoder, which would be measured too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps::bench {

enum class Answer {
  kRows,
  kRefused,  // over capacity
  kLate,     // past its deadline
};

class ServeClient {
 public:
  virtual ~ServeClient() = default;
  // Sends the request and reads the answer. Errors: everything but an Answer.
  virtual absl::StatusOr<Answer> Ask(const std::string& request) = 0;
  // Whether the last answer ended with these bytes.
  virtual bool EndsWith(std::span<const std::byte> rows) = 0;
  virtual size_t answer_bytes() const = 0;
};

// A protocol: how a request is written, and how a connection is made.
struct ServeProtocol {
  std::string name;
  // The bytes that Ask takes; no `timeout` = none is sent.
  std::function<std::string(std::span<const Key> keys, std::chrono::microseconds timeout)> encode;
  std::function<absl::StatusOr<std::unique_ptr<ServeClient>>(const std::string& address)> connect;
};

ServeProtocol HttpProtocol();
// Without one in a build without gRPC: `connect` is null.
ServeProtocol GrpcProtocol();

// Echo servers by the libraries that the protocols have their names from: they read a request and
// answer so many bytes from memory. They serve with `threads` threads until the process ends, and
// return the port.
absl::StatusOr<uint16_t> StartHttpEcho(size_t body_bytes, size_t threads);
absl::StatusOr<uint16_t> StartGrpcEcho(size_t message_bytes, size_t threads);

}  // namespace hps::bench
