// What a program does without hps: hiredis' own client, and one plain string per row under the name
// "bench:" KEY. The scenario "redis" compares level 2 with it.
//
// In a cluster a batch's commands are sent to all nodes before any reply is read. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "hps/types.h"

struct redisContext;
struct redisReply;

namespace hps::bench {

class PlainRedis {
 public:
  // `nodes` are "host:port". Errors: UNAVAILABLE, INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<PlainRedis>> Connect(const std::vector<std::string>& nodes,
                                                             bool cluster);
  PlainRedis(const PlainRedis&) = delete;
  PlainRedis& operator=(const PlainRedis&) = delete;

  // A pipeline of one GET, or one SET, per key. Errors: UNAVAILABLE; NOT_FOUND (a key is not held).
  absl::Status Get(std::span<const Key> keys, const HostRows& rows);
  absl::Status Set(std::span<const Key> keys, const HostRows& rows);
  // One MGET. REQUIRES: no cluster.
  absl::Status GetAtOnce(std::span<const Key> keys, const HostRows& rows);

  // Of all nodes.
  absl::Status RemoveAll();
  absl::StatusOr<uint64_t> KeyCount();
  absl::StatusOr<uint64_t> UsedBytes();

  // Ends the first server at once, without a snapshot. Nothing but the destructor may follow.
  void EndFirstServer();

 private:
  using Context = std::unique_ptr<redisContext, void (*)(redisContext*)>;
  using Reply = std::unique_ptr<redisReply, void (*)(void*)>;

  PlainRedis() = default;

  absl::StatusOr<Reply> Ask(size_t node, std::span<const std::string> command);
  absl::StatusOr<Reply> ReadReply(size_t node);
  absl::Status LearnSlots();
  size_t NodeOf(Key key) const;
  // Sends `command` (its name, the row if wanted) for each key, and passes the replies on.
  absl::Status Pipeline(const char* command, std::span<const Key> keys, const HostRows* values,
                        const std::function<absl::Status(size_t, const redisReply&)>& take);

  std::vector<std::string> names_;
  std::vector<Context> nodes_;
  std::vector<uint16_t> node_of_slot_;            // empty without a cluster
  std::vector<std::vector<uint32_t>> positions_;  // of a batch's keys, by node
};

}  // namespace hps::bench
