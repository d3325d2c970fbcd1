// One lookup in a GPU's cache, with all the memory that it needs.
//
// Begin copies host keys and launches one probe for all tables. Peek and Misses read the records
// that the probe writes to pinned memory, during and after the probe. Finish sends answers with one
// launch. Wait is the second synchronization. Only Wait writes outputs on the host, from rows
// collected on the device: one synchronization if few rows are requested and all keys hit,
// otherwise one more per half of kCallOutputBytes of rows.
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
#include "l1_gpu/call_buffers.h"
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
  ~GpuCall();

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
  LookupCounts counts(size_t query) const override { return counts_[query]; }
  void Return() override;

  // Sets the generation of the next launch, to test the wrap-around.
  void SetGenerationForTest(uint32_t generation) { generation_ = generation - 1; }

 private:
  GpuCall(int device, std::unique_ptr<CallBuffers> buffers,
          std::function<void(GpuCall*)> give_back);

  absl::Status Validate(const DeviceRowPiece& piece) const;
  void MakeViews();
  absl::Status Launch();
  cudaEvent_t probed() const;
  // Whether the probe has completed or failed.
  bool IsProbed();
  // Reads further misses of a query that the probe has listed, at most `count_max`. False if there
  // may be more.
  bool ReadRecords(size_t query, size_t count_max);
  void ReadMisses();
  // Whether the device has answered all positions of the query's misses from level 2.
  bool IsAnsweredDirectly(size_t query) const;
  // Pieces answer the query's misses instead.
  void ForgetDirectAnswers(size_t query);
  // The records of query q's positions that wait for another position's key.
  std::span<const DuplicateRecord> DuplicatesOf(size_t query) const;
  // Marks the piece's keys as answered and counts one position of each.
  void Answer(const DeviceRowPiece& piece);
  void NoteAnswer(size_t query, uint8_t answer);
  // Counts the other positions, once all keys have been answered.
  void CountAllDuplicates();
  void CountDuplicates(size_t query);
  absl::Status CheckAllAnswered() const;
  absl::Status FinishPieces(std::span<const DeviceRowPiece> pieces);

  const int device_;
  const bool has_other_devices_;  // a caller may pass a stream or memory of another device
  const std::unique_ptr<CallBuffers> buffers_;
  const std::function<void(GpuCall*)> give_back_;
  MissRowSender sender_;
  HostOutput output_;

  enum class State { kLeased, kBegun, kMissed, kDone };
  State state_ = State::kLeased;
  size_t keys_leased_ = 0;
  CallUse use_ = CallUse::kLookup;
  size_t key_count_ = 0;
  uint32_t generation_ = 0;  // of the last launch
  // The last launch failed, so the counters were not cleared for the next one.
  bool misses_are_dirty_ = false;
  cudaStream_t stream_ = nullptr;
  bool on_host_ = false;
  bool fetched_ahead_ = false;
  bool converted_ = false;
  bool in_flight_ = false;
  bool probed_ = false;
  absl::Status probe_status_;  // valid if probed_

  std::vector<DeviceCacheQuery> queries_;
  std::vector<QueryView> views_;                // [queries]
  std::vector<LookupCounts> counts_;            // [queries]
  std::vector<uint32_t> duplicate_counts_;      // [queries]: positions except one per key
  std::vector<uint8_t> common_answers_;         // [queries]: the common answer of all answered keys
  std::vector<std::span<const Key>> missed_;    // [queries]: the known part of its misses in keys_
  std::vector<uint64_t> positions_;             // [queries]
  std::vector<uint8_t> direct_;                 // [queries]: answered by the device, from level 2
  std::vector<uint8_t> duplicates_counted_;     // [queries]
  std::vector<RowsToConvert> rows_to_convert_;  // of the queries that request conversion
  // Query q's part of these arrays begins at its QueryView::first_key.
  const std::unique_ptr<Key[]> keys_;         // [keys_max]: unique missing keys
  const std::unique_ptr<uint8_t[]> answers_;  // [keys_max]: answer of a unique key, see gpu_call.cc
  // Scratch for one query: a bit per position, and the unique index of each position whose bit is
  // set.
  const std::unique_ptr<uint64_t[]> has_duplicates_;  // zero between uses
  const std::unique_ptr<uint32_t[]> index_of_;        // [keys_max]
  size_t unanswered_count_ = 0;
};

}  // namespace hps
