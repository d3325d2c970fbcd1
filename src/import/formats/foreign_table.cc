#include "import/formats/foreign_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

class ForeignTableReader final : public TableReader {
 public:
  ForeignTableReader(std::shared_ptr<ForeignStore> store, std::unique_ptr<ForeignTable> table,
                     std::string path, const TableShape& shape)
      : store_(std::move(store)), table_(std::move(table)), path_(std::move(path)), shape_(shape) {}

  const TableShape& shape() const override { return shape_; }
  uint64_t data_bytes() const override {
    return shape_.row_count * (table_->key_bytes() + shape_.row_bytes());
  }
  const std::string& keys_path() const override { return path_; }
  absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const override {
    return table_->Read(first_row, keys, {});
  }
  absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const override {
    return table_->Read(first_row, {}, rows);
  }

 private:
  const std::shared_ptr<ForeignStore> store_;  // outlives the table
  const std::unique_ptr<ForeignTable> table_;
  const std::string path_;
  const TableShape shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> OpenForeignTable(std::shared_ptr<ForeignStore> store,
                                                              const std::string& path,
                                                              const std::string& name,
                                                              std::optional<uint32_t> dim) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<ForeignTable> table, store->OpenTable(name));
  if (table->row_count() == 0 && !dim.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": table '", name, "' is empty, so its dim must be given (--dim)"));
  }
  TableShape shape{.row_count = table->row_count(),
                   .dim = 0,
                   .dtype = Dtype::kFloat32,
                   .keys_repeat = table->keys_repeat()};
  shape.dim =
      table->row_count() == 0 ? *dim : static_cast<uint32_t>(table->row_bytes() / sizeof(float));
  if (dim.has_value() && *dim != shape.dim) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": table '", name, "': expected dim ", *dim, ", found ", shape.dim));
  }
  return std::make_unique<ForeignTableReader>(std::move(store), std::move(table), path, shape);
}

}  // namespace hps
