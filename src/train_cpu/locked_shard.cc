#include "train_cpu/locked_shard.h"

#include <utility>

namespace hps {

LockedShard::LockedShard(std::unique_ptr<EmbeddingShard> shard)
    : shard_(std::move(shard)), options_(shard_->options()) {}

std::unique_ptr<StepIndex> LockedShard::NewStep() const {
  const MutexLock lock(mutex_);
  return shard_->NewStep();
}

absl::Status LockedShard::Forward(std::span<const BagBatch> features, StepIndex* step,
                                  std::span<const OutputPiece> out) {
  const MutexLock lock(mutex_);
  return shard_->Forward(features, step, out);
}

absl::Status LockedShard::Backward(StepIndex& step, std::span<const GradientPiece> gradients,
                                   const UpdateFactors& factors) {
  const MutexLock lock(mutex_);
  return shard_->Backward(step, gradients, factors);
}

absl::StatusOr<ShardRows> LockedShard::ReadRows(bool with_state) {
  const MutexLock lock(mutex_);
  return shard_->ReadRows(with_state);
}

absl::Status LockedShard::WriteRows(const ShardRows& rows) {
  const MutexLock lock(mutex_);
  return shard_->WriteRows(rows);
}

absl::Status LockedShard::EraseRows(std::span<const Key> keys) {
  const MutexLock lock(mutex_);
  return shard_->EraseRows(keys);
}

absl::StatusOr<ShardDelta> LockedShard::CollectDelta(DeltaReader reader) {
  const MutexLock lock(mutex_);
  return shard_->CollectDelta(reader);
}

void LockedShard::AcknowledgeDelta(DeltaReader reader, DeltaMark through) {
  const MutexLock lock(mutex_);
  shard_->AcknowledgeDelta(reader, through);
}

ShardStatistics LockedShard::Statistics() const {
  const MutexLock lock(mutex_);
  return shard_->Statistics();
}

}  // namespace hps
