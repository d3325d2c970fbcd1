// All methods of the services except inference: health, reflection, metadata, configuration,
// statistics and the model repository. Each takes a serialized request and returns a serialized
// answer.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/core/protocol_server.h"

namespace hps::server {

// Whether clients may load and unload models. This requires a setting and a token.
struct RepositoryControl {
  bool allowed = false;
};

class ControlMethods {
 public:
  using Answer = absl::StatusOr<std::string>;

  enum class Kind : uint8_t {
    kPlain,
    kHealth,  // needs no token
    kWatch,   // as kHealth; a stream of answers: the current one, and each that differs from it
    kStream,  // a stream of requests, each with an answer
    kSlow,    // may take seconds: must not run on a thread that serves connections
  };
  struct Method {
    std::string_view path;  // "/inference.GRPCInferenceService/ServerLive"
    Answer (ControlMethods::*answer)(std::string_view request) const = nullptr;
    Kind kind = Kind::kPlain;

    bool is_health() const { return kind == Kind::kHealth || kind == Kind::kWatch; }
  };

  // `parts` are borrowed.
  ControlMethods(const ProtocolParts& parts, RepositoryControl control)
      : parts_(parts), control_(control) {}

  // Null: there is no such method.
  static const Method* Find(std::string_view path);

  // Errors: those of the method; INVALID_ARGUMENT (`request` is not a valid message).
  Answer Call(const Method& method, std::string_view request) const {
    return (this->*method.answer)(request);
  }

 private:
  static std::span<const Method> methods();

  Answer HealthCheck(std::string_view request) const;
  Answer HealthList(std::string_view request) const;
  Answer HealthWatch(std::string_view request) const;
  Answer Reflection(std::string_view request) const;
  Answer ServerLive(std::string_view request) const;
  Answer ServerReady(std::string_view request) const;
  Answer ModelReady(std::string_view request) const;
  Answer ServerMetadata(std::string_view request) const;
  Answer DescribeModel(std::string_view request) const;
  Answer ModelConfiguration(std::string_view request) const;
  Answer Statistics(std::string_view request) const;
  Answer RepositoryIndex(std::string_view request) const;
  Answer Load(std::string_view request) const;
  Answer Unload(std::string_view request) const;
  Answer SharedMemory(std::string_view request) const;
  Answer Settings(std::string_view request) const;

  absl::Status CheckControl() const;

  const ProtocolParts parts_;
  const RepositoryControl control_;
};

}  // namespace hps::server
