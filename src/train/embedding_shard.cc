#include "train/embedding_shard.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "hps/table_spec.h"

namespace hps {

absl::Status ValidateShardOptions(const ShardOptions& options) {
  if (options.name.empty()) return absl::InvalidArgumentError("embedding table: no name");
  if (options.dim == 0 || options.dim > kDimMax / sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat("embedding table ", options.name,
                                                   ": dim must be 1 to ", kDimMax / sizeof(float),
                                                   ", not ", options.dim));
  }
  if (options.admit_after == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("embedding table ", options.name, ": admit_after must be at least 1"));
  }
  HPS_RETURN_IF_ERROR(ValidateInitializer(options.initializer));
  return ValidateOptimizer(options.optimizer);
}

}  // namespace hps
