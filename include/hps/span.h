// Borrowed memory whose type says where it is, so that the compiler refuses to mix host and device
// memory: HostSpan is std::span; DeviceSpan has a pointer and a size, but no element access.
//
// Neither owns the memory. It must stay valid until the call that it is passed to is done with it.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "hps/types.h"

namespace hps {

enum class MemorySpace { kHost, kDevice };

template <typename T>
using HostSpan = std::span<T>;

// `size` elements in device memory.
template <typename T>
class DeviceSpan {
 public:
  constexpr DeviceSpan() = default;
  constexpr DeviceSpan(T* data, size_t size) : data_(data), size_(size) {}

  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// HostSpan<T> or DeviceSpan<T>.
template <typename T, MemorySpace kSpace>
using SpanIn = std::conditional_t<kSpace == MemorySpace::kHost, HostSpan<T>, DeviceSpan<T>>;

// `row_count` rows of `row_bytes` bytes each. Row i starts at data + i * stride_bytes.
// REQUIRES: stride_bytes >= row_bytes.
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

// A CUDA stream of the caller, or none. Opaque, so that users of hps need no CUDA header.
struct Stream {
  // A cudaStream_t; cudaStreamLegacy for the default stream. Null = hps uses an internal stream:
  // inputs must be ready before the call, and outputs are complete on return.
  void* handle = nullptr;
};

}  // namespace hps
