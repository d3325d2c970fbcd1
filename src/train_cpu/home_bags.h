// The bags of one table's batch, of all its features, at the rank that has the samples: pooled from
// the rows of the batch's different keys, and their gradients summed for each of these keys.
//
// Sums have the order of the keys in the batch. Keeps its memory from step to step. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hps/types.h"
#include "train/embedding_shard.h"
#include "train/unique_keys.h"
#include "train_cpu/host_step.h"

namespace hps {

class HomeBags {
 public:
  // Keeps what the features borrow until Pool. SumGradients needs is_training. May throw
  // std::bad_alloc. REQUIRES: ValidateBatch.
  void Begin(std::span<const BagBatch> features, bool is_training);

  // The different keys, in the order of their first occurrence.
  std::span<const Key> keys() const { return unique_.keys(); }

  // rows[i] is the row of keys()[i]; `out` has a piece for each feature. May throw std::bad_alloc.
  void Pool(std::span<const float* const> rows, size_t dim, std::span<const OutputPiece> out);

  // `gradients` has a piece for each feature; writes the sum of keys()[i] to out[i]. May throw
  // std::bad_alloc.
  void SumGradients(std::span<const GradientPiece> gradients, size_t dim,
                    std::span<float* const> out);

 private:
  UniqueKeys unique_;
  HostStep step_;
  std::vector<BagBatch> features_;
  // Of one call.
  std::vector<const float*> pointers_;
  std::vector<float> zeros_;
};

}  // namespace hps
