#include "bench/gather.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hps::bench {
namespace {

constexpr size_t kLineBytes = 64;

void PrefetchRow(const std::byte* row, size_t row_bytes) {
  for (size_t offset = 0; offset < row_bytes; offset += kLineBytes)
    __builtin_prefetch(row + offset);
}

void GatherPlain(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
                 size_t ahead) {
  const size_t primed = std::min(ahead, rows.size());
  for (size_t i = 0; i < primed; ++i) PrefetchRow(rows[i], row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) PrefetchRow(rows[i + ahead], row_bytes);
    std::memcpy(out + i * row_bytes, rows[i], row_bytes);
  }
}

#if defined(__x86_64__)

__m512i* Vector(std::byte* bytes) { return static_cast<__m512i*>(static_cast<void*>(bytes)); }
const __m512i* Vector(const std::byte* bytes) {
  return static_cast<const __m512i*>(static_cast<const void*>(bytes));
}

template <bool kStreaming>
__attribute__((target("avx512f"))) void GatherWide(std::span<const std::byte* const> rows,
                                                   size_t row_bytes, std::byte* out, size_t ahead) {
  const size_t primed = std::min(ahead, rows.size());
  for (size_t i = 0; i < primed; ++i) PrefetchRow(rows[i], row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) PrefetchRow(rows[i + ahead], row_bytes);
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

bool HasWideVectors() { return __builtin_cpu_supports("avx512f") != 0; }

#else

bool HasWideVectors() { return false; }

#endif

}  // namespace

std::vector<GatherShape> GatherShapes() {
  std::vector<GatherShape> shapes;
  for (const size_t ahead : {0, 4, 8, 16, 32, 64}) {
    shapes.push_back({.ahead = ahead, .streaming = false});
    if (HasWideVectors()) shapes.push_back({.ahead = ahead, .streaming = true});
  }
  return shapes;
}

void Gather(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
            GatherShape shape) {
#if defined(__x86_64__)
  if (HasWideVectors()) {
    if (shape.streaming) return GatherWide<true>(rows, row_bytes, out, shape.ahead);
    return GatherWide<false>(rows, row_bytes, out, shape.ahead);
  }
#endif
  GatherPlain(rows, row_bytes, out, shape.ahead);
}

}  // namespace hps::bench
