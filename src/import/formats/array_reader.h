// The table reader of all formats that store keys and rows as two packed arrays. The formats differ
// in how they locate and validate the arrays.
#pragma once

#include <memory>
#include <optional>

#include "base/file.h"
#include "import/formats/table_reader.h"

namespace hps {

// How a file stores keys. Reading converts them to 64 bits: 32-bit keys are widened, unsigned keys
// keep their bits.
enum class KeyDtype : uint8_t { kInt64, kUint64, kInt32, kUint32 };

constexpr size_t KeyBytes(KeyDtype dtype) {
  return dtype == KeyDtype::kInt64 || dtype == KeyDtype::kUint64 ? 8 : 4;
}

struct KeyArray {
  File file;
  uint64_t offset = 0;
  KeyDtype dtype = KeyDtype::kInt64;
};

// Reads keys.size() keys, beginning with key number `first`. REQUIRES: they lie inside the file.
// Errors: DATA_LOSS.
absl::Status ReadKeyArray(const KeyArray& array, uint64_t first, std::span<Key> keys);

struct RowArray {
  File file;
  uint64_t offset = 0;
};

class ArrayReader final : public TableReader {
 public:
  // Without a key array, the row numbers are the keys. REQUIRES: both arrays lie inside their
  // files.
  ArrayReader(const TableShape& shape, std::optional<KeyArray> keys, RowArray rows)
      : shape_(shape), keys_(std::move(keys)), rows_(std::move(rows)) {}

  const TableShape& shape() const override { return shape_; }
  uint64_t data_bytes() const override;
  const std::string& keys_path() const override;
  absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const override;
  absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const override;

 private:
  const TableShape shape_;
  const std::optional<KeyArray> keys_;
  const RowArray rows_;
};

}  // namespace hps
