#include "l1_gpu/test_row_check.h"

#include "gpu/kernel_launch.h"

namespace hps {
namespace {

constexpr uint32_t kThreadsPerBlock = 256;
constexpr uint32_t kLanesPerRow = 4;  // 32 bytes at a time: most rows are narrow
constexpr uint32_t kRowsPerBlock = kThreadsPerBlock / kLanesPerRow;

// As StampedRow::Word, which is host code; test_row_check_test.cc compares them.
__device__ uint64_t StampWord(uint64_t base, uint64_t word) {
  uint64_t x = base + word * 0xe7037ed1a0b428db;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 29);
}

__device__ uint64_t LoadBytes(const std::byte* from, size_t count) {
  if (count == 8 && reinterpret_cast<uintptr_t>(from) % 8 == 0)
    return *reinterpret_cast<const uint64_t*>(from);
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
  return value;
}

__device__ bool LaneMatches(const RowCheckArgs& args, size_t position, Version version,
                            uint32_t lane) {
  const std::byte* row = args.rows + position * args.row_stride_bytes;
  const uint64_t base = static_cast<uint64_t>(args.keys[position]) * 0x9e3779b97f4a7c15 +
                        args.table * 0xd6e8feb86659fd93 + version * 0xa0761d6478bd642f;
  bool matches = true;
  const size_t words = (args.row_bytes + 7) / 8;
  for (size_t word = lane; word < words; word += kLanesPerRow) {
    const size_t left = args.row_bytes - word * 8;
    const size_t count = left < 8 ? left : 8;
    uint64_t wanted = word == 0 && args.row_bytes >= 16 ? version : StampWord(base, word);
    if (count < 8) wanted &= (uint64_t{1} << (8 * count)) - 1;
    matches &= LoadBytes(row + word * 8, count) == wanted;
  }
  return matches;
}

__global__ void __launch_bounds__(kThreadsPerBlock) RowCheckKernel(RowCheckArgs args) {
  __shared__ RowCheckResult block;
  if (threadIdx.x == 0) block = RowCheckResult{};
  __syncthreads();
  const size_t position = size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kLanesPerRow;
  const uint32_t lane = threadIdx.x % kLanesPerRow;
  const uint32_t group = ((1u << kLanesPerRow) - 1)
                         << (threadIdx.x % 32 / kLanesPerRow * kLanesPerRow);
  if (position < args.key_count && args.status[position] == KeyStatus::kHitL1) {
    const Version version =
        args.expected != nullptr
            ? args.expected[position]
            : LoadBytes(args.rows + position * args.row_stride_bytes, sizeof(Version));
    const bool matches = __all_sync(group, LaneMatches(args, position, version, lane));
    if (lane == 0) {
      atomicAdd(&block.hits, 1ull);
      if (!matches) atomicAdd(&block.foreign, 1ull);
      if (matches && args.seen != nullptr) {
        Version& seen = args.seen[args.keys[position]];
        if (version < seen) atomicAdd(&block.back, 1ull);
        if (version > seen) seen = version;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (block.hits != 0) atomicAdd(&args.result->hits, block.hits);
  if (block.foreign != 0) atomicAdd(&args.result->foreign, block.foreign);
  if (block.back != 0) atomicAdd(&args.result->back, block.back);
}

__global__ void __launch_bounds__(kThreadsPerBlock) MakeKeysKernel(MakeKeysArgs args) {
  const size_t i = size_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x;
  if (i < args.count)
    args.keys[i] = static_cast<Key>((args.first + i * args.step) % args.key_range);
}

__global__ void TrapKernel() { __trap(); }

uint32_t BlocksFor(size_t count, size_t per_block) {
  return static_cast<uint32_t>((count + per_block - 1) / per_block);
}

}  // namespace

cudaError_t LaunchRowCheck(const RowCheckArgs& args, cudaStream_t stream) {
  if (args.key_count == 0) return cudaSuccess;
  return LaunchKernel<RowCheckKernel>(
      {BlocksFor(args.key_count, kRowsPerBlock), kThreadsPerBlock, stream}, args);
}

cudaError_t LaunchMakeKeys(const MakeKeysArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  return LaunchKernel<MakeKeysKernel>(
      {BlocksFor(args.count, kThreadsPerBlock), kThreadsPerBlock, stream}, args);
}

cudaError_t LaunchTrap(cudaStream_t stream) { return LaunchKernel<TrapKernel>({1, 1, stream}); }

}  // namespace hps
