#include "l2_memory/memory_fetch.h"

// Only g++ supports the pragmas below. ThreadSanitizer can't see that the vector loads are the
// atomic loads of ProbeLine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define HPS_L2_AVX512 1
#endif

#if defined(HPS_L2_AVX512)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "l2_memory/index_line.h"

// All headers are included above, so that no shared inline function is compiled here with
// instructions that other machines lack.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2")
// The compiler's own header starts some results from a deliberately undefined value.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "l2_memory/memory_fetch_steps.h"

namespace hps {
namespace {

constexpr size_t kVectorBytes = 64;

// Eight times `value`.
__m512i All(uint64_t value) { return _mm512_set1_epi64(static_cast<int64_t>(value)); }

struct Avx512Machine {
  // PlaceOf eight keys at once, in kGroupKeys parts of about one multiplication each, so that a
  // core that waits for a multiplication still has room for the work after it.
  class Locator {
   public:
    Locator(const PlaceShape& shape, const Key* keys) : shape_(shape), keys_(keys) {}

    void Advance(size_t part) {
      switch (part) {
        case 0:
          hash_ = _mm512_mullo_epi64(_mm512_loadu_si512(keys_), All(kPrime2));
          return;
        case 1:
          hash_ = _mm512_mullo_epi64(_mm512_rol_epi64(hash_, 31), All(kPrime1));
          return;
        case 2:
          hash_ = _mm512_xor_si512(hash_, All(kL2HashSeed + kPrime5 + sizeof(Key)));
          hash_ = _mm512_mullo_epi64(_mm512_rol_epi64(hash_, 27), All(kPrime1));
          return;
        case 3:
          hash_ = _mm512_add_epi64(hash_, All(kPrime4));
          hash_ = _mm512_mullo_epi64(_mm512_xor_si512(hash_, _mm512_srli_epi64(hash_, 33)),
                                     All(kPrime2));
          return;
        case 4:
          hash_ = _mm512_mullo_epi64(_mm512_xor_si512(hash_, _mm512_srli_epi64(hash_, 29)),
                                     All(kPrime3));
          return;
        case 5:
          hash_ = _mm512_xor_si512(hash_, _mm512_srli_epi64(hash_, 32));
          return;
        case 6: {
          // The counts have 32 bits, so the upper half of a 64 x 32 bit product is composed of two
          // 32 x 32 bit products.
          const __m512i count = All(shape_.partition_count);
          const __m512i upper = _mm512_mul_epu32(_mm512_srli_epi64(hash_, 32), count);
          const __m512i lower = _mm512_srli_epi64(_mm512_mul_epu32(hash_, count), 32);
          partition_ = _mm512_srli_epi64(_mm512_add_epi64(upper, lower), 32);
          return;
        }
        default:
          return;
      }
    }

    void Store(size_t place, Places& places) const {
      const __m512i lines = All(shape_.line_count);
      const __m512i first = _mm512_srli_epi64(_mm512_mul_epu32(hash_, lines), 32);
      const __m512i number = _mm512_add_epi64(_mm512_mul_epu32(partition_, lines), first);
      static_assert(kGroupKeys * sizeof(uint64_t) == kVectorBytes && sizeof(IndexLine) == 1 << 6);
      _mm512_store_si512(&places.partitions[place], partition_);
      _mm512_store_si512(&places.lines[place],
                         _mm512_add_epi64(All(std::bit_cast<uintptr_t>(shape_.lines)),
                                          _mm512_slli_epi64(number, 6)));
    }

   private:
    static constexpr uint64_t kPrime1 = 0x9e3779b185ebca87;
    static constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
    static constexpr uint64_t kPrime3 = 0x165667b19e3779f9;
    static constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63;
    static constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5;

    const PlaceShape& shape_;
    const Key* const keys_;
    __m512i hash_;
    __m512i partition_;
  };

  // ProbeLine with one comparison for all keys, and slots and stamps from one load. On all machines
  // with these instructions, every eight aligned bytes of a vector load are loaded atomically and
  // loads stay in program order; the signal fences keep the compiler from reordering them. Few
  // loads matter here: with many stores in flight, a load waits for a store with the same lower
  // address bits.
  static LineProbe Probe(const IndexLine& line, Key key) {
    static_assert(offsetof(IndexLine, stamps) == offsetof(IndexLine, slots) + 10);
    const void* const bytes = &line;
    for (;;) {
      LineProbe probe;
      probe.sequence = line.sequence.load(std::memory_order_acquire);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const __mmask8 same =
          _mm512_cmpeq_epi64_mask(_mm512_load_si512(bytes), _mm512_set1_epi64(key));
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const __m128i slots =
          _mm_load_si128(static_cast<const __m128i*>(static_cast<const void*>(line.slots.data())));
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const unsigned taken = _mm_test_epi16_mask(slots, slots);
      const unsigned found = same & taken & ((1u << IndexLine::kEntries) - 1);
      if (line.sequence.load(std::memory_order_acquire) != probe.sequence) [[unlikely]]
        continue;
      if (found == 0) [[unlikely]]
        return probe;
      const unsigned entry = static_cast<unsigned>(__builtin_ctz(found));
      const __m128i slot = _mm_permutexvar_epi16(_mm_cvtsi32_si128(static_cast<int>(entry)), slots);
      const auto stamps = static_cast<uint64_t>(_mm_extract_epi64(slots, 1)) >> 16;
      probe.entry = static_cast<uint8_t>(entry);
      probe.slot = static_cast<SlotNumber>(_mm_cvtsi128_si32(slot));
      probe.stamp = static_cast<uint8_t>(stamps >> (8 * entry));
      return probe;
    }
  }

  static void Copy(std::byte* to, const std::byte* from, size_t row_bytes) {
    size_t offset = 0;
    for (; offset + kVectorBytes <= row_bytes; offset += kVectorBytes)
      _mm512_storeu_si512(to + offset, _mm512_loadu_si512(from + offset));
    if (offset == row_bytes) return;
    const __mmask64 rest = (uint64_t{1} << (row_bytes - offset)) - 1;
    _mm512_mask_storeu_epi8(to + offset, rest, _mm512_maskz_loadu_epi8(rest, from + offset));
  }

  static void CopyStreaming(std::byte* to, const std::byte* from, size_t row_bytes) {
    for (size_t offset = 0; offset < row_bytes; offset += kVectorBytes)
      CopyLineStreaming(to + offset, from + offset);
  }
  static void CopyLine(std::byte* to, const std::byte* from) {
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
  }
  static void CopyLineStreaming(std::byte* to, const std::byte* from) {
    _mm512_stream_si512(static_cast<__m512i*>(static_cast<void*>(to)), _mm512_loadu_si512(from));
  }
  // Orders the streamed stores, which nothing else orders.
  static void FinishStreaming() { _mm_sfence(); }
};

void Fetch(const FetchSource& source, const FetchBatch& batch, FetchRange range, bool streaming,
           FetchCounts& counts) {
  FetchWith<Avx512Machine>(source, batch, range, streaming, counts);
}

}  // namespace

#pragma GCC diagnostic pop
#pragma GCC pop_options

FetchFunction FetchAvx512() {
  // Checks every extension that the pragma above names: a virtual machine may hide any of them.
  static const bool runs =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  return runs ? Fetch : nullptr;
}

}  // namespace hps

#else

namespace hps {

FetchFunction FetchAvx512() { return nullptr; }

}  // namespace hps

#endif
