// For two_gpus_test.py: lets a real device of the server's process hang or fail, by files in the
// directory that HPS_DEVICE_FAULTS names. `hang` and `fail` hold a device's number; each is
// removed once it has been done.
//   hang: blocks occupy every multiprocessor of the device until there is a file `release`, and
//         half a minute at most. Whatever else is launched on it waits.
//   fail: a kernel traps, after which every call on that device fails for the rest of the process.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cuda_runtime_api.h"

namespace hps {
namespace {

constexpr unsigned kThreadsPerBlock = 1024;
constexpr uint64_t kHangMaxNs = 30'000'000'000;

__global__ void Occupy(const volatile int* released) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*released == 0 && now - begin < kHangMaxNs);
}

__global__ void Trap() { __trap(); }

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device faults: %s\n", cudaGetErrorString(error));
  std::abort();
}

class DeviceFaults {
 public:
  explicit DeviceFaults(std::filesystem::path directory) : directory_(std::move(directory)) {}

  [[noreturn]] void Run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // they are the server's
    for (;;) {
      if (int device = 0; Asked("hang", device)) Hang(device);
      if (int device = 0; Asked("fail", device)) Fail(device);
      if (released_ != nullptr && std::filesystem::exists(directory_ / "release")) *released_ = 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  bool Asked(const char* what, int& device) const {
    std::ifstream file(directory_ / what);
    return file && (file >> device);
  }

  void Hang(int device) {
    Check(cudaSetDevice(device));
    int multiprocessors = 0, threads = 0;
    Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    Check(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device));
    if (released_ == nullptr) {
      void* memory = nullptr;
      Check(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
      released_ = static_cast<int*>(memory);
    }
    *released_ = 0;
    cudaStream_t stream = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const unsigned blocks = static_cast<unsigned>(multiprocessors) *
                            (static_cast<unsigned>(threads) / kThreadsPerBlock);
    Occupy<<<blocks, kThreadsPerBlock, 0, stream>>>(released_);
    Check(cudaGetLastError());
    Done("hang");
  }

  void Fail(int device) {
    Check(cudaSetDevice(device));
    cudaStream_t stream = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Trap<<<1, 1, 0, stream>>>();
    if (cudaStreamSynchronize(stream) == cudaSuccess) std::abort();
    Done("fail");
  }

  void Done(const char* what) const { std::filesystem::remove(directory_ / what); }

  const std::filesystem::path directory_;
  volatile int* released_ = nullptr;
};

[[maybe_unused]] const bool kIsArmed = [] {
  if (const char* directory = std::getenv("HPS_DEVICE_FAULTS"); directory != nullptr)
    std::thread([path = std::filesystem::path(directory)] { DeviceFaults(path).Run(); }).detach();
  return true;
}();

}  // namespace
}  // namespace hps
