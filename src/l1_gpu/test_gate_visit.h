// A kernel that only passes through the writers' gate, from a block of any size. Include it in
// tests only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "l1_gpu/kernels/slab.h"

namespace hps {

struct GateVisit {
  uint32_t threads = 1;  // of the only block
  // Said at the two words when it leaves, at least one each.
  uint32_t slab_keys = 1;
  uint32_t row_keys = 1;
};

// The block enters the gate at both words, writes to `within` what every copy says then, and leaves
// it. `gate` and `within` [WriterGate::kCopies] are device memory. Asynchronous.
cudaError_t LaunchGateVisit(const GateVisit& visit, WriterGate* gate, WriterGate::Words* within,
                            cudaStream_t stream);

}  // namespace hps
