#include "bench/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hps::bench {
namespace {

constexpr size_t kLineBytes = 64;

using GatherFunction = void (*)(std::span<const std::byte* const> rows, size_t row_bytes,
                                std::byte* out, size_t ahead);

template <bool kFar>
void PrefetchRow(const std::byte* row, size_t row_bytes) {
  for (size_t offset = 0; offset < row_bytes; offset += kLineBytes)
    __builtin_prefetch(row + offset, 0, kFar ? 2 : 3);
}

template <bool kFar>
void GatherPlain(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
                 size_t ahead) {
  const size_t primed = std::min(ahead, rows.size());
  for (size_t i = 0; i < primed; ++i) PrefetchRow<kFar>(rows[i], row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) PrefetchRow<kFar>(rows[i + ahead], row_bytes);
    std::memcpy(out + i * row_bytes, rows[i], row_bytes);
  }
}

constexpr size_t kLinesAhead = 8;     // a line of the index, before its row is asked for
constexpr size_t kUnderWayMax = 128;  // more than any shape is ahead, a power of two

template <bool kFar>
void GatherThrough(std::span<const uint64_t* const> lines, std::span<const std::byte* const> rows,
                   size_t row_bytes, std::byte* out, size_t ahead) {
  std::array<const std::byte*, kUnderWayMax> found;
  const size_t count = rows.size();
  for (size_t i = 0; i < count + kLinesAhead + ahead; ++i) {
    if (i < count) __builtin_prefetch(lines[i]);
    if (i >= kLinesAhead && i - kLinesAhead < count) {
      const std::byte* const row = rows[i - kLinesAhead] + *lines[i - kLinesAhead];
      found[(i - kLinesAhead) % kUnderWayMax] = row;
      for (size_t offset = 0; offset < row_bytes; offset += kLineBytes)
        __builtin_prefetch(row + offset, 0, kFar ? 2 : 3);
    }
    if (i < kLinesAhead + ahead) continue;
    const size_t done = i - kLinesAhead - ahead;
    std::memcpy(out + done * row_bytes, found[done % kUnderWayMax], row_bytes);
  }
}

#if defined(__x86_64__)

__m512i* Vector(std::byte* bytes) { return static_cast<__m512i*>(static_cast<void*>(bytes)); }
const __m512i* Vector(const std::byte* bytes) {
  return static_cast<const __m512i*>(static_cast<const void*>(bytes));
}

template <bool kFar, bool kStreaming>
__attribute__((target("avx512f"))) void GatherWide(std::span<const std::byte* const> rows,
                                                   size_t row_bytes, std::byte* out, size_t ahead) {
  const size_t primed = std::min(ahead, rows.size());
  for (size_t i = 0; i < primed; ++i) PrefetchRow<kFar>(rows[i], row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) PrefetchRow<kFar>(rows[i + ahead], row_bytes);
    std::byte* const to = out + i * row_bytes;
    for (size_t offset = 0; offset < row_bytes; offset += kLineBytes) {
      const __m512i line = _mm512_load_si512(Vector(rows[i] + offset));
      if constexpr (kStreaming) {
        _mm512_stream_si512(Vector(to + offset), line);
      } else {
        _mm512_store_si512(Vector(to + offset), line);
      }
    }
  }
  if constexpr (kStreaming) _mm_sfence();
}

__m256i* HalfVector(std::byte* bytes) { return static_cast<__m256i*>(static_cast<void*>(bytes)); }
const __m256i* HalfVector(const std::byte* bytes) {
  return static_cast<const __m256i*>(static_cast<const void*>(bytes));
}

template <bool kFar, bool kStreaming>
__attribute__((target("avx2"))) void GatherHalfWide(std::span<const std::byte* const> rows,
                                                    size_t row_bytes, std::byte* out,
                                                    size_t ahead) {
  constexpr size_t kHalf = sizeof(__m256i);
  const size_t primed = std::min(ahead, rows.size());
  for (size_t i = 0; i < primed; ++i) PrefetchRow<kFar>(rows[i], row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) PrefetchRow<kFar>(rows[i + ahead], row_bytes);
    std::byte* const to = out + i * row_bytes;
    for (size_t offset = 0; offset < row_bytes; offset += kLineBytes) {
      const __m256i low = _mm256_load_si256(HalfVector(rows[i] + offset));
      const __m256i high = _mm256_load_si256(HalfVector(rows[i] + offset + kHalf));
      if constexpr (kStreaming) {
        _mm256_stream_si256(HalfVector(to + offset), low);
        _mm256_stream_si256(HalfVector(to + offset + kHalf), high);
      } else {
        _mm256_store_si256(HalfVector(to + offset), low);
        _mm256_store_si256(HalfVector(to + offset + kHalf), high);
      }
    }
  }
  if constexpr (kStreaming) _mm_sfence();
}

// Those with the machine's widest vectors; null where it has none that are wider than a word's.
template <bool kFar, bool kStreaming>
GatherFunction WidestGather() {
  if (__builtin_cpu_supports("avx512f") != 0) return GatherWide<kFar, kStreaming>;
  if (__builtin_cpu_supports("avx2") != 0) return GatherHalfWide<kFar, kStreaming>;
  return nullptr;
}

#else

template <bool kFar, bool kStreaming>
GatherFunction WidestGather() {
  return nullptr;
}

#endif

GatherFunction GatherFor(GatherShape shape) {
  GatherFunction widest = nullptr;
  if (shape.far) {
    widest = shape.streaming ? WidestGather<true, true>() : WidestGather<true, false>();
    return widest != nullptr ? widest : GatherPlain<true>;
  }
  widest = shape.streaming ? WidestGather<false, true>() : WidestGather<false, false>();
  return widest != nullptr ? widest : GatherPlain<false>;
}

}  // namespace

std::vector<GatherShape> GatherShapes() {
  const bool can_stream = WidestGather<false, true>() != nullptr;
  std::vector<GatherShape> shapes;
  for (const size_t ahead : {0, 4, 8, 16, 32, 64}) {
    for (const bool far : {false, true}) {
      shapes.push_back({.ahead = ahead, .far = far, .streaming = false});
      if (can_stream) shapes.push_back({.ahead = ahead, .far = far, .streaming = true});
    }
  }
  return shapes;
}

void Gather(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
            GatherShape shape) {
  GatherFor(shape)(rows, row_bytes, out, shape.ahead);
}

void GatherThroughLines(std::span<const uint64_t* const> lines,
                        std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
                        GatherShape shape) {
  auto* gather = shape.far ? GatherThrough<true> : GatherThrough<false>;
  gather(lines, rows, row_bytes, out, shape.ahead);
}

}  // namespace hps::bench
