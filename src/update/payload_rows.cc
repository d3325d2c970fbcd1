#include "update/payload_rows.h"

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "hps/types.h"

namespace hps {
namespace {

constexpr size_t kRowCountAt = 12;        // of format 1
constexpr size_t kShortestBytes = 40;     // of format 1: header and checksum
constexpr size_t kHugectrStartBytes = 8;  // magic and row size

}  // namespace

uint64_t PayloadRows(std::span<const std::byte> payload) {
  const std::string_view text = AsText(payload);
  if (text.starts_with("HPSU") && payload.size() >= kShortestBytes) {
    const uint64_t room = (payload.size() - kShortestBytes) / sizeof(Key);
    return std::min<uint64_t>(LoadLittleEndian<uint32_t>(&payload[kRowCountAt]), room);
  }
  if (text.starts_with("HCTR") && payload.size() >= kHugectrStartBytes) {
    const uint64_t row_bytes = LoadLittleEndian<uint32_t>(&payload[4]);
    return (payload.size() - kHugectrStartBytes) / (sizeof(Key) + row_bytes);
  }
  return 0;
}

}  // namespace hps
