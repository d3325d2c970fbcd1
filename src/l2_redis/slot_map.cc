#include "l2_redis/slot_map.h"

#include <optional>
#include <utility>

namespace hps {
namespace {

bool IsSlot(const Reply& reply) {
  return reply.type == ReplyType::kInteger && reply.integer >= 0 &&
         reply.integer < static_cast<int64_t>(kRedisSlotCount);
}

// A node of a range: its host, which may be left out, and its port.
std::optional<RedisAddress> ParseNode(const Reply& node, const RedisAddress& asked) {
  const std::vector<Reply>& parts = node.elements;
  if (parts.size() < 2 || parts[1].type != ReplyType::kInteger) return std::nullopt;
  if (parts[1].integer <= 0 || parts[1].integer > UINT16_MAX) return std::nullopt;
  // A node that does not know its own address leaves it out: it is the one that was asked.
  const bool is_named = parts[0].type == ReplyType::kString && !parts[0].text.empty();
  return RedisAddress{.host = is_named ? parts[0].text : asked.host,
                      .port = static_cast<uint16_t>(parts[1].integer)};
}

}  // namespace

absl::StatusOr<std::vector<SlotRange>> ParseClusterSlots(const Reply& reply,
                                                         const RedisAddress& asked) {
  const absl::Status invalid = absl::DataLossError("the reply to CLUSTER SLOTS is not valid");
  if (!reply.is_array) return invalid;
  std::vector<SlotRange> ranges;
  for (const Reply& element : reply.elements) {
    if (element.elements.size() < 3 || !IsSlot(element.elements[0]) || !IsSlot(element.elements[1]))
      return invalid;
    std::optional<RedisAddress> master = ParseNode(element.elements[2], asked);
    if (!master.has_value()) return invalid;
    SlotRange range = {.first = static_cast<uint16_t>(element.elements[0].integer),
                       .last = static_cast<uint16_t>(element.elements[1].integer),
                       .master = *std::move(master)};
    if (range.last < range.first) return invalid;
    for (size_t i = 3; i < element.elements.size(); ++i) {
      // A replica without a usable address is left out.
      if (std::optional<RedisAddress> replica = ParseNode(element.elements[i], asked))
        range.replicas.push_back(*std::move(replica));
    }
    ranges.push_back(std::move(range));
  }
  return ranges;
}

void SlotMap::EndEpochsOf(const RedisNode* owner) {
  for (size_t slot = 0; slot < kRedisSlotCount; ++slot) {
    if (Owner(static_cast<uint16_t>(slot)) == owner) EndEpoch(static_cast<uint16_t>(slot));
  }
}

void SlotMap::SetOwner(uint16_t slot, RedisNode* owner) {
  if (Owner(slot) == owner) return;
  EndEpoch(slot);
  owners_[slot].store(owner, std::memory_order_seq_cst);
}

}  // namespace hps
