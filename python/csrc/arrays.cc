#include "python/csrc/arrays.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "python/csrc/errors.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

struct NamedType {
  ElementType type;
  std::string_view name;
  nb::dlpack::dtype_code code;
  uint8_t bits;
};

using Code = nb::dlpack::dtype_code;
constexpr std::array<NamedType, 8> kTypes = {{
    {ElementType::kInt64, "int64", Code::Int, 64},
    {ElementType::kUint64, "uint64", Code::UInt, 64},
    {ElementType::kInt32, "int32", Code::Int, 32},
    {ElementType::kUint32, "uint32", Code::UInt, 32},
    {ElementType::kFloat32, "float32", Code::Float, 32},
    {ElementType::kFloat16, "float16", Code::Float, 16},
    {ElementType::kBfloat16, "bfloat16", Code::Bfloat, 16},
    {ElementType::kUint8, "uint8", Code::UInt, 8},
}};

// uint16 is how NumPy holds bfloat16.
ElementType TypeOf(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return ElementType::kOther;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::UInt && dtype.bits == 16) return ElementType::kBfloat16;
  const auto* const found = std::ranges::find_if(
      kTypes, [&](const NamedType& type) { return type.code == code && type.bits == dtype.bits; });
  return found == kTypes.end() ? ElementType::kOther : found->type;
}

// "float64".
std::string NameOf(nb::dlpack::dtype dtype) {
  constexpr std::array<std::string_view, 7> kKinds = {"int",    "uint",    "float", "opaque",
                                                      "bfloat", "complex", "bool"};
  const std::string_view kind = dtype.code < kKinds.size() ? kKinds[dtype.code] : "type";
  return absl::StrCat(std::string(kind),
                      kind == "bool" ? std::string() : std::to_string(dtype.bits));
}

