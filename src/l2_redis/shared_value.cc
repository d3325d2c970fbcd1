#include "l2_redis/shared_value.h"

#include <xxhash.h>

#include <array>

#include "base/bytes.h"
#include "base/hash.h"

namespace hps {
namespace {

void AppendBigEndian(uint64_t number, std::string& out) {
  std::array<char, 8> bytes;
  StoreBigEndian64(bytes.data(), number);
  out.append(bytes.data(), bytes.size());
}

uint32_t ChecksumOf(const SharedIdentity& identity, const SharedRow& row) {
  uint64_t seed = HashKey(identity.key, identity.table);
  seed = HashKey(static_cast<Key>(row.version), seed);
  seed = HashKey(static_cast<Key>(row.complete_to), seed);
  return static_cast<uint32_t>(XXH3_64bits_withSeed(row.row.data(), row.row.size(), seed));
}

}  // namespace

// Every step is exact in the numbers of Lua, which have 53 bits. The factor is odd, so one changed
// word always changes the sum.
uint32_t SharedMarkChecksum(std::string_view mark) {
  constexpr uint64_t kFactor = 1'000'003;
  constexpr uint64_t kModulus = uint64_t{1} << 32;
  uint64_t sum = mark.size();
  for (size_t at = 0; at + 8 <= mark.size(); at += 8) {
    const uint64_t words = LoadBigEndian64(mark.data() + at);
    sum = (sum * kFactor + (words >> 32)) % kModulus;
    sum = (sum * kFactor + (words & 0xffffffff)) % kModulus;
  }
  return static_cast<uint32_t>(sum);
}

std::optional<SharedMark> ParseSharedMark(std::string_view text) {
  if (text.size() < kSharedNonceBytes + kSharedMarkChecksumBytes) return std::nullopt;
  const auto checksum = static_cast<uint32_t>(LoadBigEndian64(&text[text.size() - 8]));
  text.remove_suffix(kSharedMarkChecksumBytes);
  if (text.size() % sizeof(Version) != 0 || checksum != SharedMarkChecksum(text))
    return std::nullopt;
  SharedMark mark = {.nonce = LoadBigEndian64(text.data())};
  if ((mark.nonce & kLateBit) != 0) return std::nullopt;
  for (size_t at = kSharedNonceBytes; at < text.size(); at += sizeof(Version))
    mark.positions.push_back(LoadBigEndian64(text.data() + at));
  return mark;
}

void AppendVersions(std::span<const Version> versions, std::string& out) {
  for (const Version version : versions) AppendBigEndian(version, out);
}

void AppendNonce(uint64_t nonce, std::string& out) { AppendBigEndian(nonce, out); }

void AppendSharedRow(const SharedIdentity& identity, const SharedRow& row, std::string& out) {
  AppendBigEndian(row.version, out);
  AppendBigEndian(row.complete_to, out);
  std::array<char, 4> checksum;
  StoreLittleEndian<uint32_t>(checksum.data(), ChecksumOf(identity, row));
  out.append(checksum.data(), checksum.size());
  out.append(AsText(row.row));
}

SharedRowState ParseSharedRow(const SharedIdentity& identity, uint64_t nonce,
                              std::string_view value, size_t row_bytes, SharedRow& row) {
  if (value.size() != kSharedHeaderBytes && value.size() != kSharedHeaderBytes + row_bytes)
    return SharedRowState::kDamaged;
  const uint64_t found = LoadBigEndian64(value.data());
  row.is_late = (found & kLateBit) != 0;
  row.version = LoadBigEndian64(value.data() + 8);
  row.complete_to = LoadBigEndian64(value.data() + 16);
  row.row = AsBytes(value.substr(kSharedHeaderBytes));
  const auto checksum = LoadLittleEndian<uint32_t>(value.data() + 24);
  if (checksum != ChecksumOf(identity, row)) return SharedRowState::kDamaged;
  return (found & ~kLateBit) == nonce ? SharedRowState::kCurrent : SharedRowState::kGone;
}

}  // namespace hps
