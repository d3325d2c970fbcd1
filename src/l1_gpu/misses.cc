#include "l1_gpu/misses.h"

#include <random>

#include "base/limits.h"
#include "hps/table_spec.h"
#include "l1_gpu/alignment.h"
#include "l1_gpu/kernels/query_task.h"

namespace hps {
namespace {

static_assert(kRowBytesMax <= UINT16_MAX, "QueryTask::row_bytes has 16 bits");

void CarveDevice(size_t keys_max, BlockParts& parts, MissBuffers& buffers) {
  buffers.claims = parts.Take<uint64_t>(2 * keys_max);
  buffers.counters = parts.Take<uint32_t>(8 * kTablesPerCallMax);
  buffers.unique_of = parts.Take<uint32_t>(keys_max);
  buffers.positions = parts.Take<uint32_t>(keys_max);
  buffers.keys = parts.Take<Key>(keys_max);
  buffers.duplicates = parts.Take<DuplicatePosition>(keys_max);
  buffers.queries = parts.Take<QueryTask>(kTablesPerCallMax);
}

void CarvePinned(size_t keys_max, BlockParts& parts, MissBuffers& buffers) {
  buffers.records = parts.Take<MissRecord>(keys_max);
  buffers.duplicate_records = parts.Take<DuplicateRecord>(keys_max);
  buffers.pinned_queries = parts.Take<QueryTask>(kTablesPerCallMax);
}

size_t BytesOf(void (*carve)(size_t, BlockParts&, MissBuffers&), size_t keys_max) {
  BlockParts parts(nullptr);
  MissBuffers buffers;
  carve(keys_max, parts, buffers);
  return parts.used_bytes();
}

}  // namespace

size_t MissDeviceBytes(size_t keys_max) { return BytesOf(CarveDevice, keys_max); }
size_t MissPinnedBytes(size_t keys_max) { return BytesOf(CarvePinned, keys_max); }

MissBuffers CarveMissBuffers(size_t keys_max, std::byte* device, std::byte* pinned) {
  MissBuffers buffers;
  BlockParts device_parts(device);
  CarveDevice(keys_max, device_parts, buffers);
  BlockParts pinned_parts(pinned);
  CarvePinned(keys_max, pinned_parts, buffers);
  std::random_device random;
  buffers.claim_multiplier = uint64_t{random()} << 32 | random() | 1;
  return buffers;
}

}  // namespace hps
