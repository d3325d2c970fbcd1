// Executes plans of requests together: their keys in one lookup, their predictions in one run of
// the network. Every request's rows go straight into its own outputs; rows for the network lie
// together by table, so that they go in without a copy where they need no pooling.
//
// Rows that only the network reads stay on the GPU where it runs: they are looked up, pooled and
// read there (device_lookup.h). If that fails, the batch takes its rows through the host, and so
// does every batch of the next second.
//
// A large prediction that is alone goes through such a GPU in parts of its samples: while the
// network runs for one part, the keys of the next go there and are looked up. So does one whose
// rows have no room there together. Each part is one lookup in the statistics. LookUp then also
// starts the network, and Predict waits for it. If a part fails, the whole request takes its rows
// through the host.
//
// One for each lookup slot, for one thread at a time. Allocates when it is made, and for requests
// that are larger than those before.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/circuit_breaker.h"
#include "base/clock.h"
#include "hps/lookup_cancel.h"
#include "hps/lookup_session.h"
#include "inference/device_lookup.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"

namespace hps {

class BatchExecutor {
 public:
  // Enough for the kernels of a network; 65,536 samples are four parts.
  static constexpr uint64_t kPartSamples = 16'384;

  struct Options {
    size_t slot = 0;      // of the versions' sessions that it uses
    size_t keys_max = 0;  // of one lookup; more keys are looked up in turn
    const Clock* clock = nullptr;
    // Of a part at most, for predictions of twice as many or more; 0 = not in parts. Parts have a
    // power of two of samples, as the graphs of the network's runs do.
    uint64_t part_samples = kPartSamples;
  };
  struct LookupLimits {
    Deadline deadline = kNoDeadline;
    LookupCancel* cancel = nullptr;
    // Becomes true when the client of a single plan has gone or cancelled: the rest of a large one
    // is not looked up. Null: does not happen.
    const std::atomic<bool>* unwanted = nullptr;
  };
  using Plans = std::span<ExecutionPlan* const>;

  explicit BatchExecutor(const Options& options);

  // Looks up the keys of all plans, which are for this version, and counts in each the rows that
  // have not come by the deadline. Errors: those of LookupSession::Lookup. Throws std::bad_alloc.
  absl::Status LookUp(ModelVersion& version, Plans plans, const LookupLimits& limits);

  // How the keys of the last LookUp were answered. Each key counts once: if Predict looks rows up
  // again because a device failed, they are not counted again.
  const LookupCounts& counts() const { return counts_; }

  // Runs the network for all plans. REQUIRES: LookUp of them was the last; each is a prediction.
  // If the device fails that has their rows, they are looked up again, on the host.
  // Errors: those of PredictionSession::Run; INVALID_ARGUMENT (the network does not take inputs of
  // these shapes; of a single plan it names them); UNAVAILABLE (rows did not come a second time).
  // Throws std::bad_alloc.
  absl::Status Predict(ModelVersion& version, Plans plans);

 private:
  // Where the part that is being added goes on.
  struct KeyPlace {
    size_t plan = 0;
    size_t part = 0;
    size_t key = 0;  // in the part
  };

  // Where the rows of the last LookUp are, as far as only the network reads them.
  // kInParts: on the device, where the network runs for them already.
  enum class RowsPlace { kHost, kDevice, kInParts, kLost };

  enum class OnDevice { kNotTried, kFailed, kDone };
  OnDevice LookUpOnDevice(ModelVersion& version, LookupSession& session, Plans plans,
                          const LookupLimits& limits);
  bool IsForParts(PredictionSession& network, Plans plans) const;
  uint64_t PartSamplesMax(const PredictionSession& network) const;
  uint64_t PartSamples(PredictionSession& network, const ExecutionPlan& plan) const;
  void CutPart(const NetworkSignature& signature, const RowRoom& room, const ExecutionPlan& plan,
               SampleRange samples);
  absl::Status LookUpInParts(ModelVersion& version, LookupSession& session,
                             PredictionSession& network, ExecutionPlan& plan,
                             const LookupLimits& limits);
  absl::Status LookUpOnHost(LookupSession& session, Plans plans, const LookupLimits& limits);
  absl::Status LookUpAgain(ModelVersion& version, Plans plans);
  void NoteDeviceFailure(const absl::Status& status);
  Duration TimeUntil(Deadline deadline) const;
  void PlaceRows(Plans plans);
  void AddPiece(Plans plans, bool with_statuses, KeyPlace& place);
  void AddPart(ExecutionPlan& plan, bool with_statuses, KeyPlace& place);
  void CountDegraded(bool with_statuses, const LookupCounts& counts);

  const Options options_;
  // [keys_max], of inputs that are not aligned or have keys of 32 bits.
  const std::unique_ptr<Key[]> aligned_keys_;
  const std::unique_ptr<KeyStatus[]> statuses_;  // [keys_max], by position in the lookup
  std::vector<HostTableQuery> queries_;          // of the lookup; capacity kTablesPerCallMax
  std::vector<ExecutionPlan*> query_plans_;      // whose they are; likewise
  size_t key_count_ = 0;                         // of queries_
  LookupCounts counts_;                          // of the last LookUp
  std::vector<float> network_rows_;              // of predictions, by table, then by plan
  std::vector<const Prediction*> predictions_;   // of the network's run
  DeviceLookup device_lookup_;
  ExecutionPlan part_;     // of a prediction in parts: the one that is looked up
  CircuitBreaker device_;  // open: batches take their rows through the host
  RowsPlace rows_ = RowsPlace::kHost;
  Deadline deadline_ = kNoDeadline;  // of the last LookUp
};

}  // namespace hps
