// The operators of hps.torch, torch.ops.hps.lookup and its variants, on PyTorch's stable C
// interface. hps/_torch.py declares their schemas and has what torch.compile needs of them.
//
// PyTorch calls a kernel without the GIL. One call is one lookup, of all its tables.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nanobind/nanobind.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/operator_lookup.h"
#include "python/csrc/torch_abi.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

// What a call needs of the process; set once, before the kernels are known to PyTorch.
struct Operators {
  TorchFunctions torch{};
  PyObject* finder = nullptr;
};

Operators& TheOperators() {
  static Operators operators;
  return operators;
}

const TorchFunctions& Torch() { return TheOperators().torch; }

struct DeleteTensor {
  void operator()(TorchTensor* tensor) const { Torch().delete_tensor(tensor); }
};
using Tensor = std::unique_ptr<TorchTensor, DeleteTensor>;
struct DeleteList {
  void operator()(TorchList* list) const { Torch().delete_list(list); }
};
using List = std::unique_ptr<TorchList, DeleteList>;
struct DeleteString {
  void operator()(TorchString* text) const { Torch().delete_string(text); }
};

template <typename Handle>
Handle* AsHandle(TorchValue value) {
  return reinterpret_cast<Handle*>(value);
}

template <typename Handle>
TorchValue AsValue(Handle* handle) {
  return reinterpret_cast<TorchValue>(handle);
}

absl::Status Check(int32_t code, const char* what) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("PyTorch can't ", what));
}

// The arguments of a call, which it owns.
struct Arguments {
  std::vector<Tensor> keys;
  std::string source;
  std::string tables;
};

std::string TakeString(TorchValue value) {
  const std::unique_ptr<TorchString, DeleteString> handle(AsHandle<TorchString>(value));
  size_t length = 0;
  const char* text = nullptr;
  if (Torch().string_length(handle.get(), &length) != 0 ||
      Torch().string_text(handle.get(), &text) != 0)
    return {};
  return {text, length};
}

std::vector<Tensor> TakeTensors(TorchValue value) {
  const List list(AsHandle<TorchList>(value));
  size_t size = 0;
  if (Torch().list_size(list.get(), &size) != 0) return {};
  std::vector<Tensor> tensors;
  tensors.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    TorchValue item = 0;
    if (Torch().list_item(list.get(), i, &item) != 0) return {};
    tensors.emplace_back(AsHandle<TorchTensor>(item));
  }
  return tensors;
}

// A tensor whose memory a call reads or writes: aligned and without gaps.
struct PlainTensor {
  void* data = nullptr;
  size_t count = 0;
  ElementType type = ElementType::kOther;
  std::span<const int64_t> sizes;
  int32_t device_type = 0;
  int32_t device_index = 0;

  size_t bytes() const { return count * ElementTypeBytes(type); }
  bool IsBeside(const PlainTensor& other) const {
    return device_type == other.device_type && device_index == other.device_index;
  }
};

ElementType TypeOf(int32_t dtype) {
  const TorchFunctions& torch = Torch();
  if (dtype == torch.int64_type()) return ElementType::kInt64;
  if (dtype == torch.int32_type()) return ElementType::kInt32;
  if (dtype == torch.uint64_type()) return ElementType::kUint64;
  if (dtype == torch.uint32_type()) return ElementType::kUint32;
  if (dtype == torch.float32_type()) return ElementType::kFloat32;
  return ElementType::kOther;
}

absl::Status ReadTensor(const std::string& name, TorchTensor* tensor, PlainTensor& read) {
  const TorchFunctions& torch = Torch();
  bool is_contiguous = false;
  int32_t dtype = 0;
  int64_t dim = 0;
  int64_t count = 0;
  int64_t* sizes = nullptr;
  const int32_t failures = torch.is_contiguous(tensor, &is_contiguous) |
                           torch.dtype_of(tensor, &dtype) | torch.dim_of(tensor, &dim) |
                           torch.element_count_of(tensor, &count) | torch.sizes_of(tensor, &sizes) |
                           torch.data_of(tensor, &read.data) |
                           torch.device_type_of(tensor, &read.device_type) |
                           torch.device_index_of(tensor, &read.device_index);
  if (absl::Status status = Check(failures, "read a tensor"); !status.ok()) return status;
  read.count = static_cast<size_t>(count);
  read.type = TypeOf(dtype);
  read.sizes = {sizes, static_cast<size_t>(dim)};
  const std::string_view problem = is_contiguous ? MemoryProblem(read.data, read.count, read.type)
                                                 : "not contiguous; pass a tensor that is";
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", std::string(problem)));
}

