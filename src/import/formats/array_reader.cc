#include "import/formats/array_reader.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/bytes.h"
#include "base/macros.h"

namespace hps {
namespace {

template <typename Narrow>
absl::Status ReadNarrowKeys(const File& file, uint64_t offset, std::span<Key> keys) {
  std::array<Narrow, 4096> piece{};
  for (size_t done = 0; done < keys.size();) {
    const size_t count = std::min(keys.size() - done, piece.size());
    HPS_RETURN_IF_ERROR(file.ReadAt(offset + done * sizeof(Narrow),
                                    std::as_writable_bytes(std::span(piece.data(), count))));
    std::copy_n(piece.begin(), count, keys.begin() + static_cast<ptrdiff_t>(done));
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadKeyArray(const KeyArray& array, uint64_t first, std::span<Key> keys) {
  const uint64_t offset = array.offset + first * KeyBytes(array.dtype);
  switch (array.dtype) {
    case KeyDtype::kInt64:
    case KeyDtype::kUint64:
      return array.file.ReadAt(offset, std::as_writable_bytes(keys));
    case KeyDtype::kInt32:
      return ReadNarrowKeys<int32_t>(array.file, offset, keys);
    case KeyDtype::kUint32:
      return ReadNarrowKeys<uint32_t>(array.file, offset, keys);
  }
  return absl::InternalError("unknown type of keys");
}

uint64_t ArrayReader::data_bytes() const {
  const uint64_t key_bytes = keys_.has_value() ? KeyBytes(keys_->dtype) : 0;
  return shape_.row_count * (key_bytes + shape_.row_bytes());
}

const std::string& ArrayReader::keys_path() const {
  return keys_.has_value() ? keys_->file.path() : rows_.file.path();
}

absl::Status ArrayReader::ReadKeys(uint64_t first_row, std::span<Key> keys) const {
  HPS_CHECK(first_row <= shape_.row_count && keys.size() <= shape_.row_count - first_row);
  if (!keys_.has_value()) {
    std::iota(keys.begin(), keys.end(), static_cast<Key>(first_row));
    return absl::OkStatus();
  }
  return ReadKeyArray(*keys_, first_row, keys);
}

absl::Status ArrayReader::ReadRows(uint64_t first_row, std::span<std::byte> rows) const {
  HPS_CHECK(first_row <= shape_.row_count &&
            rows.size() <= (shape_.row_count - first_row) * shape_.row_bytes());
  return rows_.file.ReadAt(rows_.offset + first_row * shape_.row_bytes(), rows);
}

}  // namespace hps
