#include "l2_redis/slots.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace hps {
namespace {

constexpr std::string_view kTagCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<uint16_t, 256> MakeCrcTable() {
  std::array<uint16_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[byte] = static_cast<uint16_t>(crc);
  }
  return table;
}
constexpr std::array<uint16_t, 256> kCrcTable = MakeCrcTable();

using SlotTag = std::pair<uint16_t, std::string>;

// In the order of their slots.
std::vector<SlotTag> AllTags() {
  std::vector<SlotTag> tags;
  for (const char first : kTagCharacters) {
    for (const char second : kTagCharacters) {
      const std::string tag = {first, second};
      tags.emplace_back(RedisSlotOf(tag), tag);
    }
  }
  std::sort(tags.begin(), tags.end());
  return tags;
}

}  // namespace

uint16_t RedisCrc16(std::string_view bytes) {
  uint32_t crc = 0;
  for (const char byte : bytes)
    crc = ((crc << 8) & 0xffff) ^ kCrcTable[((crc >> 8) ^ static_cast<uint8_t>(byte)) & 0xff];
  return static_cast<uint16_t>(crc);
}

uint16_t RedisSlotOf(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1)
      key = key.substr(open + 1, close - open - 1);
  }
  return RedisCrc16(key) % kRedisSlotCount;
}

std::string RedisTagNear(uint16_t slot) {
  static const std::vector<SlotTag> tags = AllTags();
  auto next = std::lower_bound(tags.begin(), tags.end(), SlotTag(slot, ""));
  if (next == tags.end()) return tags.back().second;
  if (next != tags.begin() && slot - std::prev(next)->first < next->first - slot) --next;
  return next->second;
}

}  // namespace hps
