#include "l2_memory/fetch.h"

#include <cstring>

#include "l2_memory/fetch_steps.h"

namespace hps {
namespace {

struct PortableMachine {
  static void Locate(const Key* keys, const PlaceShape& shape, Place* places) {
    for (size_t i = 0; i < kGroupKeys; ++i)
      places[i] = shape.PlaceOf(HashKey(keys[i], kL2HashSeed));
  }
  static LineProbe Probe(const IndexLine& line, Key key) { return ProbeLine(line, key); }
  static void Copy(std::byte* to, const std::byte* from, size_t row_bytes) {
    std::memcpy(to, from, row_bytes);
  }
  static void CopyStreaming(std::byte* to, const std::byte* from, size_t row_bytes) {
    std::memcpy(to, from, row_bytes);
  }
  static void FinishStreaming() {}
};

}  // namespace

void FetchPortable(const FetchSource& source, const FetchBatch& batch, FetchRange range,
                   bool streaming, FetchCounts& counts) {
  FetchSteps<PortableMachine>(source, batch).Run(range, streaming, counts);
}

FetchFunction FetchFunctionForMachine() {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512dq") && FetchAvx512() != nullptr;
  if (wide) return FetchAvx512();
#endif
  return FetchPortable;
}

}  // namespace hps
