#include "testing/host_device_cache/direct_read.h"

#include <array>
#include <cstring>

namespace hps {
namespace {

// What a line says of a key.
struct Look {
  uint32_t entry = kDirectLineEntries;
  uint32_t slot = 0;
  uint64_t sequence = 0;

  friend bool operator==(const Look&, const Look&) = default;
};

template <typename T>
T Load(const std::byte* from) {
  return __atomic_load_n(static_cast<const T*>(static_cast<const void*>(from)), __ATOMIC_ACQUIRE);
}

// In the order of l2_memory's own reader: the sequence, the keys, the slots.
Look LookAt(const std::byte* line, Key key) {
  Look look{.sequence = Load<uint64_t>(line + kDirectSequenceOffset)};
  std::array<Key, kDirectLineEntries> keys{};
  for (uint32_t i = 0; i < kDirectLineEntries; ++i) keys[i] = Load<Key>(line + i * sizeof(Key));
  for (uint32_t i = 0; i < kDirectLineEntries; ++i) {
    const uint32_t slot = Load<uint16_t>(line + kDirectSlotsOffset + i * sizeof(uint16_t));
    if (keys[i] != key || slot == 0 || slot == kDirectAbsentSlot) continue;
    look.entry = i;
    look.slot = slot;
  }
  return look;
}

}  // namespace

bool ReadDirectRow(const DirectRows& direct, Key key, std::span<std::byte> row) {
  const DirectPlace place = DirectPlaceOf(direct, key);
  for (const uint32_t number : {place.first, place.second}) {
    const uint64_t line_number = uint64_t{place.partition} * direct.line_count + number;
    const std::byte* const line = direct.lines + line_number * kDirectLineBytes;
    const Look look = LookAt(line, key);
    if (look.slot == 0) continue;
    const uint64_t row_number = uint64_t{place.partition} * direct.slot_count + look.slot - 1;
    std::memcpy(row.data(), direct.rows + row_number * direct.stride_bytes, row.size());
    return LookAt(line, key) == look;
  }
  return false;
}

}  // namespace hps
