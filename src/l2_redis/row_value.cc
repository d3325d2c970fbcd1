#include "l2_redis/row_value.h"

#include <xxhash.h>

#include "base/bytes.h"
#include "base/hash.h"

namespace hps {
namespace {

uint32_t ChecksumOf(const RowIdentity& identity, Version version, std::span<const std::byte> row) {
  const uint64_t seed =
      HashKey(identity.key, identity.incarnation) ^ HashKey(static_cast<Key>(version), 0);
  return static_cast<uint32_t>(
      XXH3_64bits_withSeed(row.data(), row.size(), seed ^ identity.generation));
}

}  // namespace

void AppendRowValue(const RowIdentity& identity, Version version, std::span<const std::byte> row,
                    std::string& out) {
  char header[kRowValueHeaderBytes];
  StoreBigEndian64(header, version);
  StoreLittleEndian<uint32_t>(header + sizeof(Version), ChecksumOf(identity, version, row));
  out.append(header, sizeof(header));
  out.append(AsText(row));
}

RowValue ParseRowValue(const RowIdentity& identity, std::string_view value, size_t row_bytes) {
  if (value.size() != kRowValueHeaderBytes && value.size() != kRowValueHeaderBytes + row_bytes)
    return {};
  RowValue parsed;
  parsed.version = LoadBigEndian64(value.data());
  parsed.row = AsBytes(value.substr(kRowValueHeaderBytes));
  const auto checksum = LoadLittleEndian<uint32_t>(value.data() + sizeof(Version));
  parsed.valid = checksum == ChecksumOf(identity, parsed.version, parsed.row);
  return parsed;
}

}  // namespace hps