bool IsContiguous(const nb::ndarray<nb::ro>& array) {
  if (array.size() == 0) return true;
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

// The fields of a numpy.ndarray and of its dtype, as every version of NumPy from 1.7 on has them:
// they are a part of its binary interface. Read in place they cost a hundredth of DLPack.
struct NumpyArray {
  PyObject head;
  void* data;
  int dim;
  const intptr_t* sizes;
  const intptr_t* strides;
  PyObject* base;
  const struct NumpyDtype* dtype;
  int flags;
};
struct NumpyDtype {
  PyObject head;
  PyTypeObject* scalar_type;
  char kind;
  char letter;
  char byte_order;
  char unused;
  int number;
};
constexpr int kNumpyIsPlain = 0x1 | 0x100;  // C order without gaps, aligned
constexpr int kNumpyIsWritable = 0x400;

// The type numpy.ndarray.
const PyTypeObject* NumpyType() {
  static PyObject* const type = [] {
    const nb::object numpy = nb::module_::import_("numpy");
    return nb::object(numpy.attr("ndarray")).release().ptr();  // for as long as the process
  }();
  return reinterpret_cast<const PyTypeObject*>(type);
}

ElementType NumpyElement(const NumpyDtype& dtype) {
  // Letters of the C types. Two of them name integers of 64 bits.
  if (dtype.byte_order != '=' && dtype.byte_order != '|') return ElementType::kOther;
  switch (dtype.letter) {
    case 'l':
    case 'q':
      return ElementType::kInt64;
    case 'L':
    case 'Q':
      return ElementType::kUint64;
    case 'i':
      return ElementType::kInt32;
    case 'I':
      return ElementType::kUint32;
    case 'f':
      return ElementType::kFloat32;
    case 'B':
      return ElementType::kUint8;
    default:
      return ElementType::kOther;
  }
}

// Reads a plain numpy.ndarray of a usual type; false for everything else.
bool ReadNumpy(nb::handle object, bool writable, Array& array) {
  if (object.type().ptr() != reinterpret_cast<const PyObject*>(NumpyType())) return false;
  const auto& numpy = *reinterpret_cast<const NumpyArray*>(object.ptr());
  const int wanted = kNumpyIsPlain | (writable ? kNumpyIsWritable : 0);
  if ((numpy.flags & wanted) != wanted) return false;
  array.type = NumpyElement(*numpy.dtype);
  if (array.type == ElementType::kOther) return false;
  array.data = numpy.data;
  array.size = 1;
  for (int i = 0; i < numpy.dim; ++i) {
    array.shape.push_back(static_cast<size_t>(numpy.sizes[i]));
    array.size *= array.shape.back();
  }
  return true;
}

// Appends the elements of an array with gaps, or in another order, in C order.
template <typename T>
void Gather(const nb::ndarray<nb::ro>& array, std::vector<Key>& keys) {
  std::vector<size_t> at(array.ndim(), 0);
  const auto* next = static_cast<const std::byte*>(array.data());
  for (Key& key : keys) {
    T element;
    std::memcpy(&element, next, sizeof(T));
    key = static_cast<Key>(element);
    for (size_t i = array.ndim(); i-- > 0;) {
      const int64_t stride = array.stride(i) * static_cast<int64_t>(sizeof(T));
      next += stride;
      if (++at[i] < array.shape(i)) break;
      next -= stride * static_cast<int64_t>(array.shape(i));
      at[i] = 0;
    }
  }
}

// The elements of an array of integers as keys; false for other elements.
bool GatherKeys(const nb::ndarray<nb::ro>& array, std::vector<Key>& keys) {
  const nb::dlpack::dtype type = array.dtype();
  const bool is_signed = static_cast<Code>(type.code) == Code::Int;
  if (type.lanes != 1 || (!is_signed && static_cast<Code>(type.code) != Code::UInt)) return false;
  keys.resize(array.size());
  switch (type.bits) {
    case 8:
      is_signed ? Gather<int8_t>(array, keys) : Gather<uint8_t>(array, keys);
      return true;
    case 16:
      is_signed ? Gather<int16_t>(array, keys) : Gather<uint16_t>(array, keys);
      return true;
    case 32:
      is_signed ? Gather<int32_t>(array, keys) : Gather<uint32_t>(array, keys);
      return true;
    case 64:
      Gather<int64_t>(array, keys);
      return true;
    default:
      return false;
  }
}

void RequireMemory(const Array& array, const Argument& argument) {
  const std::string_view problem = MemoryProblem(array.data, array.size, array.type);
  if (!problem.empty()) RaiseInvalid(absl::StrCat(argument.Text(), ": ", std::string(problem)));
}

Array ReadTuple(nb::handle object, const Argument& argument) {
  const auto parts = nb::cast<std::tuple<uintptr_t, size_t, std::string_view>>(object);
  Array array;
  array.data = reinterpret_cast<void*>(std::get<0>(parts));
  array.size = std::get<1>(parts);
  const auto* const found = std::ranges::find(kTypes, std::get<2>(parts), &NamedType::name);
  array.type = found == kTypes.end() ? ElementType::kOther : found->type;
  if (array.type == ElementType::kOther) array.other_type = std::get<2>(parts);
  RequireMemory(array, argument);
  return array;
}

// Reads an array that need not be contiguous or aligned.
void ReadOwner(nb::handle object, const Argument& argument, Array& array) {
  if (!nb::try_cast(object, array.owner, false)) {
    PyErr_Clear();
    RaiseType(object, argument.Text(), "an array of numbers in this machine's byte order");
  }
  const nb::ndarray<nb::ro>& owner = array.owner;
  if (owner.device_type() != nb::device::cpu::value)
    RaiseInvalid(argument.Text() + ": expected an array in host memory, found one on a device");
  array.data = const_cast<void*>(owner.data());
  array.size = owner.size();
  array.type = TypeOf(owner.dtype());
  if (array.type == ElementType::kOther) array.other_type = NameOf(owner.dtype());
  array.shape.clear();
  for (size_t i = 0; i < owner.ndim(); ++i) array.shape.push_back(owner.shape(i));
  if (array.data == nullptr && array.size > 0) RaiseInvalid(argument.Text() + ": it has no memory");
}

template <typename T>
std::span<const Key> Widen(const Array& array, std::vector<Key>& widened) {
  const std::span narrow(static_cast<const T*>(array.data), array.size);
  widened.assign(narrow.begin(), narrow.end());
  return widened;
}

}  // namespace

