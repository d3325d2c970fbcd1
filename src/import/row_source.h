// Keys and rows of one table's files in the order of the files, piece by piece: for changes of
// rows, which unlike imports need no sorted keys. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "import/formats/table_reader.h"

namespace hps {

class RowSource {
 public:
  // The files of `request`, as for an import of one table. With `keys_only` the rows are left out,
  // and `request.from` may also be an .npy file of keys.
  // Errors: those of PlanImport and ReadNpyKeys; INVALID_ARGUMENT (name of the table).
  static absl::StatusOr<RowSource> Open(const ImportRequest& request, bool keys_only);

  // The table's name, dim and dtype; of an .npy file of keys dim and dtype mean nothing.
  const TableSpec& spec() const { return spec_; }
  uint64_t row_count() const { return row_count_; }

  // The keys and, unless keys_only, the rows in the dtype of spec(), packed, from row `first` on.
  // Errors: those of TableReader.
  absl::Status Read(uint64_t first, size_t count, std::vector<Key>* keys,
                    std::vector<std::byte>* rows);

 private:
  bool keys_only_ = false;
  TableSpec spec_;
  uint64_t row_count_ = 0;
  std::unique_ptr<TableReader> reader_;  // null: keys_ has all
  std::vector<Key> keys_;
  std::vector<std::byte> unconverted_;
};

}  // namespace hps
