// A dense network on a GPU behind the interface of src/dense (gpu_dense_session.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "dense/dense_network.h"
#include "dense_gpu/gpu_network.h"

namespace hps {

// Calls of DenseSession::Run with more samples than options.batch_max are INTERNAL.
// Errors: those of OnnxModel::Parse, MakeDensePlan (UNIMPLEMENTED names the node that the device
// does not run; OpenVINO may) and GpuNetwork::Make.
absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeGpuDenseNetwork(const ModelNetwork& network,
                                                                  const GpuNetworkOptions& options);

}  // namespace hps
