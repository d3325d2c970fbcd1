// Borrowed memory whose type says where it lies, so that the compiler refuses to mix host and
// device.
//
// A Span owns nothing: what it points to must outlive the call that it is passed to.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "hps/types.h"

namespace hps {

enum class MemorySpace { kHost, kDevice };

// `size` elements of T in one memory space. Elements are reached only through a host span.
template <typename T, MemorySpace kSpace>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, size_t size) : data_(data), size_(size) {}
  // A host span is what std::span is; the conversion from it is for the host only.
  template <typename Range>
  requires(kSpace == MemorySpace::kHost && std::is_constructible_v<std::span<T>, Range&&>)
      // NOLINTNEXTLINE(google-explicit-constructor): reads like std::span
      constexpr Span(Range&& range) {
    const std::span<T> elements(range);
    data_ = elements.data();
    size_ = elements.size();
  }

  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](size_t i) const requires(kSpace == MemorySpace::kHost) {
    return data_[i];
  }
  constexpr std::span<T> elements() const requires(kSpace == MemorySpace::kHost) {
    return {data_, size_};
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
using HostSpan = Span<T, MemorySpace::kHost>;
template <typename T>
using DeviceSpan = Span<T, MemorySpace::kDevice>;

// `row_count` rows of `row_bytes` bytes each, the first bytes of two neighbours `stride_bytes`
// apart. REQUIRES: stride_bytes >= row_bytes.
template <MemorySpace kSpace>
struct RowsView {
  std::byte* data = nullptr;
  size_t row_count = 0;
  size_t row_bytes = 0;
  size_t stride_bytes = 0;

  std::byte* row(size_t i) const { return data + i * stride_bytes; }
};

using HostRows = RowsView<MemorySpace::kHost>;
using DeviceRows = RowsView<MemorySpace::kDevice>;

// A caller's CUDA stream, or "none". Opaque, so that no CUDA header is needed to use hps.
struct Stream {
  // A cudaStream_t; cudaStreamLegacy for the default stream. Null = hps uses one of its own, which
  // nobody else can order work with, nor wait for: what it reads must be ready before the call, and
  // what it writes is complete on return.
  void* handle = nullptr;
};

}  // namespace hps
