// The dense network of a model: rows and other inputs of a batch in, predictions out.
//
// An implementation compiles an ONNX model that src/network/onnx has taken, for batches of any
// size. What the build chose (src/network/cpu, or src/absent) defines MakeDenseNetwork, and
// src/network/gpu or src/absent defines MakeDeviceDenseNetwork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "hps/dense_math.h"
#include "hps/model_network.h"
#include "network/device_rows.h"
#include "network/onnx/graph.h"

namespace hps {

// A tensor of one run: row-major, with the element type that the network declares for it.
struct DenseTensor {
  std::byte* data = nullptr;  // aligned to its elements; an input's is not written
  std::span<const int64_t> dims;
};

// What a session on a device has memory for. All of it is made with the session; no call makes any.
struct DeviceLimits {
  uint64_t samples_max = 0;       // of a call of RunFromRows
  uint64_t part_samples_max = 0;  // of a part
  uint64_t parts_total_max = 0;   // of all parts of a call
};

// One run at a time; for one thread at a time. Ends before its network.
class DenseSession {
 public:
  virtual ~DenseSession() = default;

  // `inputs` and `outputs` as the network lists them; the data are read and written in place, and
  // outputs are float32. Errors: INVALID_ARGUMENT (the network does not take inputs of these
  // shapes), OUT_OF_RANGE (with these shapes a tensor inside the network would be too large),
  // INTERNAL (what the engine says), RESOURCE_EXHAUSTED (no memory).
  virtual absl::Status Run(std::span<const DenseTensor> inputs,
                           std::span<const DenseTensor> outputs) = 0;

  // Where rows can be looked up on the session's device. Null: it runs from the host's memory only.
  virtual RowRoom* row_room() { return nullptr; }

  // Of the calls below. REQUIRES: row_room() is not null.
  virtual DeviceLimits device_limits() const { return {}; }

  // As Run, from rows in row_room() and inputs that were sent; in stream order after what has
  // written the rows. The session cuts the samples into runs, and waits once, for the last one.
  // `outputs`: the host's memory, [samples, ...]; not written if it fails. REQUIRES: row_room() is
  // not null. Errors: also DEADLINE_EXCEEDED (the device did not finish), UNAVAILABLE.
  virtual absl::Status RunFromRows(uint32_t /*samples*/, std::span<const FedInput> /*inputs*/,
                                   std::span<std::byte* const> /*outputs*/) {
    return absl::UnimplementedError("this engine does not run from rows on a device");
  }

  // As RunFromRows, in parts:
  //
  //   BeginParts(samples);
  //   for each part: rows are looked up into row_room()->MakePart(...); EnqueuePart(part, inputs);
  //   EndParts(outputs);
  //
  // BeginParts waits for earlier calls. A call need not be ended; the next one then waits for it.
  virtual absl::Status BeginParts(uint32_t /*samples*/) {
    return absl::UnimplementedError("this engine does not run from rows on a device");
  }
  // Enqueues the network's runs for the next samples. They wait for the work that is on
  // row_room()->stream() now, and run beside work that is enqueued there later. `inputs` are those
  // of the part alone; their memory on the host may be freed when this returns. Returns when the
  // rows of all parts but this one and the one before have been read.
  virtual absl::Status EnqueuePart(const SampleRange& /*part*/,
                                   std::span<const FedInput> /*inputs*/) {
    return absl::UnimplementedError("this engine does not run from rows on a device");
  }
  // Waits for all parts. REQUIRES: they are all samples.
  virtual absl::Status EndParts(std::span<std::byte* const> /*outputs*/) {
    return absl::UnimplementedError("this engine does not run from rows on a device");
  }
};

// Weights are shared by all sessions. Thread-safe.
class DenseNetwork {
 public:
  virtual ~DenseNetwork() = default;

  // In each, the first dimension is the batch, -1.
  virtual std::span<const OnnxValue> inputs() const = 0;
  virtual std::span<const OnnxValue> outputs() const = 0;

  // Errors: RESOURCE_EXHAUSTED, INTERNAL; on a device also DEADLINE_EXCEEDED (it hangs),
  // UNAVAILABLE.
  virtual absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() = 0;
};

struct DenseOptions {
  uint32_t sessions = 1;      // that run at a time
  uint64_t batch_max = 4096;  // samples of one run, usually
};

// Errors: UNIMPLEMENTED (this build has no engine), INVALID_ARGUMENT (the reader or the engine does
// not take the network, with its reason), RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDenseNetwork(const ModelNetwork& network,
                                                               const DenseOptions& options);

struct DeviceDenseOptions {
  int device = 0;
  uint32_t batch_max = 4096;  // samples of one run of tensors of the host
  DenseMath math = DenseMath::kFloat32;
  uint64_t sessions = 1;  // that the network will have
  // Of each session's row room: keys, and bytes of rows.
  uint64_t keys_max = uint64_t{1} << 18;
  uint64_t row_bytes = RowRoom::kRowBytesLeast;
  // What row_bytes are taken from, together with those of other networks. Null: from nothing.
  std::shared_ptr<ByteBudget> row_budget{};
  // Of each session's buffers between the layers and inputs of a run. A session cuts large calls
  // into runs of batch_max samples or, if those of more samples fit in here and in the sessions'
  // share of half of the device's free memory, into fewer and larger runs.
  uint64_t buffer_bytes_max = uint64_t{448} << 20;
};

// The same on a GPU: tensors of the host go there and come back with each run, and its sessions
// have a row_room(). Calls of Run with more samples than batch_max are INTERNAL. A session makes
// all of its memory on the device, pinned memory, streams and graphs when it is made. Errors:
// UNIMPLEMENTED (this build has no GPUs, or the device does not run the network: the message names
// the node and its operator), UNAVAILABLE (no such device, no cuBLASLt), INVALID_ARGUMENT (the
// reader does not take the network), RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED (the device hangs),
// INTERNAL.
absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDeviceDenseNetwork(
    const ModelNetwork& network, const DeviceDenseOptions& options);

}  // namespace hps
