#include "l2_redis/row_names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/slots.h"

namespace hps {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr int kDigitBits = 6;
constexpr size_t kGenerationBytes = 3;
static_assert(kIncarnationBits <= 9 * kDigitBits);

std::string IncarnationText(Incarnation incarnation) {
  std::string text;
  for (int shift = 8 * kDigitBits; shift >= 0; shift -= kDigitBits)
    text += kDigits[(incarnation >> shift) % kDigits.size()];
  return text;
}

}  // namespace

RowNames::RowNames(std::string_view prefix, Incarnation incarnation, size_t partition_count) {
  HPS_CHECK(partition_count > 0 && prefix.find_first_of("{}") == std::string_view::npos);
  for (size_t partition = 0; partition < partition_count; ++partition) {
    const size_t wanted = (2 * partition + 1) * kRedisSlotCount / (2 * partition_count);
    const std::string tag = RedisTagNear(static_cast<uint16_t>(wanted));
    const std::string head =
        absl::StrCat(std::string(prefix), ":", IncarnationText(incarnation), "{", tag, "}");
    Partition& made = partitions_.emplace_back();
    made.slot = RedisSlotOf(tag);
    AppendPartHeader(head.size() + kGenerationBytes + sizeof(Key), made.head);
    made.head += head;
    AppendPartHeader(head.size() + kGenerationBytes, made.change_head);
    made.change_head += head;
  }
  name_part_bytes_ =
      partitions_.front().head.size() + kGenerationBytes + sizeof(Key) + kPartEnd.size();
}

size_t RowNames::PartitionOf(Key key) const {
  return HashToRange(HashKey(key, kL2HashSeed), partitions_.size());
}

void RowNames::AppendName(size_t partition, uint64_t generation, Key key, std::string& out) const {
  char tail[kGenerationBytes + sizeof(Key) + kPartEnd.size()];
  std::memcpy(tail, &generation, kGenerationBytes);
  StoreLittleEndian(tail + kGenerationBytes, key);
  kPartEnd.copy(tail + kGenerationBytes + sizeof(Key), kPartEnd.size());
  out.append(partitions_[partition].head);
  out.append(tail, sizeof(tail));
}

void RowNames::AppendChangeName(size_t partition, uint64_t generation, std::string& out) const {
  char bytes[kGenerationBytes];
  std::memcpy(bytes, &generation, kGenerationBytes);
  out.append(partitions_[partition].change_head);
  out.append(bytes, sizeof(bytes));
  out.append(kPartEnd);
}

void KeyGroups::Group(const RowNames& names, std::span<const Key> keys) {
  const size_t count = keys.size();
  begins.assign(names.partition_count() + 1, 0);
  partition_of.resize(count);
  positions.resize(count);
  for (size_t i = 0; i < count; ++i) {
    partition_of[i] = static_cast<uint16_t>(names.PartitionOf(keys[i]));
    ++begins[partition_of[i] + 1u];
  }
  for (size_t p = 1; p < begins.size(); ++p) begins[p] += begins[p - 1];
  std::vector<uint32_t>& next = begins;  // moved forward, and back again below
  for (size_t i = count; i-- > 0;) positions[next[partition_of[i]]++] = static_cast<uint32_t>(i);
  for (size_t p = begins.size() - 1; p > 0; --p) begins[p] = begins[p - 1];
  begins[0] = 0;
}

}  // namespace hps
