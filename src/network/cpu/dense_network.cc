#include "network/dense_network.h"

#include <climits>
#include <string_view>

#include "base/bytes.h"
#include "base/macros.h"
#include "network/cpu/openvino_network.h"
#include "network/onnx/model.h"

namespace hps {

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDenseNetwork(const ModelNetwork& network,
                                                               const DenseOptions& options) {
  HPS_ASSIGN_OR_RETURN(
      const OnnxModel taken,
      OnnxModel::Parse(AsBytes(std::string_view(network.onnx)), {.bytes_max = INT_MAX}));
  return MakeOpenvinoNetwork(taken.graph(), network.onnx, options);
}

}  // namespace hps