absl::StatusOr<std::vector<PlainTensor>> ReadAllKeys(const Arguments& arguments) {
  std::vector<PlainTensor> read(arguments.keys.size());
  for (size_t i = 0; i < read.size(); ++i) {
    const std::string name =
        absl::StrCat("keys of table '", std::string(TableName(arguments.tables, i)), "'");
    absl::Status status = ReadTensor(name, arguments.keys[i].get(), read[i]);
    if (!status.ok()) return status;
    if (!read[i].IsBeside(read[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": on another device than the keys of the first table"));
    }
  }
  if (read.empty()) return absl::InvalidArgumentError("keys: expected a tensor of each table");
  return read;
}

// The shape [*sizes, dim], without gaps.
struct Shape {
  Shape(std::span<const int64_t> key_sizes, int64_t dim)
      : sizes(key_sizes.begin(), key_sizes.end()), strides(key_sizes.size() + 1, 1) {
    sizes.push_back(dim);
    for (size_t i = sizes.size() - 1; i > 0; --i)
      strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }

  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// A tensor that begins at an element of `block`.
absl::StatusOr<Tensor> View(const Tensor& block, const Shape& shape, int64_t offset) {
  TorchTensor* view = nullptr;
  absl::Status status =
      Check(Torch().new_view(block.get(), std::ssize(shape.sizes), shape.sizes.data(),
                             shape.strides.data(), offset, &view),
            "make a view");
  if (!status.ok()) return status;
  return Tensor(view);
}

// A new tensor on the device of the keys.
absl::StatusOr<Tensor> NewRows(const PlainTensor& like, const Shape& shape) {
  TorchTensor* rows = nullptr;
  absl::Status status =
      Check(Torch().new_tensor(std::ssize(shape.sizes), shape.sizes.data(), shape.strides.data(),
                               Torch().float32_type(), like.device_type, like.device_index, &rows),
            "make a tensor for the rows");
  if (!status.ok()) return status;
  return Tensor(rows);
}

absl::StatusOr<float*> DataOf(const Tensor& rows) {
  void* data = nullptr;
  absl::Status status = Check(Torch().data_of(rows.get(), &data), "read a tensor");
  if (!status.ok()) return status;
  return static_cast<float*>(data);
}

// Where a call's tensors are, with PyTorch's current stream there.
absl::StatusOr<OperatorMemory> MemoryOf(const PlainTensor& keys) {
  if (keys.device_type != Torch().cuda_type()) return OperatorMemory{};
  if (Torch().current_stream == nullptr)
    return absl::UnimplementedError("keys: this PyTorch has no CUDA");
  OperatorMemory memory{MemorySpace::kDevice};
  absl::Status status =
      Check(Torch().current_stream(keys.device_index, &memory.stream), "say its current stream");
  if (!status.ok()) return status;
  return memory;
}

// Writes the rows of all tables to `block`, one after the other.
absl::Status LookUpBlock(const OperatorTables& tables, const PlainTensor& place,
                         std::span<const OperatorKeys> keys, const Tensor& block) {
  const absl::StatusOr<OperatorMemory> memory = MemoryOf(place);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<float*> next = DataOf(block);
  if (!next.ok()) return next.status();
  std::vector<float*> rows(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    rows[i] = *next;
    *next += keys[i].count * tables.dims[i];
  }
  return LookUp(tables, keys, {.rows = rows}, *memory);
}

// A call: its tensors of keys, one for each table or one [tables, ...] for all, and the keys of
// each table in them.
struct Call {
  std::vector<PlainTensor> tensors;
  OperatorTables tables;
  std::vector<OperatorKeys> keys;
};

// Divides the one tensor of a call among its tables.
absl::Status Unstack(Call& call) {
  const PlainTensor& all = call.tensors[0];
  const std::span<const uint32_t> dims = call.tables.dims;
  const size_t count = dims.size();
  if (all.sizes.empty() || all.sizes[0] != std::ssize(dims)) {
    return absl::InvalidArgumentError(absl::StrCat("keys: expected those of ", count,
                                                   " tables, found ",
                                                   all.sizes.empty() ? 1 : all.sizes[0]));
  }
  if (std::ranges::count(dims, dims[0]) != std::ssize(dims))
    return absl::InvalidArgumentError("tables: stacked keys need tables of one dim");
  for (size_t i = 0; i < count; ++i) {
    const std::byte* const data =
        static_cast<const std::byte*>(all.data) + i * (all.bytes() / count);
    call.keys.push_back({data, all.count / count, all.type});
  }
  return absl::OkStatus();
}

// `may_be_stacked`: one tensor for several tables is [tables, ...].
absl::StatusOr<Call> ReadCall(const Arguments& arguments, bool may_be_stacked) {
  absl::StatusOr<std::vector<PlainTensor>> tensors = ReadAllKeys(arguments);
  if (!tensors.ok()) return tensors.status();
  Call call{.tensors = *std::move(tensors)};
  const PlainTensor& place = call.tensors[0];
  const int device = place.device_type == Torch().cuda_type() ? place.device_index : -1;
  absl::StatusOr<OperatorTables> tables =
      FindTables({arguments.source, arguments.tables, device, TheOperators().finder});
  if (!tables.ok()) return tables.status();
  call.tables = *std::move(tables);
  const size_t count = call.tables.dims.size();
  call.keys.reserve(count);
  if (may_be_stacked && call.tensors.size() == 1 && count > 1) {
    absl::Status status = Unstack(call);
    if (!status.ok()) return status;
    return call;
  }
  if (call.tensors.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: expected those of ", count, " tables, found ", call.tensors.size()));
  }
  for (const PlainTensor& tensor : call.tensors)
    call.keys.push_back({tensor.data, tensor.count, tensor.type});
  return call;
}

size_t ElementsOf(const Call& call) {
  size_t elements = 0;
  for (size_t i = 0; i < call.keys.size(); ++i)
    elements += call.keys[i].count * call.tables.dims[i];
  return elements;
}

absl::StatusOr<TorchValue> ListOf(std::vector<Tensor> tensors) {
  TorchList* made = nullptr;
  absl::Status status = Check(Torch().new_list(tensors.size(), &made), "make a list");
  if (!status.ok()) return status;
  List list(made);
  for (Tensor& tensor : tensors) {
    status = Check(Torch().list_append(list.get(), AsValue(tensor.release())), "fill a list");
    if (!status.ok()) return status;
  }
  return AsValue(list.release());
}

// hps::lookup: each table's rows are a tensor of their own, as compiled programs expect it.
absl::StatusOr<TorchValue> LookUpList(const Arguments& arguments) {
  const absl::StatusOr<Call> call = ReadCall(arguments, false);
  if (!call.ok()) return call.status();
  const PlainTensor& place = call->tensors[0];
  const absl::StatusOr<OperatorMemory> memory = MemoryOf(place);
  if (!memory.ok()) return memory.status();
  std::vector<Tensor> tensors;
  std::vector<float*> rows;
  for (size_t i = 0; i < call->keys.size(); ++i) {
    const uint32_t dim = call->tables.dims[i];
    absl::StatusOr<Tensor> tensor = NewRows(place, Shape(call->tensors[i].sizes, dim));
    if (!tensor.ok()) return tensor.status();
    const absl::StatusOr<float*> data = DataOf(*tensor);
    if (!data.ok()) return data.status();
    tensors.push_back(*std::move(tensor));
    rows.push_back(*data);
  }
  const absl::Status status = LookUp(call->tables, call->keys, {.rows = rows}, *memory);
  if (!status.ok()) return status;
  return ListOf(std::move(tensors));
}

bool Overlap(const PlainTensor& first, const PlainTensor& second) {
  const auto* const a = static_cast<const std::byte*>(first.data);
  const auto* const b = static_cast<const std::byte*>(second.data);
  return a < b + second.bytes() && b < a + first.bytes();
}

// Memory of the caller for the rows of a call, if it has given any, else new.
absl::StatusOr<Tensor> BlockFor(const Call& call, std::vector<Tensor> given) {
  const size_t elements = ElementsOf(call);
  if (given.empty()) return NewRows(call.tensors[0], Shape({}, static_cast<int64_t>(elements)));
  if (given.size() > 1)
    return absl::InvalidArgumentError("block: expected one tensor at most for the rows");
  PlainTensor block;
  absl::Status status = ReadTensor("block", given[0].get(), block);
  if (!status.ok()) return status;
  if (block.count != elements || block.type != ElementType::kFloat32 ||
      !block.IsBeside(call.tensors[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat("block: expected ", elements, " float32 elements on the device of the keys"));
  }
  for (const PlainTensor& keys : call.tensors) {
    if (Overlap(block, keys)) return absl::InvalidArgumentError("block: overlaps the keys");
  }
  return std::move(given[0]);
}

// hps::lookup_shared: the rows of all tables are views of one tensor, which takes less time.
absl::StatusOr<TorchValue> LookUpShared(const Arguments& arguments, std::vector<Tensor> given) {
  const absl::StatusOr<Call> call = ReadCall(arguments, true);
  if (!call.ok()) return call.status();
  const absl::StatusOr<Tensor> block = BlockFor(*call, std::move(given));
  if (!block.ok()) return block.status();
  const absl::Status status = LookUpBlock(call->tables, call->tensors[0], call->keys, *block);
  if (!status.ok()) return status;
  std::vector<Tensor> views;
  views.reserve(call->tensors.size());
  size_t offset = 0;
  for (size_t i = 0; i < call->tensors.size(); ++i) {
    const uint32_t dim = call->tables.dims[i];
    absl::StatusOr<Tensor> view =
        View(*block, Shape(call->tensors[i].sizes, dim), static_cast<int64_t>(offset));
    if (!view.ok()) return view.status();
    views.push_back(*std::move(view));
    offset += call->keys[i].count * dim;
  }
  return ListOf(std::move(views));
}

// hps::lookup_stacked: keys [tables, ...], as many of each; rows [tables, ..., dim].
absl::StatusOr<TorchValue> LookUpStacked(const Arguments& arguments) {
  const absl::StatusOr<Call> call = ReadCall(arguments, true);
  if (!call.ok()) return call.status();
  const PlainTensor& all = call->tensors[0];
  absl::StatusOr<Tensor> rows = NewRows(all, Shape(all.sizes, call->tables.dims[0]));
  if (!rows.ok()) return rows.status();
  const absl::Status status = LookUpBlock(call->tables, all, call->keys, *rows);
  if (!status.ok()) return status;
  return AsValue(rows->release());
}

// Leaves the result on the stack, or the error with PyTorch, which makes a RuntimeError of it.
// hps._torch tells by the beginning of the text that it is one of hps, and makes it an exception of
// hps where no compiled program lies between.
void Finish(absl::StatusOr<TorchValue> result, TorchValue* stack) {
  if (result.ok()) {
    stack[0] = *result;
    return;
  }
  throw std::runtime_error(absl::StrCat("hps: ", absl::StatusCodeToString(result.status().code()),
                                        ": ", std::string(result.status().message())));
}

void ListKernel(TorchValue* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Finish(LookUpList({TakeTensors(stack[0]), TakeString(stack[1]), TakeString(stack[2])}), stack);
}

void SharedKernel(TorchValue* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  std::vector<Tensor> block = TakeTensors(stack[1]);
  Finish(LookUpShared({TakeTensors(stack[0]), TakeString(stack[2]), TakeString(stack[3])},
                      std::move(block)),
         stack);
}

void StackedKernel(TorchValue* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments arguments{{}, TakeString(stack[1]), TakeString(stack[2])};
  arguments.keys.emplace_back(AsHandle<TorchTensor>(stack[0]));
  Finish(LookUpStacked(arguments), stack);
}

// Gives PyTorch the kernels of the operators, whose schemas it has. They last as long as the
// process, and so does `finder` (operator_lookup.h).
void RegisterTorch(nb::object finder) {
  TheOperators().torch = ValueOrRaise(FindTorch());
  TheOperators().finder = finder.release().ptr();
  for (const char* key : {"CPU", "CUDA"}) {
    TorchLibrary* library = nullptr;
    RaiseIfError(Check(Torch().new_library("hps", key, "hps", 0, &library), "make a library"));
    const auto add = [library](const char* name, TorchKernel* kernel) {
      RaiseIfError(
          Check(Torch().add_kernel(library, name, kernel, kTorchVersion), "register an operator"));
    };
    add("lookup", ListKernel);
    add("lookup_shared", SharedKernel);
    add("lookup_stacked", StackedKernel);
  }
}

}  // namespace

void BindTorch(nb::module_& module) {
  module.def("register_torch", RegisterTorch, nb::arg("finder"));
}

}  // namespace hps::python
