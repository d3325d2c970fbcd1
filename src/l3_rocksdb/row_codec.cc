#include "l3_rocksdb/row_codec.h"

#include <xxhash.h>

#include "base/hash.h"

namespace hps {

uint64_t RowChecksum(Incarnation incarnation, Key key, std::string_view row_and_version) {
  return XXH3_64bits(row_and_version.data(), row_and_version.size()) ^ HashKey(key, incarnation);
}

void FinishRow(Incarnation incarnation, Key key, Version version, size_t row_bytes, char* tail) {
  StoreLittleEndian<uint64_t>(tail, version);
  const std::string_view covered(tail - row_bytes, row_bytes + sizeof(version));
  StoreLittleEndian<uint64_t>(tail + sizeof(version), RowChecksum(incarnation, key, covered));
}

RowState CheckRow(Incarnation incarnation, Key key, std::string_view value, size_t row_bytes) {
  const bool deleted = value.size() == kDeletionBytes;
  if (!deleted && value.size() != row_bytes + kRowTailBytes) return RowState::kDamaged;
  const std::string_view covered = value.substr(0, value.size() - sizeof(uint64_t));
  const uint64_t stored = LoadLittleEndian<uint64_t>(value.data() + covered.size());
  if (stored != RowChecksum(incarnation, key, covered)) return RowState::kDamaged;
  return deleted ? RowState::kDeleted : RowState::kIntact;
}

}  // namespace hps
