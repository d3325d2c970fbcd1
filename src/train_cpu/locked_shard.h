// A shard that several threads may use at a time: one trains, another publishes.
#pragma once

#include <memory>
#include <span>

#include "base/mutex.h"
#include "train/embedding_shard.h"

namespace hps {

// Calls of another shard, one at a time. A call waits for the one before it: a step waits while
// changes are collected. A StepIndex is used by one thread at a time.
class LockedShard final : public EmbeddingShard {
 public:
  explicit LockedShard(std::unique_ptr<EmbeddingShard> shard);

  const ShardOptions& options() const override { return options_; }
  std::unique_ptr<StepIndex> NewStep() const override;
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
  mutable Mutex mutex_;
  const std::unique_ptr<EmbeddingShard> shard_ HPS_PT_GUARDED_BY(mutex_);
  const ShardOptions options_;
};

}  // namespace hps
