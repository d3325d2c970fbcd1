// NumPy arrays that own vectors, for train.cc and train_steps.cc.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"

namespace hps::python {

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
