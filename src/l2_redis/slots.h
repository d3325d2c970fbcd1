// Hash slots of Redis Cluster: which of the 16,384 slots a key belongs to.
//
// Source: the Redis Cluster specification, "Key distribution model".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hps {

inline constexpr size_t kRedisSlotCount = 16384;

// CRC-16/XMODEM, as the specification demands.
uint16_t RedisCrc16(std::string_view bytes);

// Of a key with a non-empty `{tag}`, only the first such tag counts.
uint16_t RedisSlotOf(std::string_view key);

// The tag of two characters whose slot is nearest to `slot`. The 4,096 tags are spread over all
// slots, so that the distance is a few slots.
std::string RedisTagNear(uint16_t slot);

}  // namespace hps
