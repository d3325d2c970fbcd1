// The program of network_check.h. Apart from the check, so that what only checks links no engine.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/macros.h"
#include "inference/network_check.h"
#include "network/dense_network.h"

namespace hps {
namespace {

// Over all cores, if the process outlives the one that started it.
constexpr rlim_t kProcessorSecondsMax = 600;
// Of address space, beside what the network's own bytes may become.
constexpr rlim_t kMemoryMax = rlim_t{6} << 30;
constexpr rlim_t kMemoryPerByte = 16;
constexpr int64_t kBatch = 2;

void LimitMemory(size_t network_bytes) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = kMemoryMax + kMemoryPerByte * network_bytes;
  static_cast<void>(setrlimit(RLIMIT_AS, &limit));
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  static_cast<void>(setrlimit(RLIMIT_CORE, &no_core));
  const rlimit seconds{.rlim_cur = kProcessorSecondsMax, .rlim_max = kProcessorSecondsMax};
  static_cast<void>(setrlimit(RLIMIT_CPU, &seconds));
}

// Whether all dimensions but the batch are known.
bool IsSampleKnown(std::span<const OnnxValue> values) {
  return std::all_of(values.begin(), values.end(), [](const OnnxValue& value) {
    return std::none_of(value.dims.begin() + 1, value.dims.end(),
                        [](int64_t dim) { return dim < 0; });
  });
}

// Tensors of zeros for `values`. REQUIRES: IsSampleKnown.
struct Zeros {
  explicit Zeros(std::span<const OnnxValue> values) {
    for (const OnnxValue& value : values) {
      std::vector<int64_t>& of_value = dims.emplace_back(value.dims);
      size_t bytes = OnnxElementBytes(static_cast<int32_t>(value.element));
      for (size_t i = 0; i < of_value.size(); ++i) {
        if (i == 0) of_value[i] = kBatch;
        bytes *= static_cast<size_t>(of_value[i]);
      }
      memory.emplace_back(bytes / sizeof(double) + 1);
      tensors.push_back(
          {.data = std::as_writable_bytes(std::span(memory.back())).data(), .dims = of_value});
    }
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].dims = dims[i];
  }

  std::vector<std::vector<int64_t>> dims;
  std::vector<std::vector<double>> memory;
  std::vector<DenseTensor> tensors;
};

absl::Status CompileAndRun(const ModelNetwork& network) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DenseNetwork> dense, MakeDenseNetwork(network, {}));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DenseSession> session, dense->NewSession());
  // Which sizes the network takes where it leaves them open, only requests show.
  if (!IsSampleKnown(dense->inputs()) || !IsSampleKnown(dense->outputs())) return absl::OkStatus();
  const Zeros inputs(dense->inputs());
  const Zeros outputs(dense->outputs());
  return session->Run(inputs.tensors, outputs.tensors);
}

absl::Status ReadAndCheck() {
  struct stat file {};
  if (::fstat(STDIN_FILENO, &file) != 0 || file.st_size < 0 ||
      static_cast<uint64_t>(file.st_size) > kNetworkBytesMax) {
    return absl::InvalidArgumentError("standard input is not a network");
  }
  LimitMemory(static_cast<size_t>(file.st_size));
  ModelNetwork network;
  network.onnx.resize(static_cast<size_t>(file.st_size));
  for (size_t done = 0; done < network.onnx.size();) {
    const ssize_t count = ::pread(STDIN_FILENO, network.onnx.data() + done,
                                  network.onnx.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::DataLossError("standard input ended early");
    done += static_cast<size_t>(count);
  }
  const absl::Status status = CompileAndRun(network);
  // A build without an engine imports networks that another build serves.
  return absl::IsUnimplemented(status) ? absl::OkStatus() : status;
}

}  // namespace

int RunNetworkCheck() {
  absl::Status status;
  try {
    status = ReadAndCheck();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return EXIT_SUCCESS;
  const std::string why(status.message());
  const ssize_t written = ::write(STDOUT_FILENO, why.data(), why.size());
  static_cast<void>(written);  // the status says it, too
  return EXIT_FAILURE;
}

}  // namespace hps
