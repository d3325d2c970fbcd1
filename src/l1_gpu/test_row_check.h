// Checks stamped rows (testing/fakes/stamped_row.h) on the device, so that a test can check more
// rows than fit through the bus. Include it in tests only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "hps/types.h"

namespace hps {

// Results, in device memory; the test zeroes it.
struct RowCheckResult {
  unsigned long long hits = 0;     // rows that were checked
  unsigned long long foreign = 0;  // torn, or of another key or table, or not the expected version
  unsigned long long back = 0;     // older than the key was seen before
};

// All pointers are device memory.
struct RowCheckArgs {
  uint64_t table = 0;  // the number in the stamps
  const Key* keys = nullptr;
  size_t key_count = 0;
  const std::byte* rows = nullptr;
  size_t row_bytes = 0;
  size_t row_stride_bytes = 0;
  const KeyStatus* status = nullptr;  // only rows of kHitL1 are looked at
  // Either the required version of each position ...
  const Version* expected = nullptr;
  // ... or, for keys from 0 to a dense maximum and rows of at least 16 bytes, the newest version of
  // each key seen so far, which the check raises. REQUIRES: no duplicate key in one check.
  Version* seen = nullptr;
  RowCheckResult* result = nullptr;
};

// Asynchronous.
cudaError_t LaunchRowCheck(const RowCheckArgs& args, cudaStream_t stream);

// keys[i] = (first + i x step) mod key_range: unique if step and key_range are coprime and count <=
// key_range. Asynchronous.
struct MakeKeysArgs {
  Key* keys = nullptr;
  size_t count = 0;
  uint64_t first = 0;
  uint64_t step = 1;
  uint64_t key_range = 1;
};
cudaError_t LaunchMakeKeys(const MakeKeysArgs& args, cudaStream_t stream);

// Breaks the device for this process: every later operation on it fails. Asynchronous.
cudaError_t LaunchTrap(cudaStream_t stream);

}  // namespace hps
