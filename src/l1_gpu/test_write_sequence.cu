#include "l1_gpu/test_write_sequence.h"

#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {
namespace {

__global__ void WriteSequenceVisitKernel(WriteSequenceVisit visit, WriteSequence* sequence,
                                         WriteSequence::Words* within) {
  BeginWrites(sequence, &SequenceWords::slabs);
  BeginWrites(sequence, &SequenceWords::rows);
  for (uint32_t copy = threadIdx.x; copy < WriteSequence::kCopies; copy += blockDim.x) {
    within[copy].slabs = atomicAdd(&sequence->copies[copy].slabs, 0);
    within[copy].rows = atomicAdd(&sequence->copies[copy].rows, 0);
  }
  EndWrites(sequence, &SequenceWords::rows, visit.row_keys);
  EndWrites(sequence, &SequenceWords::slabs, visit.slab_keys);
}

}  // namespace

cudaError_t LaunchWriteSequenceVisit(const WriteSequenceVisit& visit, WriteSequence* sequence,
                                     WriteSequence::Words* within, cudaStream_t stream) {
  return LaunchKernel<WriteSequenceVisitKernel>({1, visit.threads, stream}, visit, sequence,
                                                within);
}

}  // namespace hps
