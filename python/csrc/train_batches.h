// What train.cc and train_ranks.cc share: batches from addresses, and arrays that own vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"
#include "train/embedding_shard.h"

namespace hps::python {

template <typename T>
std::span<T> SpanAt(nanobind::handle address, nanobind::handle size) {
  return {reinterpret_cast<T*>(nanobind::cast<uintptr_t>(address)), nanobind::cast<size_t>(size)};
}

// From seven items of a tuple: keys, key count, offsets, offset count, weights, weight count,
// pooling.
inline BagBatch BatchOf(const nanobind::tuple& t, size_t first) {
  return {.keys = SpanAt<const Key>(t[first], t[first + 1]),
          .offsets = SpanAt<const int64_t>(t[first + 2], t[first + 3]),
          .weights = SpanAt<const float>(t[first + 4], t[first + 5]),
          .pooling = static_cast<Pooling>(nanobind::cast<int>(t[first + 6]))};
}

template <typename T>
nanobind::object ToNumpy(std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = kept->data();
  const size_t size = kept->size();
  nanobind::capsule owner(kept.release(), [](void* vector) noexcept {
    const std::unique_ptr<std::vector<T>> last(static_cast<std::vector<T>*>(vector));
  });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data, {size}, owner));
}

}  // namespace hps::python
