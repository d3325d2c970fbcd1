// The level 1 of a test program: in host memory, or on a GPU. The program links one of
// test_level1_on_host.cc and test_level1_on_gpu.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "testing/contracts/device_cache_contract_fixture.h"
#include "tier/device_cache.h"

namespace hps {

struct TestLevel1 {
  std::string why_skipped;  // empty: this machine has it
  std::unique_ptr<DeviceCache> cache;
  std::unique_ptr<CacheMemory> memory;  // of the device
};

TestLevel1 MakeTestLevel1(uint64_t bytes_max);

}  // namespace hps
