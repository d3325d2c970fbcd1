// EmbeddingShard in the memory of this process.
//
// Forward finds all keys in the index first and then the rows, so that the cache misses of many
// keys overlap. A key is found to be a duplicate by its row, which remembers the last step that had
// it: there is no second hash table. After warm-up a step without new keys allocates nothing.
// Elements of 16 bits are float32 in memory, with values that the type has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/delta_marks.h"
#include "train/embedding_shard.h"
#include "train_cpu/host_step.h"
#include "train_cpu/key_index.h"
#include "train_cpu/row_arena.h"
#include "train_cpu/row_kernels.h"

namespace hps {

class HostShard final : public EmbeddingShard {
 public:
  // Errors: those of ValidateShardOptions.
  static absl::StatusOr<std::unique_ptr<EmbeddingShard>> Create(const ShardOptions& options);

  const ShardOptions& options() const override { return options_; }
  std::unique_ptr<StepIndex> NewStep() const override { return std::make_unique<HostStep>(); }
  absl::Status Forward(std::span<const BagBatch> features, StepIndex* step,
                       std::span<const OutputPiece> out) override;
  absl::Status Backward(StepIndex& step, std::span<const GradientPiece> gradients,
                        const UpdateFactors& factors) override;
  absl::StatusOr<ShardRows> ReadRows(bool with_state) override;
  absl::Status WriteRows(const ShardRows& rows) override;
  absl::Status EraseRows(std::span<const Key> keys) override;
  absl::StatusOr<ShardDelta> CollectDelta(DeltaReader reader) override;
  void AcknowledgeDelta(DeltaReader reader, DeltaMark through) override;
  ShardStatistics Statistics() const override;

 private:
  static constexpr uint32_t kNumberMax = UINT32_MAX;

  struct Pending {
    uint32_t count = 0;
    uint32_t last_step = 0;
  };
  // Of the table's life so far.
  struct Totals {
    uint64_t erased = 0;   // rows
    uint32_t updates = 0;  // training steps that had gradients
  };

  explicit HostShard(const ShardOptions& options);

  absl::Status CheckOutput(std::span<const BagBatch> features,
                           std::span<const OutputPiece> out) const;
  // Whether so many rows, and one more step, can be counted.
  absl::Status CheckRoom(size_t row_count) const;

  // The parts of a training step.
  void BeginStep();
  void FindSlots(std::span<const Key> keys, uint32_t* slots);
  void TakeRows(std::span<const Key> keys, size_t first, HostStep& step);
  void LookUpRows(std::span<const Key> keys, size_t first);
  void PoolRows(std::span<const BagBatch> features, std::span<const OutputPiece> out) const;
  // The row of a key that the index may lack; null: it waits for admission.
  uint32_t AdmitRow(Key key);
  void FindLiveRows(const HostStep& step, uint32_t change);
  void RoundLiveRows();

  bool IsExpired(const RowHeader& row) const {
    return options_.expire_after != 0 && step_ - row.last_seen > options_.expire_after;
  }
  // Whether a slot that FindSlots found for the key is of use no more: its row has expired, or an
  // earlier key of the batch has taken the slot of an expired row.
  bool IsStale(const RowHeader& row, Key key) const {
    return row.key != key || !row.is_live || IsExpired(row);
  }
  void EraseExpired(size_t slot_count);
  void EraseAllExpired();
  void EraseBeyondBound();
  void EraseOldest();
  void ForgetPending();

  uint32_t InsertRow(Key key);
  void EraseRow(uint32_t slot);
  size_t width() const { return rows_.value_count(); }

  // Live rows that changed after the mark, or that a step after it had, by key.
  std::vector<uint32_t> SlotsSince(const DeltaMark& mark) const;
  std::vector<Key> ErasedKeys(DeltaReader reader) const;
  ShardRows CopyRowsWithState(const std::vector<uint32_t>& slots) const;
  ShardRows CopyRows(const std::vector<uint32_t>& slots, bool with_state) const;
  void WriteRow(const ShardRows& rows, size_t i, bool with_state);

  const ShardOptions options_;
  const RowKernels& kernels_;
  const BiasCorrections corrections_;
  KeyIndex index_;
  RowArena rows_;
  uint32_t step_ = 0;    // training steps
  uint32_t change_ = 0;  // changes of rows
  uint32_t sweep_ = 0;   // the next slot to look for expiry
  Totals totals_;
  absl::flat_hash_map<Key, Pending> pending_;
  DeltaMarks marks_;

  // Of one call, kept for their memory.
  std::vector<uint32_t> slots_;
  std::vector<const float*> row_values_;
  std::vector<RowHeader*> live_rows_;
  std::vector<const float*> gradients_;
  std::vector<float> sum_;
  const std::vector<float> zeros_;
};

}  // namespace hps
