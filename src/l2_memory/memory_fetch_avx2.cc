#include "l2_memory/memory_fetch.h"

// Only g++ supports the pragmas below. ThreadSanitizer can't see that the vector loads are the
// atomic loads of ProbeLine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define HPS_L2_AVX2 1
#endif

#if defined(HPS_L2_AVX2)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/hash.h"
#include "l2_memory/index_line.h"

// All headers are included above, so that no shared inline function is compiled here with
// instructions that other machines lack.
#pragma GCC push_options
#pragma GCC target("avx2,bmi")

#include "l2_memory/memory_fetch_steps.h"

namespace hps {
namespace {

constexpr size_t kVectorBytes = 32;

__m256i* Vector(void* bytes) { return static_cast<__m256i*>(bytes); }
const __m256i* Vector(const void* bytes) { return static_cast<const __m256i*>(bytes); }

struct Avx2Machine {
  static constexpr size_t kLast = IndexLine::kEntries - 1;

  using Locator = KeyLocator;

  // ProbeLine with one comparison for all keys but the last. On all machines with these
  // instructions, every eight aligned bytes of a vector load are loaded atomically and loads stay
  // in program order; the signal fences keep the compiler from reordering them.
  static LineProbe Probe(const IndexLine& line, Key key) {
    static_assert(IndexLine::kEntries * sizeof(Key) == kVectorBytes + sizeof(Key));
    for (;;) {
      const uint64_t sequence = line.sequence.load(std::memory_order_acquire);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const __m256i equal =
          _mm256_cmpeq_epi64(_mm256_load_si256(Vector(&line)), _mm256_set1_epi64x(key));
      auto same = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(equal)));
      same |= unsigned{line.keys[kLast].load(std::memory_order_acquire) == key} << kLast;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const LineProbe probe = TakenEntry(line, same, sequence);
      if (probe.slot == kNoSlot) [[unlikely]]
        return probe;
      if (line.sequence.load(std::memory_order_acquire) == sequence) [[likely]]
        return probe;
    }
  }

  static void Copy(std::byte* to, const std::byte* from, size_t row_bytes) {
    std::memcpy(to, from, row_bytes);
  }
  static void CopyStreaming(std::byte* to, const std::byte* from, size_t row_bytes) {
    for (size_t offset = 0; offset < row_bytes; offset += kCacheLineBytes)
      CopyLineStreaming(to + offset, from + offset);
  }
  static void CopyLine(std::byte* to, const std::byte* from) {
    const __m256i first = _mm256_loadu_si256(Vector(from));
    const __m256i second = _mm256_loadu_si256(Vector(from + kVectorBytes));
    _mm256_storeu_si256(Vector(to), first);
    _mm256_storeu_si256(Vector(to + kVectorBytes), second);
  }
  static void CopyLineStreaming(std::byte* to, const std::byte* from) {
    const __m256i first = _mm256_loadu_si256(Vector(from));
    const __m256i second = _mm256_loadu_si256(Vector(from + kVectorBytes));
    _mm256_stream_si256(Vector(to), first);
    _mm256_stream_si256(Vector(to + kVectorBytes), second);
  }
  // Orders the streamed stores, which nothing else orders.
  static void FinishStreaming() { _mm_sfence(); }
};

void Fetch(const FetchSource& source, const FetchBatch& batch, FetchRange range, bool streaming,
           FetchCounts& counts) {
  FetchWith<Avx2Machine>(source, batch, range, streaming, counts);
}

}  // namespace

#pragma GCC pop_options

FetchFunction FetchAvx2() {
  static const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
  return runs ? Fetch : nullptr;
}

}  // namespace hps

#else

namespace hps {

FetchFunction FetchAvx2() { return nullptr; }

}  // namespace hps

#endif
