// The reader of every format whose keys and rows are two packed arrays somewhere in files: all of
// today's formats. The formats differ in how the arrays are found and validated.
#pragma once

#include <memory>
#include <optional>

#include "import/formats/file.h"
#include "import/formats/table_reader.h"

namespace hps {

// How keys are stored; all become 64 bits: 32-bit ones are widened, unsigned ones taken bit for
// bit.
enum class KeyDtype : uint8_t { kInt64, kUint64, kInt32, kUint32 };

constexpr size_t KeyBytes(KeyDtype dtype) {
  return dtype == KeyDtype::kInt64 || dtype == KeyDtype::kUint64 ? 8 : 4;
}

struct KeyArray {
  File file;
  uint64_t offset = 0;
  KeyDtype dtype = KeyDtype::kInt64;
};

// Keys `first` and those after it. REQUIRES: they lie inside the file. Errors: DATA_LOSS.
absl::Status ReadKeyArray(const KeyArray& array, uint64_t first, std::span<Key> keys);

struct RowArray {
  File file;
  uint64_t offset = 0;
};

class ArrayReader final : public TableReader {
 public:
  // Without a key array the row numbers are the keys.
  // REQUIRES: both arrays lie inside their files.
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
