// What the sessions of a dense network on a GPU have memory for. Computed once for each network, so
// that all of its sessions are alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hps/model_network.h"
#include "network/dense_network.h"
#include "network/plan/plan.h"

namespace hps {

struct SessionSizes {
  uint64_t sample_bytes = 0;  // that come from the host for a sample: bags, inputs that were sent
  uint64_t part_bytes = 0;  // that come for a part; for a whole call as much as for kPartsMax parts
  uint64_t output_bytes = 0;  // of a call
  uint32_t run_samples = 0;   // of the largest run: a power of two
  size_t call_runs = 0;       // of a whole call, or of kPartsMax parts
  DeviceLimits limits{};
};

// What begins at a multiple of this may go into a network.
inline constexpr uint64_t kInputAlignment = 16;

uint64_t AlignedForInput(uint64_t bytes);

// Of one sample.
uint64_t InputBytes(const OnnxValue& input);
uint64_t OutputBytes(const PlanView& output);

// `network`: which inputs get rows of tables. Of the options, takes batch_max, sessions and
// buffer_bytes_max. `free_bytes`: of the device's memory, when the network is there.
SessionSizes SizesOf(const DensePlan& plan, const ModelNetwork& network,
                     const DeviceDenseOptions& options, uint64_t free_bytes);

}  // namespace hps
