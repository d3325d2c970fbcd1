// One connection to a server, for a program that sends one command at a time and waits for its
// reply: where the commands build on each other, as those with a cursor do.
//
// For one thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l2_redis/redis_address.h"
#include "l2_redis/redis_connection.h"

namespace hps {

class RedisSession {
 public:
  // `timeout` is for each command, with the connection where there is none yet.
  RedisSession(RedisAddress address, RedisCredentials credentials, Duration timeout)
      : address_(std::move(address)), credentials_(std::move(credentials)), timeout_(timeout) {}

  const RedisAddress& address() const { return address_; }

  // Connects if need be. An error reply is a reply. Errors, with the address: those of the
  // connection, DEADLINE_EXCEEDED; the connection is then closed, and the next call makes another,
  // perhaps to another run of the server.
  absl::StatusOr<Reply> Ask(std::initializer_list<std::string_view> parts);

 private:
  const RedisAddress address_;
  const RedisCredentials credentials_;
  const Duration timeout_;
  std::unique_ptr<RedisConnection> connection_;
  std::string command_;
};

}  // namespace hps
