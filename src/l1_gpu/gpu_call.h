// One lookup in a GPU's cache, with all the memory that it needs.
//
// Begin copies host keys and launches one probe for all tables. Peek and Misses read its records
// (CallRecords) while it runs and when it has ended. Finish counts answers (CallAnswers) and sends
// them with one launch (MissRowSender). Wait is the second synchronization. Only Wait writes
// outputs on the host (HostOutput), from rows collected on the device: one synchronization if few
// rows are requested and all keys hit, otherwise one more per half of kCallOutputBytes of rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l1_gpu/call_answers.h"
#include "l1_gpu/call_buffers.h"
#include "l1_gpu/call_records.h"
#include "l1_gpu/gpu_cache_table.h"
#include "l1_gpu/host_output.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/miss_row_sender.h"
#include "tier/device_cache.h"

namespace hps {

// What a call is lent for: see DeviceCache::AcquireCallAhead.
enum class CallUse : uint8_t { kLookup, kPieceAhead };
inline constexpr size_t kCallUses = 2;

class GpuCall final : public DeviceCall {
 public:
  // Return calls `give_back`. Errors: RESOURCE_EXHAUSTED, INTERNAL; nothing stays allocated then.
  static absl::StatusOr<std::unique_ptr<GpuCall>> Create(int device, const CallSizes& sizes,
                                                         std::function<void(GpuCall*)> give_back);

  // Prepares the call for a lookup of at most `keys_leased` keys. REQUIRES: IsIdle.
  void Lease(size_t keys_leased, CallUse use = CallUse::kLookup);
  CallUse use() const { return use_; }  // of the last lease

  // Whether the device has finished the last lookup, which may have been returned before. A call on
  // a failed device is idle; its next Begin returns the error.
  bool IsIdle();
  // Waits for the end of the lookup that the device works on; if the call is leased again
  // meanwhile, of the next one. Errors: DEADLINE_EXCEEDED, INTERNAL. Thread-safe.
  absl::Status WaitForDevice(Deadline deadline) const;

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) override;
  DeviceMissesSoFar Peek(size_t query) override;
  absl::StatusOr<DeviceMisses> Misses(Deadline deadline) override;
  HostRows Staging(size_t query, size_t row_count) override;
  absl::Status CopyAhead(const HostRows& rows) override;
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override;
  absl::Status ConvertToFloat32() override;
  absl::Status Wait(Deadline deadline) override;
  LookupCounts counts(size_t query) const override { return answers_.counts(query); }
  void Return() override;

  // Sets the generation of the next launch, to test the wrap-around.
  void SetGenerationForTest(uint32_t generation) { records_.set_generation(generation - 1); }

 private:
  GpuCall(int device, std::unique_ptr<CallBuffers> buffers,
          std::function<void(GpuCall*)> give_back);

  void MakeViews();
  absl::Status Launch();
  cudaEvent_t probed() const;  // after the probe

  const int device_;
  const bool has_other_devices_;  // a caller may pass a stream or memory of another device
  const std::unique_ptr<CallBuffers> buffers_;
  const std::function<void(GpuCall*)> give_back_;
  CallRecords records_;
  CallAnswers answers_;
  MissRowSender sender_;
  HostOutput output_;

  enum class State { kLeased, kProbing, kProbed, kMissed, kDone };
  State state_ = State::kLeased;
  size_t keys_leased_ = 0;
  CallUse use_ = CallUse::kLookup;
  cudaStream_t stream_ = nullptr;
  bool in_flight_ = false;  // the device may work on the call
  std::vector<DeviceCacheQuery> queries_;
  std::vector<RowsToConvert> rows_to_convert_;  // empty until ConvertToFloat32
};

}  // namespace hps
