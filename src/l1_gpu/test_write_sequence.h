// A kernel that only begins and ends writes, from a block of any size. Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "l1_gpu/kernels/slab.h"

namespace hps {

struct WriteSequenceVisit {
  uint32_t threads = 1;  // of the only block
  // The key counts passed to EndWrites for the two words, at least one each.
  uint32_t slab_keys = 1;
  uint32_t row_keys = 1;
};

// The block begins writes at both words, copies what every copy then says to `within`, and ends the
// writes. `sequence` and `within` [WriteSequence::kCopies] are device memory. Asynchronous.
cudaError_t LaunchWriteSequenceVisit(const WriteSequenceVisit& visit, WriteSequence* sequence,
                                     WriteSequence::Words* within, cudaStream_t stream);

}  // namespace hps
