// One rank's part of one embedding table, in training: keys to rows, gradients to updated rows.
//
//   std::unique_ptr<StepIndex> step = shard->NewStep();              // reused for every step
//   status = shard->Forward(features, step.get(), outputs);
//   status = shard->Backward(*step, gradients, {learning_rate, scale});
//
// Several features may look up one table in a step. Their keys are one batch: the gradients of a
// key are summed over all of them, and its row is updated once.
//
// A row is the vector, the optimizer's state, the step that last had the key, and the number of its
// updates. Every 64-bit key is legal. A key without a row gets one when a training step has it, or
// when `admit_after` steps had it; until then, and in evaluation, it has zeros, as an absent key
// has in serving. First values depend on key and seed only.
//
// Sums have a fixed order, that of the features and of the keys in each, so that equal calls give
// equal bits, on every machine.
//
// Not thread-safe; LockedShard makes it so. Steps of several batches may be open at a time; a
// row that was erased between Forward and Backward is not updated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "train/table_rows.h"

namespace hps {

enum class Pooling { kSum, kMean, kNone };

// One feature's keys in a batch. Borrows for the call. Bag b has the keys [offsets[b],
// offsets[b + 1]), counted from offsets[0].
struct BagBatch {
  std::span<const Key> keys;
  std::span<const int64_t> offsets{};  // [bags + 1]; empty: every key is a bag of its own
  std::span<const float> weights{};    // [keys]; empty: 1. Not with kNone
  Pooling pooling = Pooling::kSum;     // kNone: a row for every key; offsets are only checked

  size_t output_rows() const {
    return pooling == Pooling::kNone || offsets.empty() ? keys.size() : offsets.size() - 1;
  }
};

// Errors, which begin with `what`: INVALID_ARGUMENT: offsets that do not ascend to the number of
// keys, weights of another number or with another pooling than kSum, 2^32 - 1 keys or more.
absl::Status ValidateBatch(const BagBatch& batch, std::string_view what);

// The index work of one Forward, kept for its Backward. Belongs to the shard that made it.
class StepIndex {
 public:
  virtual ~StepIndex() = default;
};

// Consecutive output rows of one feature. The pieces of a call make up its output, feature after
// feature.
struct OutputPiece {
  size_t row_count = 0;
  float* rows = nullptr;  // [row_count, dim]; null: these rows are not wanted
  size_t stride = 0;      // float32 values from one row to the next
};

// The gradients of consecutive output rows of one feature.
struct GradientPiece {
  size_t row_count = 0;
  const float* rows = nullptr;  // [row_count, dim]; null: zeros
  size_t stride = 0;
};

struct UpdateFactors {
  float learning_rate = 0;
  float scale = 1;  // multiplies every row's sum of gradients
};

class EmbeddingShard : public TableRows {
 public:
  virtual std::unique_ptr<StepIndex> NewStep() const = 0;

  // Writes pooled rows to the pieces, in their order; an empty bag has zeros. With a `step` this is
  // a training step; null evaluates and changes nothing.
  // Errors: INVALID_ARGUMENT (those of ValidateBatch; pieces that are not those of the features),
  // RESOURCE_EXHAUSTED (no memory, more than 2^32 rows or 2^31 steps); then some keys may have got
  // rows.
  virtual absl::Status Forward(std::span<const BagBatch> features, StepIndex* step,
                               std::span<const OutputPiece> out) = 0;

  // Sums the gradients of each row, and updates the rows. The values are not checked (RankStep
  // does it for all tables of a step).
  // Errors: INVALID_ARGUMENT: the number of gradients, a step that had no Forward.
  virtual absl::Status Backward(StepIndex& step, std::span<const GradientPiece> gradients,
                                const UpdateFactors& factors) = 0;
};

}  // namespace hps
