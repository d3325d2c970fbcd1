#include "train_cpu/row_kernels.h"

// Only g++ supports the pragmas below.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HPS_TRAIN_AVX2 1
#endif

#if defined(HPS_TRAIN_AVX2)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// All headers are included above, so that no shared inline function is compiled here with
// instructions that other machines lack.
#pragma GCC push_options
#pragma GCC target("avx2")

#include "train_cpu/row_kernel_steps.h"

namespace hps {
namespace {

struct Avx2Machine {
  static constexpr size_t kLanes = 8;
  using Vector = __m256;

  static Vector All(float value) { return _mm256_set1_ps(value); }
  static Vector Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  static Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector Subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector Multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector Divide(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  static Vector Root(Vector a) { return _mm256_sqrt_ps(a); }
  static Vector Least(Vector a, Vector b) { return _mm256_min_ps(a, b); }
  static Vector Largest(Vector a, Vector b) { return _mm256_max_ps(a, b); }
};

constexpr RowKernels kKernels = KernelsOf<Avx2Machine>();

}  // namespace

#pragma GCC pop_options

const RowKernels* Avx2RowKernels() {
  static const bool runs = __builtin_cpu_supports("avx2") != 0;
  return runs ? &kKernels : nullptr;
}

}  // namespace hps

#else

namespace hps {

const RowKernels* Avx2RowKernels() { return nullptr; }

}  // namespace hps

#endif
