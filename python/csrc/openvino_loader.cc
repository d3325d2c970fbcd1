// Stands in for OpenVINO in the extension, and loads it when a network is compiled.
#include <dlfcn.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dense_cpu/openvino_network.h"
#include "python/csrc/openvino_engine.h"

namespace hps {
namespace {

using python::OpenvinoFunction;

absl::Status NotLoaded() {
  const char* const reason = dlerror();
  return absl::UnimplementedError(
      absl::StrCat("dense networks need OpenVINO, which could not be loaded (pip install "
                   "'hps[openvino]'): ",
                   reason == nullptr ? "no reason is known" : reason));
}

// The library lies beside the extension.
absl::StatusOr<OpenvinoFunction*> Load() {
  Dl_info here{};
  // The address of a function as that of an object, which is how dladdr takes it.
  if (dladdr(reinterpret_cast<const void*>(&NotLoaded), &here) == 0) return NotLoaded();
  const std::string extension = here.dli_fname;
  const std::string path = extension.substr(0, extension.rfind('/') + 1) + "_openvino.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotLoaded();
  void* const found = dlsym(library, python::kOpenvinoFunction);
  if (found == nullptr) return NotLoaded();
  return reinterpret_cast<OpenvinoFunction* (*)()>(found)();
}

}  // namespace

// Tries again after a failure, so that OpenVINO can be installed meanwhile.
absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeOpenvinoNetwork(const OnnxGraph& graph,
                                                                  const std::string& onnx,
                                                                  const DenseOptions& options) {
  absl::StatusOr<OpenvinoFunction*> engine = Load();
  if (!engine.ok()) return engine.status();
  return (*engine)(graph, onnx, options);
}

}  // namespace hps
