// What a build without CUDA says when tables are to be trained on a device.
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/table_set.h"

namespace hps {

absl::StatusOr<std::unique_ptr<TableSet>> MakeDeviceTableSet(int /*device*/,
                                                             const std::vector<ShardOptions>&) {
  return absl::UnimplementedError(
      "this build does not have support for GPUs: `make wheel-gpu` makes one that has");
}

}  // namespace hps
