// Counts, per thread, the CUDA runtime calls that synchronize, or that create or free memory,
// streams, events or graphs. Works in programs linked with CMake's hps_count_runtime_calls. Covers
// the functions listed below: those that hps uses and their equivalents.
//
// Include it in exactly one file of the program.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace hps {

// Calls of this thread since it started.
inline thread_local uint64_t runtime_calls_here = 0;

}  // namespace hps

extern "C" {
cudaError_t __real_cudaMalloc(void** memory, size_t bytes);
cudaError_t __wrap_cudaMalloc(void** memory, size_t bytes) {
  ++hps::runtime_calls_here;
  return __real_cudaMalloc(memory, bytes);
}
cudaError_t __real_cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  ++hps::runtime_calls_here;
  return __real_cudaMallocAsync(memory, bytes, stream);
}
cudaError_t __real_cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream);
cudaError_t __wrap_cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream) {
  ++hps::runtime_calls_here;
  return __real_cudaMallocFromPoolAsync(memory, bytes, pool, stream);
}
cudaError_t __real_cudaFree(void* memory);
cudaError_t __wrap_cudaFree(void* memory) {
  ++hps::runtime_calls_here;
  return __real_cudaFree(memory);
}
cudaError_t __real_cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t __wrap_cudaFreeAsync(void* memory, cudaStream_t stream) {
  ++hps::runtime_calls_here;
  return __real_cudaFreeAsync(memory, stream);
}
cudaError_t __real_cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  ++hps::runtime_calls_here;
  return __real_cudaHostAlloc(memory, bytes, flags);
}
cudaError_t __real_cudaMallocHost(void** memory, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void** memory, size_t bytes) {
  ++hps::runtime_calls_here;
  return __real_cudaMallocHost(memory, bytes);
}
cudaError_t __real_cudaFreeHost(void* memory);
cudaError_t __wrap_cudaFreeHost(void* memory) {
  ++hps::runtime_calls_here;
  return __real_cudaFreeHost(memory);
}
cudaError_t __real_cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  ++hps::runtime_calls_here;
  return __real_cudaHostRegister(memory, bytes, flags);
}
cudaError_t __real_cudaHostUnregister(void* memory);
cudaError_t __wrap_cudaHostUnregister(void* memory) {
  ++hps::runtime_calls_here;
  return __real_cudaHostUnregister(memory);
}
cudaError_t __real_cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t __wrap_cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                int priority) {
  ++hps::runtime_calls_here;
  return __real_cudaStreamCreateWithPriority(stream, flags, priority);
}
cudaError_t __real_cudaStreamDestroy(cudaStream_t stream);
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream) {
  ++hps::runtime_calls_here;
  return __real_cudaStreamDestroy(stream);
}
cudaError_t __real_cudaEventCreate(cudaEvent_t* event);
cudaError_t __wrap_cudaEventCreate(cudaEvent_t* event) {
  ++hps::runtime_calls_here;
  return __real_cudaEventCreate(event);
}
cudaError_t __real_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ++hps::runtime_calls_here;
  return __real_cudaEventCreateWithFlags(event, flags);
}
cudaError_t __real_cudaEventDestroy(cudaEvent_t event);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event) {
  ++hps::runtime_calls_here;
  return __real_cudaEventDestroy(event);
}
cudaError_t __real_cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ++hps::runtime_calls_here;
  return __real_cudaStreamBeginCapture(stream, mode);
}
cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long flags);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long flags) {
  ++hps::runtime_calls_here;
  return __real_cudaGraphInstantiate(made, graph, flags);
}
cudaError_t __real_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  ++hps::runtime_calls_here;
  return __real_cudaStreamSynchronize(stream);
}
cudaError_t __real_cudaEventSynchronize(cudaEvent_t event);
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  ++hps::runtime_calls_here;
  return __real_cudaEventSynchronize(event);
}
cudaError_t __real_cudaDeviceSynchronize();
cudaError_t __wrap_cudaDeviceSynchronize() {
  ++hps::runtime_calls_here;
  return __real_cudaDeviceSynchronize();
}
cudaError_t __real_cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t __wrap_cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  ++hps::runtime_calls_here;
  return __real_cudaMemcpy(to, from, bytes, kind);
}
cudaError_t __real_cudaMemset(void* memory, int value, size_t bytes);
cudaError_t __wrap_cudaMemset(void* memory, int value, size_t bytes) {
  ++hps::runtime_calls_here;
  return __real_cudaMemset(memory, value, bytes);
}
}
