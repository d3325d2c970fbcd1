// The stand-in for src/network/gpu in a build without CUDA.
#include "network/dense_network.h"

namespace hps {

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDeviceDenseNetwork(
    const ModelNetwork& /*network*/, const DeviceDenseOptions& /*options*/) {
  return absl::UnimplementedError(
      "this build does not have support for GPUs: `make gpu` makes one that has");
}

}  // namespace hps
