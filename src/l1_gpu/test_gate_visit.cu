#include "l1_gpu/test_gate_visit.h"

#include "l1_gpu/kernels/kernel_launch.h"
#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {
namespace {

__global__ void GateVisitKernel(GateVisit visit, WriterGate* gate, WriterGate::Words* within) {
  EnterGate(gate, &GateWords::slabs);
  EnterGate(gate, &GateWords::rows);
  for (uint32_t copy = threadIdx.x; copy < WriterGate::kCopies; copy += blockDim.x) {
    within[copy].slabs = atomicAdd(&gate->copies[copy].slabs, 0);
    within[copy].rows = atomicAdd(&gate->copies[copy].rows, 0);
  }
  LeaveGate(gate, &GateWords::rows, visit.row_keys);
  LeaveGate(gate, &GateWords::slabs, visit.slab_keys);
}

}  // namespace

cudaError_t LaunchGateVisit(const GateVisit& visit, WriterGate* gate, WriterGate::Words* within,
                            cudaStream_t stream) {
  return LaunchKernel<GateVisitKernel>({1, visit.threads, stream}, visit, gate, within);
}

}  // namespace hps
