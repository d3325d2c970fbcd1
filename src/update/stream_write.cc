#include "update/stream_write.h"

#include <cstring>

namespace hps {

bool AppendMessage(const UpdateMessage& message, const TableSpec& spec, Version version,
                   StreamWrite& write) {
  const size_t row_bytes = spec.row_bytes();
  const size_t first = write.keys.size();
  const size_t end = first + message.count;
  const bool fits = message.kind == write.kind && end <= kStreamWriteRowsMax &&
                    write.rows.size() + message.count * row_bytes <= kStreamWriteBytesMax;
  if (write.has_rows() && !fits) return false;
  write.kind = message.kind;
  write.keys.resize(end);
  for (size_t i = 0; i < message.count; ++i) write.keys[first + i] = message.key(i);
  write.versions.resize(end, version);
  if (message.kind == UpdateKind::kDelete) return true;
  write.rows.resize(end * row_bytes);
  std::byte* const rows = &write.rows[first * row_bytes];
  if (message.row_stride_bytes == row_bytes) {
    std::memcpy(rows, message.rows.data(), message.count * row_bytes);
    return true;
  }
  for (size_t i = 0; i < message.count; ++i)
    std::memcpy(rows + i * row_bytes, message.row(i), row_bytes);
  return true;
}

DurableWrite DurableWriteOf(StreamWrite& write, const TableSpec& spec,
                            std::span<const StreamPosition> positions) {
  DurableWrite made = {.positions = positions,
                       .records_lost = write.records_lost,
                       .unordered_hashes = write.unordered_hashes};
  if (write.kind == UpdateKind::kDelete) {
    made.deletes = write.keys;
    made.delete_versions = write.versions;
  } else if (write.has_rows()) {
    const size_t row_bytes = spec.row_bytes();
    made.upserts = {.keys = write.keys,
                    .rows = {.data = write.rows.data(),
                             .row_count = write.keys.size(),
                             .row_bytes = row_bytes,
                             .stride_bytes = row_bytes},
                    .versions = write.versions};
  }
  return made;
}

}  // namespace hps
