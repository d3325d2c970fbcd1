#include "python/csrc/torch_abi.h"

#include <dlfcn.h>

#include <string>

namespace hps::python {
namespace {

// Functions of a library that is loaded.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}

  template <typename Function>
  void Find(const char* name, Function*& function) {
    void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    if (found == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function*>(found);
  }

  bool is_loaded() const { return handle_ != nullptr; }
  const std::string& missing() const { return missing_; }

 private:
  void* const handle_;  // kept: its functions are called until the process ends
  std::string missing_;
};

}  // namespace

absl::StatusOr<TorchFunctions> FindTorch() {
  Library cpu("libtorch_cpu.so");
  if (!cpu.is_loaded()) return absl::FailedPreconditionError("PyTorch is not loaded");
  TorchFunctions torch{};
  cpu.Find("aoti_torch_get_data_ptr", torch.data_of);
  cpu.Find("aoti_torch_get_numel", torch.element_count_of);
  cpu.Find("aoti_torch_get_dim", torch.dim_of);
  cpu.Find("aoti_torch_get_sizes", torch.sizes_of);
  cpu.Find("aoti_torch_get_dtype", torch.dtype_of);
  cpu.Find("aoti_torch_is_contiguous", torch.is_contiguous);
  cpu.Find("aoti_torch_get_device_type", torch.device_type_of);
  cpu.Find("aoti_torch_get_device_index", torch.device_index_of);
  cpu.Find("aoti_torch_delete_tensor_object", torch.delete_tensor);
  cpu.Find("aoti_torch_empty_strided", torch.new_tensor);
  cpu.Find("aoti_torch__reinterpret_tensor", torch.new_view);
  cpu.Find("torch_list_size", torch.list_size);
  cpu.Find("torch_list_get_item", torch.list_item);
  cpu.Find("torch_list_push_back", torch.list_append);
  cpu.Find("torch_new_list_reserve_size", torch.new_list);
  cpu.Find("torch_delete_list", torch.delete_list);
  cpu.Find("torch_string_length", torch.string_length);
  cpu.Find("torch_string_c_str", torch.string_text);
  cpu.Find("torch_delete_string", torch.delete_string);
  cpu.Find("aoti_torch_library_init_impl", torch.new_library);
  cpu.Find("torch_library_impl", torch.add_kernel);
  cpu.Find("aoti_torch_dtype_int64", torch.int64_type);
  cpu.Find("aoti_torch_dtype_uint64", torch.uint64_type);
  cpu.Find("aoti_torch_dtype_int32", torch.int32_type);
  cpu.Find("aoti_torch_dtype_uint32", torch.uint32_type);
  cpu.Find("aoti_torch_dtype_float32", torch.float32_type);
  cpu.Find("aoti_torch_device_type_cuda", torch.cuda_type);
  if (!cpu.missing().empty()) {
    return absl::FailedPreconditionError(
        "PyTorch 2.10 or later is needed: this one has no function " + cpu.missing());
  }
  Library("libtorch_cuda.so").Find("aoti_torch_get_current_cuda_stream", torch.current_stream);
  return torch;
}

}  // namespace hps::python
