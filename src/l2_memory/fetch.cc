#include "l2_memory/fetch.h"

#include <cstring>

#include "l2_memory/fetch_steps.h"

namespace hps {
namespace {

struct PortableMachine {
  class Locator {
   public:
    Locator(const PlaceShape& shape, const Key* keys) : shape_(shape), keys_(keys) {}
    void Advance(size_t) {}
    void Store(size_t place, Places& places) const { LocateGroup(shape_, keys_, place, places); }

   private:
    const PlaceShape& shape_;
    const Key* const keys_;
  };
  static void LocateGroup(const PlaceShape& shape, const Key* keys, size_t place, Places& places) {
    for (size_t i = 0; i < kGroupKeys; ++i) places.Locate(shape, keys[i], place + i);
  }
  static LineProbe Probe(const IndexLine& line, Key key) { return ProbeLine(line, key); }
  static void Copy(std::byte* to, const std::byte* from, size_t row_bytes) {
    std::memcpy(to, from, row_bytes);
  }
  static void CopyStreaming(std::byte* to, const std::byte* from, size_t row_bytes) {
    std::memcpy(to, from, row_bytes);
  }
  static void CopyLine(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, kCacheLineBytes);
  }
  static void CopyLineStreaming(std::byte* to, const std::byte* from) { CopyLine(to, from); }
  static void FinishStreaming() {}
};

}  // namespace

void FetchPortable(const FetchSource& source, const FetchBatch& batch, FetchRange range,
                   bool streaming, FetchCounts& counts) {
  FetchWith<PortableMachine>(source, batch, range, streaming, counts);
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
