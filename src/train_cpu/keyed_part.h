// RankPart of a table whose rows are owned by key.
//
// Its message: [number of hot keys, number of cold keys, hot keys, cold keys of that rank]. Its
// gradients: in the order of these keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train_cpu/home_bags.h"
#include "train_cpu/rank_part.h"

namespace hps {

class KeyedPart final : public RankPart {
 public:
  KeyedPart(const RankTable& table, const RankPlace& place);

  void Begin(std::span<const BagBatch> features, bool is_training) override;
  PieceSizes Sizes(uint32_t rank) const override;
  void WriteMessage(uint32_t rank, int64_t*& to) const override;
  absl::Status ReadMessage(uint32_t rank, std::span<const int64_t>& message) override;
  absl::Status LookUp(std::span<float*> to, std::span<const OutputPiece> out) override;
  void Pool(std::span<const float*> from, std::span<const OutputPiece> out) override;
  void SumGradients(std::span<const GradientPiece> gradients, std::span<float*> to) override;
  std::vector<GradientPiece> ReceiveGradients(std::span<const float*> from) override;
  StepIndex* step() override { return step_.get(); }
  std::span<const Key> keys() const override { return bags_.keys(); }

 private:
  struct Received {
    size_t hot = 0;
    size_t cold = 0;
  };

  // Places among keys() in the order of sending.
  std::span<const uint32_t> HotPlaces() const { return Group(0); }
  std::span<const uint32_t> ColdPlaces(uint32_t rank) const { return Group(rank + 1); }
  std::span<const uint32_t> Group(size_t group) const {
    return std::span(order_).subspan(begins_[group], begins_[group + 1] - begins_[group]);
  }

  const RankTable& table_;
  const RankPlace place_;
  const size_t dim_;
  bool is_training_ = false;
  HomeBags bags_;
  // keys() by group: the hot ones, then those of each owner. [rank_count + 2], [keys].
  std::vector<size_t> begins_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> groups_;  // of each key

  std::vector<Received> received_;  // by rank
  std::vector<Key> received_keys_;
  const std::unique_ptr<StepIndex> step_;
  std::vector<float> hot_rows_;  // [own hot keys, dim]

  // Of one call.
  std::vector<OutputPiece> output_pieces_;
  std::vector<const float*> rows_;
  std::vector<float*> sums_;
};

}  // namespace hps
