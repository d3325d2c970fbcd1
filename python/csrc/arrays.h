// Memory of arrays that Python code passes: NumPy arrays and everything else that has DLPack or the
// buffer protocol, without a copy.
//
// A caller that knows where its array lies passes a tuple (address, element count, dtype name)
// instead, which is faster for PyTorch than DLPack; it keeps the array alive for the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hps/types.h"
#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/string_view.h"
#include "nanobind/stl/tuple.h"

namespace hps::python {

enum class ElementType {
  kInt64,
  kUint64,
  kInt32,
  kUint32,
  kFloat32,
  kFloat16,
  kBfloat16,
  kUint8,
  kOther
};

// A contiguous array in host memory.
struct Array {
  void* data = nullptr;
  size_t size = 0;  // elements
  ElementType type = ElementType::kOther;
  std::vector<size_t> shape{};  // empty for a tuple
  std::string other_type{};     // the name of a type that is kOther
  nanobind::ndarray<nanobind::ro> owner{};

  std::string TypeName() const;
};

std::string_view ElementTypeName(ElementType type);
size_t ElementTypeBytes(ElementType type);

// Why `count` elements can't be read or written at `data`; empty if they can.
std::string_view MemoryProblem(const void* data, size_t count, ElementType type);

// How messages name an array: "keys of table 'user'".
struct Argument {
  const char* name;
  std::string_view table{};

  std::string Text() const;
};

// Raises hps.InvalidArgumentError (not contiguous, not aligned, without memory, not in host memory,
// not writable but `writable`), TypeError (no array).
Array ReadArray(nanobind::handle object, const Argument& argument, bool writable);

// Reads keys: integers of any width, contiguous or not. Contiguous int64 and uint64 are used where
// they lie; other keys are copied to `widened`, which must outlive the result. Raises as ReadArray.
std::span<const Key> ReadKeys(nanobind::handle object, const Argument& argument,
                              std::vector<Key>& widened, Array& array);

// The bytes and dtype of rows [n, dim] for `key_count` keys. Float elements only; uint16 is
// bfloat16. hps._admin has cast float64. Raises hps.InvalidArgumentError.
struct RowArray {
  std::span<const std::byte> bytes;
  uint32_t dim = 0;
  Dtype dtype = Dtype::kFloat32;
};
RowArray ReadRows(const Array& array, size_t key_count);

}  // namespace hps::python
