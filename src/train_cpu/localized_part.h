// RankPart of a table whose rows are all on one rank, its holder.
//
// Its message to the holder has for each feature: [number of keys, number of offsets, number of
// weights, keys, offsets, weights (two in an integer)]; to the others nothing. A rank that is alone
// needs no message: it looks its own batch up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train_cpu/rank_part.h"

namespace hps {

class LocalizedPart final : public RankPart {
 public:
  LocalizedPart(const RankTable& table, const RankPlace& place);

  void Begin(std::span<const BagBatch> features, bool is_training) override;
  PieceSizes Sizes(uint32_t rank) const override;
  void WriteMessage(uint32_t rank, int64_t*& to) const override;
  absl::Status ReadMessage(uint32_t rank, std::span<const int64_t>& message) override;
  absl::Status LookUp(std::span<float*> to, std::span<const OutputPiece> out) override;
  void Pool(std::span<const float*> from, std::span<const OutputPiece> out) override;
  void SumGradients(std::span<const GradientPiece> gradients, std::span<float*> to) override;
  std::vector<GradientPiece> ReceiveGradients(std::span<const float*> from) override;
  StepIndex* step() override { return is_holder() ? step_.get() : nullptr; }
  std::span<const Key> keys() const override { return {}; }

 private:
  // The holder's batch of a feature, of all ranks.
  struct Received {
    std::vector<size_t> rows;  // output rows by rank
    std::vector<Key> keys;
    std::vector<int64_t> offsets;
    std::vector<float> weights;
  };

  bool is_holder() const { return place_.rank == *table_.holder; }
  bool is_alone() const { return place_.rank_count == 1; }
  size_t OutputRows() const;
  absl::Status ReadFeature(uint32_t rank, std::span<const int64_t>& message, Received& received);

  const RankTable& table_;
  const RankPlace place_;
  const size_t dim_;
  bool is_training_ = false;
  std::vector<BagBatch> features_;
  std::vector<Received> received_;        // by feature
  std::vector<GradientPiece> gradients_;  // by feature
  const std::unique_ptr<StepIndex> step_;
  std::vector<const float*> rows_;  // of one call
};

}  // namespace hps
