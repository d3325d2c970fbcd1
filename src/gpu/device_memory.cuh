// Loads, stores and fences of the kernels, named as in PTX's memory model.
//
// Slabs and rows are shared with concurrent kernels. They are read in one of two ways: with relaxed
// loads at GPU scope, which are never served from the multiprocessor's own cache (L1), where data
// may be old; or, while no writer is known to run, behind an acquire, which invalidates that cache.
#pragma once

#include <cstdint>
#include <nv/target>

namespace hps {

// Whether kernels use the fences that PTX's memory model requires between dependent accesses: a
// load whose address or execution depends on an earlier load or exchange, or a load after a store
// of a loaded value.
//
// Off for Hopper (sm_90), whose hardware keeps these orders: the writes of others are read in L2,
// or from the multiprocessor's own cache behind an acquire (LoadRelaxedCta), and then count only if
// the write sequence shows afterwards that no writer ran. The concurrency tests ran on H100 and
// H200 with fences off and on (l1_gpu_fences_test); the fences cost the query 3 to 5 %, more with
// skewed keys. On for every other architecture, where this was not measured. HPS_FORMAL_FENCES=0 or
// 1 overrides the choice.
#if defined(HPS_FORMAL_FENCES)
inline constexpr bool kFormalFences = HPS_FORMAL_FENCES != 0;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kFormalFences = false;
#else
inline constexpr bool kFormalFences = true;
#endif

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffff;

__device__ inline uint4 LoadRelaxed(const uint4* from) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ inline uint64_t LoadRelaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline uint32_t LoadRelaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline uint8_t LoadRelaxed(const uint8_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return static_cast<uint8_t>(value);
}

// Two words at once, each read atomically.
__device__ inline ulonglong2 LoadRelaxed(const ulonglong2* from) {
  ulonglong2 value;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.x), "=l"(value.y)
               : "l"(from)
               : "memory");
  return value;
}

__device__ inline unsigned long long LoadAcquire(const unsigned long long* from) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline ulonglong2 LoadAcquire(const ulonglong2* from) {
  ulonglong2 value;
  asm volatile("ld.acquire.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.x), "=l"(value.y)
               : "l"(from)
               : "memory");
  return value;
}

// As LoadRelaxed, but may be served from the multiprocessor's own cache, with data that a warp
// there has read since this warp's last acquire or later. Formally, the memory model allows only
// threads of this block to write there meanwhile: the reader must verify that no other thread
// wrote.
__device__ inline uint4 LoadRelaxedCta(const uint4* from) {
  if (kFormalFences) return LoadRelaxed(from);
  uint4 value;
  asm volatile("ld.relaxed.cta.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ inline uint32_t LoadRelaxedCta(const uint32_t* from) {
  if (kFormalFences) return LoadRelaxed(from);
  uint32_t value;
  asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline uint8_t LoadRelaxedCta(const uint8_t* from) {
  if (kFormalFences) return LoadRelaxed(from);
  uint32_t value;
  asm volatile("ld.relaxed.cta.global.u8 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return static_cast<uint8_t>(value);
}

// Loads host memory that the host writes meanwhile. The memory model demands system scope on both
// sides for that. But with system scope, reads of one line wait for each other, 0.5 us each. So
// system scope is used only with kFormalFences: a Hopper does not keep memory of the host in its
// L2.
__device__ inline uint4 LoadOfHost(const uint4* from) {
  if (!kFormalFences) return LoadRelaxed(from);
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

__device__ inline void StoreRelaxed(uint4* to, uint4 value) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ inline void StoreRelaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
}
__device__ inline void StoreRelaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}
__device__ inline void StoreRelaxed(uint8_t* to, uint8_t value) {
  asm volatile("st.relaxed.gpu.global.u8 [%0], %1;"
               :
               : "l"(to), "r"(static_cast<uint32_t>(value))
               : "memory");
}
// For rows that the device is not expected to read soon: L2 evicts them first.
__device__ inline void StoreStreamed(uint4* to, uint4 value) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
// Orders all accesses before it with all accesses after it, for all threads of the device.
__device__ inline void FenceGpu() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }

// A fence between two dependent accesses, if kFormalFences.
__device__ inline void FenceBehindDependency() {
  if (kFormalFences) FenceGpu();
}

// The same where the host writes what is read.
__device__ inline void FenceHostBehindDependency() {
  if (kFormalFences) asm volatile("fence.acq_rel.sys;" : : : "memory");
}

// For kernels launched by LaunchKernelAhead, before they read anything but their parameters: until
// this call, earlier work of the stream may not have completed. Also lets the next such kernel
// start its blocks early.
__device__ inline void WaitForKernelBefore() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;"
                                                :
                                                :
                                                : "memory");
                                   asm volatile("griddepcontrol.launch_dependents;"
                                                :
                                                :
                                                : "memory");))
}

// For data that is read once and not written meanwhile: leaves the caches to data that is reused.
// Volatile, so that no load moves ahead of WaitForKernelBefore.
__device__ inline uint64_t LoadNonCoherent(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.global.nc.L1::no_allocate.u64 %0, [%1];" : "=l"(value) : "l"(from));
  return value;
}
__device__ inline uint4 LoadNonCoherent(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
__device__ inline uint32_t LoadNonCoherent(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}
__device__ inline uint8_t LoadNonCoherent(const uint8_t* from) {
  uint32_t value;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(value) : "l"(from));
  return static_cast<uint8_t>(value);
}

}  // namespace hps
