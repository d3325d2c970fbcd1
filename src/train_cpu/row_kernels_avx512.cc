#include "train_cpu/row_kernels.h"

// Only g++ supports the pragmas below.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HPS_TRAIN_AVX512 1
#endif

#if defined(HPS_TRAIN_AVX512)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// All headers are included above, so that no shared inline function is compiled here with
// instructions that other machines lack.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw")
// The compiler's own header starts some results from a deliberately undefined value.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "train_cpu/row_kernel_steps.h"

namespace hps {
namespace {

struct Avx512Machine {
  static constexpr size_t kLanes = 16;
  using Vector = __m512;

  static Vector All(float value) { return _mm512_set1_ps(value); }
  static Vector Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
  static Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector Subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector Multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector Divide(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  static Vector Root(Vector a) { return _mm512_sqrt_ps(a); }
  static Vector Least(Vector a, Vector b) { return _mm512_min_ps(a, b); }
  static Vector Largest(Vector a, Vector b) { return _mm512_max_ps(a, b); }
};

constexpr RowKernels kKernels = KernelsOf<Avx512Machine>();

}  // namespace

#pragma GCC diagnostic pop
#pragma GCC pop_options

const RowKernels* Avx512RowKernels() {
  static const bool runs =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return runs ? &kKernels : nullptr;
}

}  // namespace hps

#else

namespace hps {

const RowKernels* Avx512RowKernels() { return nullptr; }

}  // namespace hps

#endif
