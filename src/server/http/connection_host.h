// What a connection needs of the server that it belongs to.
//
// Thread-safe; outlives its connections.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "base/executor.h"
#include "server/core/protocol_server.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

class Connection;

class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;

  virtual const ProtocolParts& parts() const = 0;
  virtual HttpRole role() const = 0;
  virtual BufferPool& pool() = 0;
  virtual bool draining() const = 0;

  // Whether a request with this Authorization field may pass; `needs_token`: only if there is a
  // token at all.
  virtual bool Admits(std::string_view authorization, bool needs_token) const = 0;

  // From now on the connection hears of its socket. Errors: UNAVAILABLE.
  virtual absl::Status Watch(Connection& connection, int fd) = 0;
  // Has the connection driven by one of the server's own threads, soon.
  virtual void Wake(Connection& connection, int fd) = 0;

  // A request was not answered because the server has too much to do.
  virtual void NoteRefused() = 0;

  // Runs `task` where it may take its time. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status PostSlow(Task* task) = 0;

  // The connection has closed its socket and may be opened again with another.
  virtual void OnClosed(Connection& connection) = 0;
};

}  // namespace hps::server
