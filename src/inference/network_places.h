// Where the dense network of a model runs: on GPUs that take it, and on the CPU.
//
// Each GPU has one network, whose weights all its sessions share. The CPU always has one as well:
// it runs what no GPU takes, and every batch for which a GPU fails.
//
// Rows of predictions stay in a device's memory (network/device_rows.h). All networks of the
// process share what a device has for them, as DeviceWishes says. A session has room for the rows
// of its largest batch, or its share of half of the bytes that other networks have left.
//
// AddDevices comes before the rest, which is thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "inference/network_runs.h"
#include "network/dense_network.h"

namespace hps {

// MakeDeviceDenseNetwork, or what a test has in its place.
using MakeOnDevice = std::function<absl::StatusOr<std::unique_ptr<DenseNetwork>>(
    const ModelNetwork& network, const DeviceDenseOptions& options)>;

struct DeviceWishes {
  std::vector<int> devices{};  // where the network runs if they take it; empty = the CPU alone
  uint64_t batch_max = 4096;   // samples of one run
  uint64_t session_count = 1;  // over all devices
  DenseMath math = DenseMath::kFloat32;
  uint64_t keys_max = 65'536;        // of a batch
  uint64_t call_keys_max = 262'144;  // of a lookup whose rows stay on a device, if that is more
  uint64_t table_count = 1;          // that the network reads
  uint64_t row_bytes = 0;            // of the widest of them
  // Bytes that a device has for the rows of predictions of all models; null: it does not say.
  std::function<uint64_t(int device)> row_bytes_max{};
  MakeOnDevice make = MakeDeviceDenseNetwork;
};

class NetworkPlaces {
 public:
  // `model`: its name, for the log.
  NetworkPlaces(std::string model, std::unique_ptr<DenseNetwork> on_cpu)
      : model_(std::move(model)), on_cpu_(std::move(on_cpu)) {}

  // Makes the network on each of the devices. If one does not take it or fails, one line of the log
  // says why, and that device's sessions run on the CPU. Errors: RESOURCE_EXHAUSTED (a device has
  // too little memory for the network or for the rows of its sessions; the message names it and the
  // settings to change).
  absl::Status AddDevices(const ModelNetwork& network, const DeviceWishes& wishes);

  // On this device if it has the network, else on the CPU; -1 = the CPU. A device that fails then
  // is logged, and the session runs on the CPU. Errors: RESOURCE_EXHAUSTED (the device has too
  // little memory, as of AddDevices), those of the CPU's DenseNetwork::NewSession; of a run: those
  // of the CPU's DenseSession::Run.
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession(int device);

  NetworkRuns runs() const;

 private:
  class Session;
  struct Counts {
    std::atomic<uint64_t> on_devices{0};
    std::atomic<uint64_t> on_cpu{0};
    std::atomic<uint64_t> device_failures{0};
  };

  const std::string model_;
  const std::unique_ptr<DenseNetwork> on_cpu_;
  struct Device {
    explicit Device(std::unique_ptr<DenseNetwork> made) : network(std::move(made)) {}

    const std::unique_ptr<DenseNetwork> network;
    // It did not answer in time when a session was made: the next ones do not wait for it as well.
    std::atomic<bool> hangs{false};
  };
  std::map<int, Device> on_devices_;
  Counts counts_;
};

}  // namespace hps
