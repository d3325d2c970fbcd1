// RankPart of a table whose rows are all on one rank, its holder.
//
// Its message to the holder: [number of keys, number of offsets, number of weights, keys, offsets,
// weights (two in an integer)]; to the others nothing.
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

  absl::Status Begin(const BagBatch& batch, bool is_training) override;
  PieceSizes Sizes(uint32_t rank) const override;
  void WriteMessage(uint32_t rank, int64_t*& to) const override;
  absl::Status ReadMessage(uint32_t rank, std::span<const int64_t>& message) override;
  absl::Status LookUp(std::span<float*> to, float* out) override;
  void Pool(std::span<const float*> from, float* out) override;
  void SumGradients(const float* gradients, std::span<float*> to) override;
  absl::Status Update(std::span<const float*> from, const UpdateFactors* factors) override;
  std::span<const Key> keys() const override { return {}; }

 private:
  bool is_holder() const { return place_.rank == *table_.holder; }
  void ReadOffsets(std::span<const int64_t> offsets, size_t first_key);

  const RankTable& table_;
  const RankPlace place_;
  const size_t dim_;
  bool is_training_ = false;
  BagBatch batch_{};
  size_t output_rows_ = 0;
  const float* gradients_ = nullptr;

  // The holder's batch, of all ranks.
  std::vector<size_t> received_rows_;  // output rows by rank
  std::vector<Key> keys_;
  std::vector<int64_t> offsets_;
  std::vector<float> weights_;
  const std::unique_ptr<StepIndex> step_;
};

}  // namespace hps
