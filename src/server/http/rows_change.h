// The change of rows that a request describes with its tensors.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "hps/update.h"
#include "inference/tensor.h"

namespace hps::server {

struct RowsChange {
  TableUpdate update;       // without the table's name; borrows `keys` and the tensors
  std::vector<Key> keys{};  // aligned, which those of a body need not be
};

// `inputs`: `keys` INT64 or UINT64 [n], and unless `is_delete` `rows` FP32, FP16 or BF16 [n, dim].
// Errors: INVALID_ARGUMENT (an input that is missing, unknown or of another type or shape).
absl::Status ReadRowsChange(std::span<const InputTensor> inputs, bool is_delete,
                            RowsChange* change);

}  // namespace hps::server
