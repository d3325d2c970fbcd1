#include "l1_gpu/misses.h"

#include <random>

#include "base/bytes.h"
#include "base/limits.h"
#include "hps/table_spec.h"
#include "l1_gpu/kernels/query_task.h"

namespace hps {
namespace {

static_assert(kRowBytesMax <= UINT16_MAX, "QueryTask::row_bytes has 16 bits");

// Hands out parts of one block; without a block it only counts bytes.
class Carver {
 public:
  explicit Carver(std::byte* block) : block_(block) {}

  template <typename T>
  T* Take(size_t count) {
    T* const part = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_bytes_);
    used_bytes_ += RoundUp(count * sizeof(T), 256);
    return part;
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* block_;
  size_t used_bytes_ = 0;
};

void CarveDevice(size_t keys_max, Carver& carver, MissBuffers& buffers) {
  buffers.claims = carver.Take<uint64_t>(2 * keys_max);
  buffers.counters = carver.Take<uint32_t>(8 * kTablesPerCallMax);
  buffers.unique_of = carver.Take<uint32_t>(keys_max);
  buffers.positions = carver.Take<uint32_t>(keys_max);
  buffers.keys = carver.Take<Key>(keys_max);
  buffers.duplicates = carver.Take<DuplicatePosition>(keys_max);
  buffers.queries = carver.Take<QueryTask>(kTablesPerCallMax);
}

void CarvePinned(size_t keys_max, Carver& carver, MissBuffers& buffers) {
  buffers.records = carver.Take<MissRecord>(keys_max);
  buffers.duplicate_records = carver.Take<DuplicateRecord>(keys_max);
  buffers.pinned_queries = carver.Take<QueryTask>(kTablesPerCallMax);
}

}  // namespace

size_t MissDeviceBytes(size_t keys_max) {
  Carver carver(nullptr);
  MissBuffers buffers;
  CarveDevice(keys_max, carver, buffers);
  return carver.used_bytes();
}

size_t MissPinnedBytes(size_t keys_max) {
  Carver carver(nullptr);
  MissBuffers buffers;
  CarvePinned(keys_max, carver, buffers);
  return carver.used_bytes();
}

MissBuffers CarveMissBuffers(size_t keys_max, std::byte* device, std::byte* pinned) {
  MissBuffers buffers;
  Carver device_carver(device);
  CarveDevice(keys_max, device_carver, buffers);
  Carver pinned_carver(pinned);
  CarvePinned(keys_max, pinned_carver, buffers);
  std::random_device random;
  buffers.claim_multiplier = uint64_t{random()} << 32 | random() | 1;
  return buffers;
}

}  // namespace hps
