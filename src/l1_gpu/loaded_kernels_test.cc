#include "gpu/kernel_launch.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"

namespace hps {
namespace {

template <typename Function>
void FindInDriver(const char* name, Function** function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    std::cerr << "the driver has no " << name << "\n";
    std::exit(1);
  }
  *function = reinterpret_cast<Function*>(found);
}

// Functions of the driver, whose library is not linked.
struct Driver {
  Driver() {
    FindInDriver("cuKernelGetLibrary", &library_of);
    FindInDriver("cuLibraryGetModule", &module_of);
    FindInDriver("cuModuleGetFunctionCount", &count_functions);
    FindInDriver("cuModuleEnumerateFunctions", &list_functions);
    FindInDriver("cuFuncIsLoaded", &state_of);
  }
  decltype(cuKernelGetLibrary)* library_of;
  decltype(cuLibraryGetModule)* module_of;
  decltype(cuModuleGetFunctionCount)* count_functions;
  decltype(cuModuleEnumerateFunctions)* list_functions;
  decltype(cuFuncIsLoaded)* state_of;
};

// All kernels of the source file of `kernel`. Looking them up by name would load them.
std::vector<CUfunction> KernelsOfSameModule(const Driver& driver, const void* kernel) {
  cudaKernel_t handle = nullptr;
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  unsigned count = 0;
  if (cudaGetKernel(&handle, kernel) != cudaSuccess ||
      driver.library_of(&library, handle) != CUDA_SUCCESS ||
      driver.module_of(&module, library) != CUDA_SUCCESS ||
      driver.count_functions(&count, module) != CUDA_SUCCESS) {
    return {};
  }
  std::vector<CUfunction> functions(count);
  if (driver.list_functions(functions.data(), count, module) != CUDA_SUCCESS) return {};
  return functions;
}

bool IsLoaded(const Driver& driver, CUfunction function) {
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  return driver.state_of(&state, function) == CUDA_SUCCESS &&
         state == CU_FUNCTION_LOADING_STATE_LOADED;
}

// In its own process, where nothing was launched before. Returns the exit status.
int MakeACacheAndLookAtTheKernels() {
  const auto cache = MakeGpuCache({.bytes_max = 1 << 20, .calls_max = 1, .call_keys_max = 10});
  if (!cache.ok()) return 1;
  const Driver driver;
  size_t looked_at = 0;
  size_t not_loaded = 0;
  for (const LaunchedKernel* kernel = LaunchedKernel::first(); kernel != nullptr;
       kernel = kernel->next()) {
    const std::vector<CUfunction> functions = KernelsOfSameModule(driver, kernel->kernel());
    if (functions.empty()) return 1;
    looked_at += functions.size();
    for (CUfunction function : functions) not_loaded += IsLoaded(driver, function) ? 0 : 1;
  }
  std::cerr << not_loaded << " of " << looked_at << " are not loaded\n";
  return looked_at > 0 && not_loaded == 0 ? 0 : 1;
}

using LoadedKernelsDeathTest = GpuTest;

// Catches: the first lookup of a shape loads its kernel, and waits for the device.
TEST_F(LoadedKernelsDeathTest, ANewCacheHasLoadedTheKernelsOfAllShapes) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(MakeACacheAndLookAtTheKernels()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hps
