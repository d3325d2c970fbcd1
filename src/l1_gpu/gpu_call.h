// One lookup in a GPU's cache, with all the memory that it needs.
//
// Begin copies keys that lie on the host and launches one probe for all tables; Peek and Misses
// read what it writes into pinned memory, while it runs and when it is done; Finish sends answers
// with one launch; Wait is the second synchronization. Outputs on the host are written by Wait
// alone, from rows that the device has collected: one synchronization when few rows are asked and
// all hit, else one more for each half of kCallOutputBytes of rows.
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
#include "l1_gpu/piece_sender.h"
#include "tier/device_cache.h"

namespace hps {

class GpuCall final : public DeviceCall {
 public:
  // `give_back` runs at Return. Errors: RESOURCE_EXHAUSTED, INTERNAL; nothing stays allocated then.
  static absl::StatusOr<std::unique_ptr<GpuCall>> Create(int device, const CallSizes& sizes,
                                                         std::function<void(GpuCall*)> give_back);
  ~GpuCall();

  // Makes the call ready for a lookup of at most `keys_leased` keys. REQUIRES: IsIdle.
  void Lease(size_t keys_leased);

  // Whether the device is done with the last lookup, which may have been returned before. A call
  // on a device that has failed is idle: its next Begin says so.
  bool IsIdle();
  // Waits for the end of the lookup that the device is at work on: of the next one, if the call is
  // lent again meanwhile. Errors: DEADLINE_EXCEEDED, INTERNAL. Thread-safe.
  absl::Status WaitForDevice(Deadline deadline) const;

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) override;
  DeviceMissesSoFar Peek(size_t query) override;
  absl::StatusOr<DeviceMisses> Misses(Deadline deadline) override;
  HostRows Staging(size_t query, size_t row_count) override;
  absl::Status Bring(const HostRows& rows) override;
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override;
  absl::Status Widen() override;
  absl::Status Wait(Deadline deadline) override;
  LookupCounts counts(size_t query) const override { return counts_[query]; }
  void Return() override;

  // The next launch is number `generation`: for a test of what happens after the last one.
  void SetGenerationForTest(uint32_t generation) { generation_ = generation - 1; }

 private:
  GpuCall(int device, std::unique_ptr<CallBuffers> buffers,
          std::function<void(GpuCall*)> give_back);

  absl::Status Validate(const DeviceRowPiece& piece) const;
  void MakeViews();
  absl::Status Launch();
  cudaEvent_t probed() const;
  // Whether the probe is done, or never will be.
  bool IsProbed();
  // Takes in further misses of a query, as far as the probe has listed them, at most so many. False
  // when there may be more of them.
  bool ReadRecords(size_t query, size_t count_max);
  void ReadMisses();
  // What the probe has listed of the positions of query q that wait for another one's key.
  std::span<const DuplicateRecord> DuplicatesOf(size_t query) const;
  // Marks the piece's keys as answered and counts one position of each.
  void Answer(const DeviceRowPiece& piece);
  void NoteAnswer(size_t query, uint8_t answer);
  // Counts the other positions, when all keys have been answered.
  void CountDuplicates(size_t query);
  absl::Status CheckAllAnswered() const;
  absl::Status FinishPieces(std::span<const DeviceRowPiece> pieces);

  const int device_;
  const bool has_other_devices_;  // that a caller may mistake for this one
  const std::unique_ptr<CallBuffers> buffers_;
  const std::function<void(GpuCall*)> give_back_;
  PieceSender sender_;
  HostOutput output_;

  enum class State { kLeased, kBegun, kMissed, kDone };
  State state_ = State::kLeased;
  size_t keys_leased_ = 0;
  size_t key_count_ = 0;
  size_t staging_used_bytes_ = 0;
  uint32_t generation_ = 0;  // of the last launch
  // The last launch was not made: nothing has cleared the counters for the next one.
  bool misses_are_dirty_ = false;
  cudaStream_t stream_ = nullptr;
  bool on_host_ = false;
  bool fetched_ahead_ = false;
  bool widened_ = false;
  bool in_flight_ = false;
  bool probed_ = false;
  absl::Status probe_status_;  // when it is

  std::vector<DeviceCacheQuery> queries_;
  std::vector<QueryView> views_;              // [queries]
  std::vector<LookupCounts> counts_;          // [queries]
  std::vector<uint32_t> duplicate_counts_;    // [queries]: positions besides one of each key
  std::vector<uint8_t> common_answers_;       // [queries]: of all keys that have been answered
  std::vector<std::span<const Key>> missed_;  // [queries]: its part of keys_, as far as known
  std::vector<uint64_t> positions_;           // [queries]
  std::vector<RowsToWiden> rows_to_widen_;    // of the queries that ask for it
  // A query's part of these begins at its QueryView::first_key.
  const std::unique_ptr<Key[]> keys_;         // [keys_max]: unique missing keys
  const std::unique_ptr<uint8_t[]> answers_;  // [keys_max], of a unique key: see gpu_call.cc
  // Scratch for one query: a bit for each position, and the unique index of those that have it set.
  const std::unique_ptr<uint64_t[]> has_duplicates_;  // zero between uses
  const std::unique_ptr<uint32_t[]> index_of_;        // [keys_max]
  size_t unanswered_count_ = 0;
  bool duplicates_counted_ = false;
};

}  // namespace hps
