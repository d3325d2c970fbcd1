#include "import/formats/memory_table.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "hps/table_spec.h"

namespace hps {
namespace {

class MemoryTable final : public TableReader {
 public:
  MemoryTable(const TableInMemory& table, TableShape shape) : table_(table), shape_(shape) {}

  const TableShape& shape() const override { return shape_; }
  uint64_t data_bytes() const override { return table_.keys.size_bytes() + table_.rows.size(); }
  const std::string& keys_path() const override { return path_; }

  absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const override {
    std::ranges::copy(table_.keys.subspan(first_row, keys.size()), keys.begin());
    return absl::OkStatus();
  }
  absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const override {
    std::ranges::copy(table_.rows.subspan(first_row * shape_.row_bytes(), rows.size()),
                      rows.begin());
    return absl::OkStatus();
  }

 private:
  const TableInMemory table_;
  const TableShape shape_;
  const std::string path_ = kMemoryTablePath;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> OpenMemoryTable(const TableInMemory& table) {
  const TableShape shape{.row_count = table.keys.size(), .dim = table.dim, .dtype = table.dtype};
  if (shape.dim == 0 || shape.dim > kDimMax) {
    return absl::InvalidArgumentError(absl::StrCat(kMemoryTablePath, ": expected a dim of 1 to ",
                                                   kDimMax, ", found ", shape.dim));
  }
  const std::optional<uint64_t> bytes = CheckedMultiply(shape.row_count, shape.row_bytes());
  if (bytes != table.rows.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kMemoryTablePath, ": expected ", shape.row_count, " rows of ", shape.row_bytes(),
        " bytes for as many keys, found ", table.rows.size(), " bytes"));
  }
  return std::make_unique<MemoryTable>(table, shape);
}

}  // namespace hps
