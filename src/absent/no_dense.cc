// The stand-in for src/network/cpu in a build without OpenVINO.
#include "network/dense_network.h"

namespace hps {

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDenseNetwork(const ModelNetwork& /*network*/,
                                                               const DenseOptions& /*options*/) {
  return absl::UnimplementedError(
      "this build of hps runs no dense networks: it was made without OpenVINO (HPS_OPENVINO)");
}

}  // namespace hps
