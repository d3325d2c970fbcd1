// Every method of the service but inference: health, metadata, configuration, statistics, and the
// repository, from a serialized request to a serialized answer.
//
// Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/core/protocol_server.h"

namespace hps::server {

// How a model is asked to be loaded or unloaded: only where the configuration allows it, and never
// by somebody without a token.
struct RepositoryControl {
  bool allowed = false;
};

class ControlMethods {
 public:
  using Answer = absl::StatusOr<std::string>;

  struct Method {
    std::string_view path;   // "/inference.GRPCInferenceService/ServerLive"
    bool is_health = false;  // asked for without a token
    bool is_slow = false;    // may take seconds: not on a thread that serves others
    Answer (ControlMethods::*answer)(std::string_view request) const = nullptr;
    bool is_watch = false;  // a stream of answers: the one of now, and each that differs from it
  };

  // `parts` are borrowed.
  ControlMethods(const ProtocolParts& parts, RepositoryControl control)
      : parts_(parts), control_(control) {}

  // Null when there is no such method.
  static const Method* Find(std::string_view path);

  // Errors: those of the protocol's method; INVALID_ARGUMENT for bytes that are not its request.
  Answer Call(const Method& method, std::string_view request) const {
    return (this->*method.answer)(request);
  }

 private:
  static std::span<const Method> methods();

  Answer HealthCheck(std::string_view request) const;
  Answer HealthWatch(std::string_view request) const;
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
