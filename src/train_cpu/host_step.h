// The index work of a training step in a host shard: its different keys, and for each of them the
// outputs that it took part in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hps/types.h"
#include "train/embedding_shard.h"
#include "train_cpu/row_kernels.h"

namespace hps {

// Writes where the gradient of each output row lies. `zeros` [dim] stands for gradients that are
// null. May throw std::bad_alloc.
void ListGradients(std::span<const GradientPiece> pieces, const float* zeros,
                   std::vector<const float*>& gradients);

// Vectors keep their memory from step to step.
class HostStep final : public StepIndex {
 public:
  void Clear();

  // Called for each key of the batch, in order, with its place among the different keys (kNoRow:
  // it has no row), after AddKey for a new one.
  uint32_t AddKey(Key key, uint32_t slot);
  void AddOccurrence(uint32_t place);

  // Sorts the occurrences by key, keeping their order within one.
  void Finish(std::span<const BagBatch> features);

  GradientSums sums(const float* const* gradients, size_t dim) const {
    return {.begins = begins_.data(),
            .gradient_rows = gradient_rows_.data(),
            .gradient_scales = gradient_scales_.empty() ? nullptr : gradient_scales_.data(),
            .row_count = keys_.size(),
            .dim = dim,
            .gradients = gradients};
  }

  size_t key_count() const { return keys_.size(); }
  Key key(size_t place) const { return keys_[place]; }
  uint32_t slot(size_t place) const { return slots_[place]; }
  size_t output_rows() const { return output_rows_; }
  bool is_ready() const { return is_ready_; }

 private:
  void AddGradient(size_t occurrence, size_t output, float scale);
  void AddGradients(const BagBatch& feature, size_t first_occurrence);

  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> places_;  // of each occurrence
  std::vector<uint32_t> begins_;
  std::vector<uint32_t> gradient_rows_;
  std::vector<float> gradient_scales_;
  size_t output_rows_ = 0;
  bool is_ready_ = false;
};

}  // namespace hps
