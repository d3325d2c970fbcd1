// Shared by the tests of the GPU cache: device memory for the contract suite.
//
// Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "gpu/cuda_resources.h"
#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {

// Freed blocks are reused for their size, because the
// runtime's allocation waits for the whole device. Thread-safe.
class GpuCacheMemory final : public CacheMemory {
 public:
  MemorySpace space() const override { return MemorySpace::kDevice; }

  std::byte* Allocate(size_t bytes) override {
    const size_t block_bytes = std::bit_ceil(bytes);
    MutexLock lock(mutex_);
    std::vector<std::byte*>& free = free_[block_bytes];
    if (free.empty()) {
      blocks_.push_back(*MakeDeviceBuffer("test memory", block_bytes));
      block_bytes_[blocks_.back().data()] = block_bytes;
      return blocks_.back().data();
    }
    std::byte* const memory = free.back();
    free.pop_back();
    return memory;
  }
  void Free(std::byte* memory) override {
    MutexLock lock(mutex_);
    free_[block_bytes_.at(memory)].push_back(memory);
  }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override {
    Copy(to, from.data(), from.size());
  }
  void CopyOut(std::span<std::byte> to, const std::byte* from) override {
    Copy(to.data(), from, to.size());
  }

 private:
  void Copy(void* to, const void* from, size_t bytes) {
    MutexLock lock(mutex_);
    if (stream_ == nullptr) stream_ = *MakeStream(StreamPriority::kHigh);
    ASSERT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  }

  Mutex mutex_;
  CudaStream stream_ HPS_GUARDED_BY(mutex_);  // created on demand, not before a test is skipped
  std::vector<DeviceBuffer> blocks_ HPS_GUARDED_BY(mutex_);
  std::map<std::byte*, size_t> block_bytes_ HPS_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<std::byte*>> free_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
