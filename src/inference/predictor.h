// A model's dense network, compiled: rows and other inputs of samples in, predictions out.
//
// The one implementation of predictions: the server, the Python package and others bring requests
// to it. A session pools rows over bags, puts requests of the same shape together, runs the network
// and cuts its outputs apart again. Rows that lie together in memory go into the network without a
// copy where each sample has the network's number of keys.
//
// A Predictor is thread-safe; a session is for one thread at a time, and ends before its Predictor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "inference/device_feed.h"
#include "inference/network_places.h"
#include "inference/prediction.h"
#include "network/dense_network.h"
#include "network/onnx/network_signature.h"

namespace hps {

class PredictionSession {
 public:
  // Samples of one run of the network from the host's memory; more are run in turn, so that a large
  // request takes no more memory than this many samples do.
  static constexpr uint64_t kSamplesMax = 4096;

  PredictionSession(const NetworkSignature& signature, std::unique_ptr<DenseSession> session)
      : signature_(signature), session_(std::move(session)), feed_(signature) {}

  // Fills in the outputs of all requests. REQUIRES: each fits the signature; rows are set where
  // there are keys. Errors: INTERNAL (the engine failed), RESOURCE_EXHAUSTED (no memory). Outputs
  // may be partly written then.
  absl::Status Run(std::span<const Prediction* const> requests);

  // Where rows can be looked up on the device that the network runs on; null: on the host only.
  RowRoom* row_room() { return session_->row_room(); }
  // There, as the session of the network has them. RunFromRows takes any number of samples.
  DeviceLimits device_limits() const { return session_->device_limits(); }

  // As Run, of rows in row_room(), which are pooled there. Errors: also DEADLINE_EXCEEDED and
  // UNAVAILABLE: the device failed, and the rows have to be looked up again for Run.
  absl::Status RunFromRows(std::span<const Prediction* const> requests);

  // RunFromRows of one request in parts: BeginParts, EnqueuePart of each part, EndParts
  // (DenseSession::BeginParts). A part is the request of samples [begin, begin + batch), with the
  // rows of its own; its outputs are not used. Errors: those of RunFromRows. They throw
  // std::bad_alloc.
  bool TakesParts(const Prediction& request);
  absl::Status BeginParts(const Prediction& request);
  absl::Status EnqueuePart(const Prediction& part, uint64_t begin);
  absl::Status EndParts(const Prediction& request);

 private:
  using Group = std::span<const Prediction* const>;

  // The values of an input for all samples of a run.
  struct Values {
    const std::byte* data = nullptr;
    size_t sample_bytes = 0;
    std::vector<int64_t> dims;  // [0] is the batch
  };

  absl::Status RunGroups(Group requests, absl::Status (PredictionSession::*run)(Group));
  absl::Status RunGroup(Group group);
  absl::Status RunGroupFromRows(Group group);
  void Prepare();
  void FeedFromRows(Group group, uint64_t begin, uint64_t count);
  std::span<std::byte* const> OutputsOf(Group group, uint64_t begin, uint64_t count);
  void Gather(size_t input, std::span<const Prediction* const> group);
  void GatherRows(size_t input, std::span<const Prediction* const> group);
  void GatherSent(size_t input, std::span<const Prediction* const> group);
  std::span<float> Own(size_t input, size_t bytes);
  absl::Status RunSamples(std::span<const Prediction* const> group, uint64_t begin, uint64_t count);
  std::byte* OutputOf(size_t output, std::span<const Prediction* const> group, uint64_t begin,
                      uint64_t count);
  void Deal(std::span<const Prediction* const> group, uint64_t begin, uint64_t count);

  const NetworkSignature& signature_;
  const std::unique_ptr<DenseSession> session_;
  std::vector<Values> values_;                   // by input
  std::vector<std::vector<float>> own_;          // by input: where values_ are not the caller's
  std::vector<std::vector<float>> own_outputs_;  // by output
  std::vector<DenseTensor> tensors_;
  DeviceFeed feed_;
  std::vector<FedInput> fed_;                // of a run from rows
  std::vector<std::byte*> output_pointers_;  // likewise
};

class Predictor {
 public:
  // Compiles the network, after it was compiled and run once in a process of its own where one is
  // configured (inference/network_check.h). `tables`: those of the model, in declared order.
  // `wishes`: without what follows from the network. `model`: its name, for the log.
  // Errors: those of MakeNetworkSignature, CheckNetworkApart, MakeDenseNetwork and
  // NetworkPlaces::AddDevices. A device that does not take the network is none: a line of the log
  // says why.
  static absl::StatusOr<std::unique_ptr<Predictor>> Make(
      std::shared_ptr<const ModelNetwork> network, std::span<const TableSpec> tables,
      DeviceWishes wishes = {}, const std::string& model = "");

  const NetworkSignature& signature() const { return signature_; }
  const ModelNetwork& network() const { return *network_; }

  // Where the network has run.
  NetworkRuns runs() const { return places_.runs(); }

  // Runs on this device if it took the network, else on the CPU; -1 = the CPU.
  // Makes all memory that the session will have on the device. Errors: those of
  // NetworkPlaces::NewSession.
  absl::StatusOr<std::unique_ptr<PredictionSession>> NewSession(int device = -1);

 private:
  Predictor(std::shared_ptr<const ModelNetwork> network, NetworkSignature signature,
            const std::string& model, std::unique_ptr<DenseNetwork> on_cpu)
      : network_(std::move(network)),
        signature_(std::move(signature)),
        places_(model, std::move(on_cpu)) {}

  const std::shared_ptr<const ModelNetwork> network_;
  const NetworkSignature signature_;
  NetworkPlaces places_;
};

}  // namespace hps
