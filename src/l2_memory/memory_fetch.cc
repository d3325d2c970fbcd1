#include "l2_memory/memory_fetch.h"

#include <cstring>

#include "l2_memory/memory_fetch_steps.h"

namespace hps {
namespace {

struct PortableMachine {
  using Locator = KeyLocator;
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
  for (const FetchFunction fetch : {FetchAvx512(), FetchAvx2()}) {
    if (fetch != nullptr) return fetch;
  }
  return FetchPortable;
}

}  // namespace hps
