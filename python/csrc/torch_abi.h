// The functions of PyTorch's stable C interface that hps calls, as PyTorch 2.10 and later have
// them. They are found in the libraries that the process has loaded: nothing of PyTorch is there
// when hps is built, and one binary serves all these versions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace hps::python {

struct TorchTensor;
struct TorchList;
struct TorchString;
struct TorchLibrary;

// A value of an operator's argument or result: a number, or a pointer to one of the above, which
// the receiver owns.
using TorchValue = uint64_t;

// Takes its arguments from the stack and leaves its results there. Throws std::runtime_error.
using TorchKernel = void(TorchValue* stack, uint64_t argument_count, uint64_t result_count);

// 0 is success. A function that makes a handle gives it to the caller.
struct TorchFunctions {
  int32_t (*data_of)(TorchTensor*, void** data);
  int32_t (*element_count_of)(TorchTensor*, int64_t* count);
  int32_t (*dim_of)(TorchTensor*, int64_t* dim);
  int32_t (*sizes_of)(TorchTensor*, int64_t** sizes);  // the tensor's own memory
  int32_t (*dtype_of)(TorchTensor*, int32_t* dtype);
  int32_t (*is_contiguous)(TorchTensor*, bool* is_contiguous);
  int32_t (*device_type_of)(TorchTensor*, int32_t* type);
  int32_t (*device_index_of)(TorchTensor*, int32_t* index);
  int32_t (*delete_tensor)(TorchTensor*);
  int32_t (*new_tensor)(int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                        int32_t device_type, int32_t device_index, TorchTensor** tensor);
  int32_t (*new_view)(TorchTensor*, int64_t dim, const int64_t* sizes, const int64_t* strides,
                      int64_t offset, TorchTensor** view);
  int32_t (*list_size)(TorchList*, size_t* size);
  int32_t (*list_item)(TorchList*, size_t index, TorchValue* item);
  int32_t (*list_append)(TorchList*, TorchValue item);
  int32_t (*new_list)(size_t size_to_reserve, TorchList** list);
  int32_t (*delete_list)(TorchList*);
  int32_t (*string_length)(TorchString*, size_t* length);
  int32_t (*string_text)(TorchString*, const char** text);
  int32_t (*delete_string)(TorchString*);
  int32_t (*new_library)(const char* name_space, const char* dispatch_key, const char* file,
                         uint32_t line, TorchLibrary** library);
  int32_t (*add_kernel)(TorchLibrary*, const char* name, TorchKernel* kernel, uint64_t version);
  int32_t (*int64_type)();
  int32_t (*uint64_type)();
  int32_t (*int32_type)();
  int32_t (*uint32_type)();
  int32_t (*float32_type)();
  int32_t (*cuda_type)();
  // Null in a PyTorch without CUDA.
  int32_t (*current_stream)(int32_t device_index, void** stream);
};

// The version of PyTorch whose conventions these are: 2.10.
inline constexpr uint64_t kTorchVersion = 0x020a000000000000;

// Errors: FAILED_PRECONDITION (PyTorch is not loaded, or older than 2.10).
absl::StatusOr<TorchFunctions> FindTorch();

}  // namespace hps::python
