#include "l2_redis/slot_map.h"

namespace hps {
namespace {

bool IsSlot(const Reply& reply) {
  return reply.type == ReplyType::kInteger && reply.integer >= 0 &&
         reply.integer < static_cast<int64_t>(kRedisSlotCount);
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
    const std::vector<Reply>& master = element.elements[2].elements;
    if (master.size() < 2 || master[1].type != ReplyType::kInteger) return invalid;
    if (master[1].integer <= 0 || master[1].integer > UINT16_MAX) return invalid;
    SlotRange range = {.first = static_cast<uint16_t>(element.elements[0].integer),
                       .last = static_cast<uint16_t>(element.elements[1].integer)};
    // A node that does not know its own address leaves it out: it is the one that was asked.
    const bool is_named = master[0].type == ReplyType::kString && !master[0].text.empty();
    range.master.host = is_named ? master[0].text : asked.host;
    range.master.port = static_cast<uint16_t>(master[1].integer);
    if (range.last < range.first) return invalid;
    ranges.push_back(range);
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
