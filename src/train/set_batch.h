// The keys of all features of a call in one array, and what they are divided into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/types.h"
#include "train/embedding_shard.h"

namespace hps {

// A feature looks up the rows of a table; several features may look up the same one.
struct SetFeature {
  std::string name;
  int64_t id = 0;    // its number, the same on all ranks
  size_t table = 0;  // among the tables of the call
  Pooling pooling = Pooling::kSum;
};

// Borrows for the call. The keys are those of the first feature, then those of the second, and so
// on (the layout of TorchRec's KeyedJaggedTensor).
struct SetBatch {
  std::span<const Key> keys;
  std::span<const int64_t> offsets{};   // [bags of all features + 1], of keys; empty: a key a bag
  std::span<const float> weights{};     // [keys]; empty: 1
  std::span<const int64_t> bag_counts;  // [features]
  // [features]: whether the weights of its keys count; empty: all do.
  std::span<const uint8_t> is_weighted{};
};

// The rows of a feature's output in the memory of the caller; as many as its batch makes.
struct FeatureOutput {
  float* rows = nullptr;  // [output rows, dim]
  size_t stride = 0;      // float32 values from one row to the next
};

// The gradients of a feature's output; null: the loss does not depend on it.
struct FeatureGradient {
  const float* rows = nullptr;  // [output rows, dim]
  size_t stride = 0;
};

// Errors: INVALID_ARGUMENT: numbers of keys, offsets, weights and bags that do not fit.
absl::Status ValidateSizes(const SetBatch& batch, size_t feature_count);

// Writes the batch of each feature to `batches`; it borrows what `batch` borrows. `table_names`:
// those of the call's tables.
// Errors, which name the feature and the table: INVALID_ARGUMENT: numbers that do not fit, or those
// of ValidateBatch.
absl::Status SplitBatch(const SetBatch& batch, std::span<const SetFeature> features,
                        std::span<const std::string> table_names, std::vector<BagBatch>& batches);

}  // namespace hps
