#include "bench/redis/plain_redis.h"

#include <hiredis/hiredis.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l2_redis/slots.h"

namespace hps::bench {
namespace {

constexpr std::string_view kPrefix = "bench:";
using Name = std::array<char, kPrefix.size() + sizeof(Key)>;

Name NameOf(Key key) {
  Name name;
  std::memcpy(name.data(), kPrefix.data(), kPrefix.size());
  std::memcpy(name.data() + kPrefix.size(), &key, sizeof(key));
  return name;
}

absl::Status Unavailable(const std::string& node, std::string_view why) {
  return absl::UnavailableError(absl::StrCat("bench redis: ", node, ": ", std::string(why)));
}

std::string_view TextOf(const redisReply& reply) { return {reply.str, reply.len}; }

absl::Status CopyRow(const redisReply& reply, size_t position, const HostRows& rows) {
  if (reply.type != REDIS_REPLY_STRING || reply.len != rows.row_bytes)
    return absl::NotFoundError("bench redis: a plain row is not there");
  std::memcpy(rows.row(position), reply.str, reply.len);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlainRedis>> PlainRedis::Connect(
    const std::vector<std::string>& nodes, bool cluster) {
  std::unique_ptr<PlainRedis> plain(new PlainRedis);
  for (const std::string& node : nodes) {
    const size_t colon = node.rfind(':');
    int port = 0;
    if (colon == std::string::npos ||
        std::from_chars(node.data() + colon + 1, node.data() + node.size(), port).ec != std::errc())
      return absl::InvalidArgumentError(absl::StrCat("'", node, "': expected host:port"));
    Context context(redisConnect(node.substr(0, colon).c_str(), port), redisFree);
    if (context == nullptr || context->err != 0)
      return Unavailable(node, context == nullptr ? "no memory" : context->errstr);
    plain->names_.push_back(node);
    plain->nodes_.push_back(std::move(context));
  }
  plain->positions_.resize(nodes.size());
  if (cluster) HPS_RETURN_IF_ERROR(plain->LearnSlots());
  return plain;
}

absl::StatusOr<PlainRedis::Reply> PlainRedis::ReadReply(size_t node) {
  void* read = nullptr;
  if (redisGetReply(nodes_[node].get(), &read) != REDIS_OK)
    return Unavailable(names_[node], nodes_[node]->errstr);
  Reply reply(static_cast<redisReply*>(read), freeReplyObject);
  if (reply->type == REDIS_REPLY_ERROR) return Unavailable(names_[node], TextOf(*reply));
  return reply;
}

absl::StatusOr<PlainRedis::Reply> PlainRedis::Ask(size_t node,
                                                  std::span<const std::string> command) {
  std::vector<const char*> parts;
  std::vector<size_t> sizes;
  for (const std::string& part : command) {
    parts.push_back(part.data());
    sizes.push_back(part.size());
  }
  redisAppendCommandArgv(nodes_[node].get(), static_cast<int>(parts.size()), parts.data(),
                         sizes.data());
  return ReadReply(node);
}

// Its connection ends without a reply.
void PlainRedis::EndFirstServer() {
  const std::array<std::string, 2> command = {"SHUTDOWN", "NOSAVE"};
  Ask(0, command).IgnoreError();
}

absl::Status PlainRedis::LearnSlots() {
  const std::array<std::string, 2> command = {"CLUSTER", "SLOTS"};
  HPS_ASSIGN_OR_RETURN(const Reply reply, Ask(0, command));
  node_of_slot_.assign(kRedisSlotCount, 0);
  for (size_t i = 0; i < reply->elements; ++i) {
    const redisReply& range = *reply->element[i];
    const redisReply& master = *range.element[2];
    const std::string name =
        absl::StrCat(std::string(TextOf(*master.element[0])), ":", master.element[1]->integer);
    size_t node = 0;
    while (node < names_.size() && names_[node] != name) ++node;
    if (node == names_.size())
      return absl::InvalidArgumentError(absl::StrCat(name, " is a master and not among the nodes"));
    for (int64_t slot = range.element[0]->integer; slot <= range.element[1]->integer; ++slot)
      node_of_slot_[static_cast<size_t>(slot)] = static_cast<uint16_t>(node);
  }
  return absl::OkStatus();
}

size_t PlainRedis::NodeOf(Key key) const {
  if (node_of_slot_.empty()) return 0;
  const Name name = NameOf(key);
  return node_of_slot_[RedisSlotOf({name.data(), name.size()})];
}

absl::Status PlainRedis::Pipeline(
    const char* command, std::span<const Key> keys, const HostRows* values,
    const std::function<absl::Status(size_t, const redisReply&)>& take) {
  for (std::vector<uint32_t>& positions : positions_) positions.clear();
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const size_t node = NodeOf(keys[i]);
    positions_[node].push_back(i);
    const Name name = NameOf(keys[i]);
    std::array<const char*, 3> parts = {command, name.data()};
    std::array<size_t, 3> sizes = {std::strlen(command), name.size()};
    if (values != nullptr) {
      parts[2] = static_cast<const char*>(static_cast<const void*>(values->row(i)));
      sizes[2] = values->row_bytes;
    }
    redisAppendCommandArgv(nodes_[node].get(), values != nullptr ? 3 : 2, parts.data(),
                           sizes.data());
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (int done = 0; done == 0 && !positions_[node].empty();) {
      if (redisBufferWrite(nodes_[node].get(), &done) != REDIS_OK)
        return Unavailable(names_[node], nodes_[node]->errstr);
    }
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (const uint32_t position : positions_[node]) {
      HPS_ASSIGN_OR_RETURN(const Reply reply, ReadReply(node));
      HPS_RETURN_IF_ERROR(take(position, *reply));
    }
  }
  return absl::OkStatus();
}

absl::Status PlainRedis::Get(std::span<const Key> keys, const HostRows& rows) {
  return Pipeline("GET", keys, nullptr, [&rows](size_t position, const redisReply& reply) {
    return CopyRow(reply, position, rows);
  });
}

absl::Status PlainRedis::Set(std::span<const Key> keys, const HostRows& rows) {
  return Pipeline("SET", keys, &rows, [](size_t, const redisReply&) { return absl::OkStatus(); });
}

absl::Status PlainRedis::GetAtOnce(std::span<const Key> keys, const HostRows& rows) {
  HPS_CHECK(node_of_slot_.empty());
  std::vector<Name> names;
  names.reserve(keys.size());
  std::vector<const char*> parts = {"MGET"};
  std::vector<size_t> sizes = {4};
  for (const Key key : keys) {
    parts.push_back(names.emplace_back(NameOf(key)).data());
    sizes.push_back(names.back().size());
  }
  redisAppendCommandArgv(nodes_[0].get(), static_cast<int>(parts.size()), parts.data(),
                         sizes.data());
  HPS_ASSIGN_OR_RETURN(const Reply reply, ReadReply(0));
  for (size_t i = 0; i < keys.size(); ++i)
    HPS_RETURN_IF_ERROR(CopyRow(*reply->element[i], i, rows));
  return absl::OkStatus();
}

absl::Status PlainRedis::RemoveAll() {
  const std::array<std::string, 2> command = {"FLUSHALL", "SYNC"};
  for (size_t node = 0; node < nodes_.size(); ++node)
    HPS_RETURN_IF_ERROR(Ask(node, command).status());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PlainRedis::KeyCount() {
  const std::array<std::string, 1> command = {"DBSIZE"};
  uint64_t count = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    HPS_ASSIGN_OR_RETURN(const Reply reply, Ask(node, command));
    count += static_cast<uint64_t>(reply->integer);
  }
  return count;
}

absl::StatusOr<uint64_t> PlainRedis::UsedBytes() {
  constexpr std::string_view kUsed = "\nused_memory:";
  const std::array<std::string, 2> command = {"INFO", "memory"};
  uint64_t sum = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    HPS_ASSIGN_OR_RETURN(const Reply reply, Ask(node, command));
    const std::string_view text = TextOf(*reply);
    const size_t at = text.find(kUsed);
    uint64_t bytes = 0;
    if (at == std::string_view::npos ||
        std::from_chars(text.data() + at + kUsed.size(), text.data() + text.size(), bytes).ec !=
            std::errc())
      return Unavailable(names_[node], "INFO names no used_memory");
    sum += bytes;
  }
  return sum;
}

}  // namespace hps::bench