std::string Array::TypeName() const {
  return type == ElementType::kOther ? other_type : std::string(ElementTypeName(type));
}

std::string_view ElementTypeName(ElementType type) {
  const auto* const found = std::ranges::find(kTypes, type, &NamedType::type);
  return found == kTypes.end() ? "another type" : found->name;
}

size_t ElementTypeBytes(ElementType type) {
  const auto* const found = std::ranges::find(kTypes, type, &NamedType::type);
  return found == kTypes.end() ? 0 : found->bits / 8;
}

std::string_view MemoryProblem(const void* data, size_t count, ElementType type) {
  const size_t bytes = ElementTypeBytes(type);
  if (count == 0 || bytes == 0) return {};
  if (data == nullptr) return "it has no memory";
  return reinterpret_cast<uintptr_t>(data) % bytes == 0 ? "" : "not aligned";
}

std::string Argument::Text() const {
  return table.empty() ? std::string(name)
                       : absl::StrCat(name, " of table '", std::string(table), "'");
}

Array ReadArray(nb::handle object, const Argument& argument, bool writable) {
  if (nb::isinstance<nb::tuple>(object)) return ReadTuple(object, argument);
  Array array;
  if (ReadNumpy(object, writable, array)) return array;
  ReadOwner(object, argument, array);
  if (!IsContiguous(array.owner))
    RaiseInvalid(argument.Text() + ": not contiguous; pass an array that is");
  nb::ndarray<> as_writable;
  if (writable && !nb::try_cast(object, as_writable, false)) {
    PyErr_Clear();
    RaiseInvalid(argument.Text() + ": the array is read-only");
  }
  RequireMemory(array, argument);
  return array;
}

std::span<const Key> ReadKeys(nb::handle object, const Argument& argument,
                              std::vector<Key>& widened, Array& array) {
  if (nb::isinstance<nb::tuple>(object)) {
    array = ReadTuple(object, argument);
  } else if (!ReadNumpy(object, false, array)) {
    ReadOwner(object, argument, array);
  }
  const bool is_wide = array.type == ElementType::kInt64 || array.type == ElementType::kUint64;
  const bool is_owner = array.owner.is_valid();
  if (is_wide && (!is_owner || (IsContiguous(array.owner) &&
                                MemoryProblem(array.data, array.size, array.type).empty())))
    return {static_cast<const Key*>(array.data), array.size};
  if (!is_owner) {
    if (array.type == ElementType::kInt32) return Widen<int32_t>(array, widened);
    if (array.type == ElementType::kUint32) return Widen<uint32_t>(array, widened);
    if (array.type == ElementType::kUint8) return Widen<uint8_t>(array, widened);
  } else if (GatherKeys(array.owner, widened)) {
    array.data = widened.data();
    array.type = ElementType::kInt64;
    return widened;
  }
  RaiseInvalid(absl::StrCat(argument.Text(), ": expected integers, found ",
                            is_owner ? NameOf(array.owner.dtype()) : array.TypeName()));
}

RowArray ReadRows(const Array& array, size_t key_count) {
  if (array.shape.size() != 2 || array.shape[0] != key_count) {
    RaiseInvalid(absl::StrCat("rows: expected the shape [", key_count, ", dim], found ",
                              array.shape.size(), " dimensions with ", array.size, " elements"));
  }
  RowArray rows;
  rows.bytes = {static_cast<const std::byte*>(array.data),
                array.size * ElementTypeBytes(array.type)};
  rows.dim = static_cast<uint32_t>(std::min<size_t>(array.shape[1], UINT32_MAX));
  switch (array.type) {
    case ElementType::kFloat32:
      rows.dtype = Dtype::kFloat32;
      return rows;
    case ElementType::kFloat16:
      rows.dtype = Dtype::kFloat16;
      return rows;
    case ElementType::kBfloat16:
      rows.dtype = Dtype::kBfloat16;
      return rows;
    default:
      break;
  }
  RaiseInvalid(absl::StrCat("rows: expected float32, float64, float16 or bfloat16, found ",
                            array.TypeName()));
}

}  // namespace hps::python
