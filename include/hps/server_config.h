// Settings of `hps serve`: the sections [server], [server.batching] and [server.security] of the
// TOML file. docs/configuration.md describes each of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "hps/dense_math.h"

namespace hps {

// Answer to a request whose rows have not all arrived at its deadline: "degraded" = default rows
// with a status that marks them, "error" = DEADLINE_EXCEEDED.
enum class LateAnswers { kDegraded, kError };
enum class DenseDevice { kAuto, kCpu };  // "auto", "cpu"

struct ServerConfig {
  std::string http = "127.0.0.1:8000";     // empty = off
  std::string grpc = "127.0.0.1:8001";     // empty = off
  std::string metrics = "127.0.0.1:8002";  // empty = off
  uint32_t threads = 0;                    // of each protocol; 0 = two per core
  uint32_t lookups = 0;                    // concurrent ones; 0 = one per core; below `threads`
  LateAnswers late_answers = LateAnswers::kDegraded;
  // Where dense networks run; kAuto: on the GPUs of level 1, if it has any.
  DenseDevice dense_device = DenseDevice::kAuto;
  DenseMath dense_math = DenseMath::kFloat32;  // on GPUs; the CPU computes in float32
  std::chrono::nanoseconds drain_timeout = std::chrono::seconds(10);

  // Capacity. Requests that exceed it are refused at once.
  uint64_t keys_in_flight_max = uint64_t{16} << 20;
  uint64_t bytes_in_flight_max = uint64_t{1} << 30;  // requests and answers
  uint32_t connections_max = 4096;                   // of HTTP and of gRPC each

  // Limits of one request or connection.
  uint64_t body_bytes_max = uint64_t{64} << 20;  // decompressed
  uint64_t response_bytes_max = uint64_t{256} << 20;
  std::chrono::nanoseconds header_timeout = std::chrono::seconds(10);  // first byte to last byte
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds idle_timeout = std::chrono::minutes(2);         // between two requests
  std::chrono::nanoseconds stream_idle_timeout = std::chrono::minutes(2);  // of one gRPC stream
  uint32_t connection_streams_max = 64;  // gRPC streams of one connection

  // [server.batching]
  uint64_t batch_keys_max = uint64_t{64} << 10;  // of one lookup; larger requests are split
  std::chrono::nanoseconds batch_wait{};         // longest wait for more requests

  // [server.security]
  std::string tls_certificate;  // PEM file; empty = no TLS
  std::string tls_key;
  std::string tls_client_ca;  // PEM file; not empty = clients must present a certificate
  std::string token_file;     // bearer token, one line; empty = environment variable HPS_TOKEN
  bool repository_control = false;  // loading and unloading through the API; needs a token
  bool updates = false;             // changing rows through the API; needs a token
  // If set: loads, unloads, refreshes and changes of rows need this token; the token of token_file
  // is for everything else.
  std::string admin_token_file;
  // Without a token, an HTTP listener on the loopback answers to these names besides the local
  // ones.
  std::vector<std::string> hosts;
  bool secrets_readable_by_all = false;  // files of tokens, keys and passwords, with a warning
};

}  // namespace hps
