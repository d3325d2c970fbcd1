#include "l2_memory/fetch.h"

// Only g++ knows the pragmas below. ThreadSanitizer can't see that the vector loads are the atomic
// loads of ProbeLine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define HPS_L2_AVX512 1
#endif

#if defined(HPS_L2_AVX512)

#include <immintrin.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "l2_memory/index_line.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2")
// The compiler's own header starts some results from a value that is undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "l2_memory/fetch_steps.h"

namespace hps {
namespace {

constexpr size_t kVectorBytes = 64;

// Eight times `value`.
__m512i All(uint64_t value) { return _mm512_set1_epi64(static_cast<int64_t>(value)); }

// HashKey of eight keys at once.
__m512i HashKeys(__m512i keys) {
  const __m512i prime1 = All(0x9e3779b185ebca87);
  const __m512i prime2 = All(0xc2b2ae3d27d4eb4f);
  const __m512i prime3 = All(0x165667b19e3779f9);
  const __m512i prime4 = All(0x85ebca77c2b2ae63);
  constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5;
  const __m512i round =
      _mm512_mullo_epi64(_mm512_rol_epi64(_mm512_mullo_epi64(keys, prime2), 31), prime1);
  __m512i hash = _mm512_xor_si512(All(kL2HashSeed + kPrime5 + sizeof(Key)), round);
  hash = _mm512_add_epi64(_mm512_mullo_epi64(_mm512_rol_epi64(hash, 27), prime1), prime4);
  hash = _mm512_mullo_epi64(_mm512_xor_si512(hash, _mm512_srli_epi64(hash, 33)), prime2);
  hash = _mm512_mullo_epi64(_mm512_xor_si512(hash, _mm512_srli_epi64(hash, 29)), prime3);
  return _mm512_xor_si512(hash, _mm512_srli_epi64(hash, 32));
}

struct Avx512Machine {
  // PlaceOf for eight keys at once. The counts have 32 bits, so the upper half of a product of 64
  // by 32 bits is put together from two products of 32 by 32.
  static void Locate(const Key* keys, const PlaceShape& shape, Place* places) {
    const __m512i hash = HashKeys(_mm512_loadu_si512(keys));
    const __m512i partitions = All(shape.partition_count);
    const __m512i lines = All(shape.line_count);
    const __m512i upper = _mm512_mul_epu32(_mm512_srli_epi64(hash, 32), partitions);
    const __m512i lower = _mm512_srli_epi64(_mm512_mul_epu32(hash, partitions), 32);
    const __m512i partition = _mm512_srli_epi64(_mm512_add_epi64(upper, lower), 32);
    const __m512i first = _mm512_srli_epi64(_mm512_mul_epu32(hash, lines), 32);
    static_assert(sizeof(Place) == 8 && offsetof(Place, first) == 4);
    _mm512_storeu_si512(places, _mm512_or_si512(partition, _mm512_slli_epi64(first, 32)));
  }

  // ProbeLine with one comparison for all keys. Every eight aligned bytes of a vector load are
  // loaded at once on all machines that have these instructions, loads stay in program order, and
  // the signal fences keep the compiler to it.
  static LineProbe Probe(const IndexLine& line, Key key) {
    const void* const bytes = &line;
    for (;;) {
      LineProbe probe;
      probe.sequence = line.sequence.load(std::memory_order_acquire);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const __mmask8 same =
          _mm512_cmpeq_epi64_mask(_mm512_load_si512(bytes), _mm512_set1_epi64(key));
      std::atomic_signal_fence(std::memory_order_seq_cst);
      const __m128i slots =
          _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(line.slots.data())));
      const unsigned taken = _mm_test_epi16_mask(slots, slots);
      const unsigned found = same & taken & ((1u << IndexLine::kEntries) - 1);
      if (found == 0) return probe;
      probe.entry = static_cast<uint8_t>(__builtin_ctz(found));
      probe.slot = line.slots[probe.entry].load(std::memory_order_acquire);
      // It may have been freed since; then the key is not there.
      if (probe.slot == kNoSlot) return probe;
      if (line.sequence.load(std::memory_order_acquire) == probe.sequence) return probe;
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
    for (size_t offset = 0; offset < row_bytes; offset += kVectorBytes) {
      _mm512_stream_si512(static_cast<__m512i*>(static_cast<void*>(to + offset)),
                          _mm512_loadu_si512(from + offset));
    }
  }
  // Streamed stores are ordered with nothing else until this.
  static void FinishStreaming() { _mm_sfence(); }
};

bool CanStream(const FetchBatch& batch) {
  const auto address = std::bit_cast<uintptr_t>(batch.rows.data);
  return (address | batch.rows.stride_bytes | batch.rows.row_bytes) % kVectorBytes == 0;
}

void Fetch(const FetchSource& source, const FetchBatch& batch, FetchRange range, bool streaming,
           FetchCounts& counts) {
  FetchSteps<Avx512Machine>(source, batch).Run(range, streaming && CanStream(batch), counts);
}

}  // namespace

#pragma GCC diagnostic pop
#pragma GCC pop_options

FetchFunction FetchAvx512() { return Fetch; }

}  // namespace hps

#else

namespace hps {

FetchFunction FetchAvx512() { return nullptr; }

}  // namespace hps

#endif
