// Stands in for OpenVINO in the extension and in the program that tries networks, and loads it when
// a network is compiled.
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "network/cpu/openvino_network.h"
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

// The file that this function is in: the extension, or the program that tries networks, of which
// the dynamic linker knows only the name that it was started by.
std::string ThisFile() {
  Dl_info here{};
  // The address of a function as that of an object, which is how dladdr takes it.
  if (dladdr(reinterpret_cast<const void*>(&NotLoaded), &here) == 0) return {};
  std::string file = here.dli_fname;
  if (file.find('/') != std::string::npos) return file;
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).string();
}

// The library lies beside it.
absl::StatusOr<OpenvinoFunction*> Load() {
  const std::string file = ThisFile();
  if (file.empty()) return NotLoaded();
  const std::string path = file.substr(0, file.rfind('/') + 1) + "_openvino.so";
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
