// Which node has each hash slot, and the epoch of each slot.
//
// A slot's epoch is part of the names of all rows in it. It ends when the client can no longer be
// sure that the slot holds what was written there: rows under names of an ended epoch are never
// asked for again (docs/redis.md, "Why no row goes back").
//
// Thread-safe. An owner is published after the epoch that begins with it. A reader that loads first
// the owner and then the epoch therefore never asks a new owner for rows of an older epoch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "l2_redis/redis_address.h"
#include "l2_redis/redis_node.h"
#include "l2_redis/reply_reader.h"
#include "l2_redis/slots.h"

namespace hps {

struct SlotRange {
  uint16_t first = 0;
  uint16_t last = 0;
  RedisAddress master;
  std::vector<RedisAddress> replicas;

  size_t slot_count() const { return size_t{1} + last - first; }
};

// Reads the reply to CLUSTER SLOTS of the node `asked`. Errors: DATA_LOSS.
absl::StatusOr<std::vector<SlotRange>> ParseClusterSlots(const Reply& reply,
                                                         const RedisAddress& asked);

class SlotMap {
 public:
  // Null: none is known.
  RedisNode* Owner(uint16_t slot) const { return owners_[slot].load(std::memory_order_seq_cst); }
  // Of the owner, for reads; null: none is known.
  RedisNode* Replica(uint16_t slot) const {
    return replicas_[slot].load(std::memory_order_seq_cst);
  }
  uint64_t Epoch(uint16_t slot) const { return epochs_[slot].load(std::memory_order_seq_cst); }

  void EndEpoch(uint16_t slot) { epochs_[slot].fetch_add(1, std::memory_order_seq_cst); }
  // Only if `epoch` is still the slot's.
  void EndEpoch(uint16_t slot, uint64_t epoch) {
    epochs_[slot].compare_exchange_strong(epoch, epoch + 1, std::memory_order_seq_cst);
  }
  void EndEpochsOf(const RedisNode* owner);
  // Ends the slot's epoch if the owner is another one than before.
  void SetOwner(uint16_t slot, RedisNode* owner);
  void SetReplica(uint16_t slot, RedisNode* replica) {
    replicas_[slot].store(replica, std::memory_order_seq_cst);
  }

 private:
  std::array<std::atomic<RedisNode*>, kRedisSlotCount> owners_{};
  std::array<std::atomic<RedisNode*>, kRedisSlotCount> replicas_{};
  std::array<std::atomic<uint64_t>, kRedisSlotCount> epochs_{};
};

}  // namespace hps
