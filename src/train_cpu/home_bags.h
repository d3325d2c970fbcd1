// The bags of one table's batch at the rank that has the samples: pooled from the rows of the
// batch's different keys, and their gradients summed for each of these keys.
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
  // Keeps the batch's spans until Pool. SumGradients needs is_training. May throw std::bad_alloc.
  // REQUIRES: ValidateBatch.
  void Begin(const BagBatch& batch, bool is_training);

  // The different keys, in the order of their first occurrence.
  std::span<const Key> keys() const { return unique_.keys(); }

  // rows[i] is the row of keys()[i]; `out` is [output rows, dim]. May throw std::bad_alloc.
  void Pool(std::span<const float* const> rows, size_t dim, float* out);

  // `gradients` [output rows, dim]; writes the sum of keys()[i] to out[i]. May throw
  // std::bad_alloc.
  void SumGradients(const float* gradients, size_t dim, std::span<float* const> out);

 private:
  UniqueKeys unique_;
  HostStep step_;
  BagBatch batch_{};
  std::vector<const float*> pointers_;  // of one call
};

}  // namespace hps
