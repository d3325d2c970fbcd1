// One rank's part of a training step of many tables, with the ranks that share them.
//
//   step.Begin(batches, is_training);
//   for each rank: step.WriteMessage(rank, ...);       // exchanged by the caller
//   step.ReadMessages(messages);
//   step.LookUp(rows to each rank, outputs);           // exchanged
//   step.Pool(rows from each rank, outputs);
//   step.SumGradients(gradients, sums to each rank);   // exchanged
//   updated = step.Update(sums from each rank, factors);
//
// Three exchanges, whatever the number of tables: of keys, rows, and sums of gradients. Every rank
// must make every step with the same tables in the same order. RankPart has the way of one table.
//
// Keeps its memory from step to step. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/embedding_shard.h"
#include "train_cpu/rank_part.h"

namespace hps {

class RankStep {
 public:
  // The tables are borrowed. `ids`: their numbers, the same on all ranks.
  RankStep(const RankPlace& place, std::span<const RankTable* const> tables,
           std::span<const int64_t> ids);
  RankStep(const RankStep&) = delete;
  RankStep& operator=(const RankStep&) = delete;

  // Borrows the batches until Pool. Errors, here and below: those of RankPart, RESOURCE_EXHAUSTED.
  absl::Status Begin(std::span<const BagBatch> batches, bool is_training);

  // What this rank exchanges with `rank`, of all tables.
  PieceSizes Sizes(uint32_t rank) const;
  void WriteMessage(uint32_t rank, int64_t* to) const;
  // One message of each rank. Errors: FAILED_PRECONDITION: a rank makes a step of other tables.
  absl::Status ReadMessages(std::span<const std::span<const int64_t>> messages);

  // `to`: memory for each rank's values; `from`: the values of each rank. `outputs`: of each table,
  // [output rows, dim]; complete after Pool.
  // Errors, here and below: FAILED_PRECONDITION: another number of values than Sizes tells.
  absl::Status LookUp(std::span<float* const> to, std::span<float* const> outputs);
  absl::Status Pool(std::span<const std::span<const float>> from, std::span<float* const> outputs);

  // `gradients`: of each table, [output rows, dim]; kept until Update. Null: the loss does not
  // depend on the table. `scale`: that of Update.
  absl::Status SumGradients(std::span<const float* const> gradients,
                            std::span<const size_t> gradient_counts, float scale,
                            std::span<float* const> to);

  // False, and no row of any table has changed, if a gradient of any rank is NaN or infinite, or
  // too large (gradient_bound.h). A table whose gradients are null on all ranks stays as it is.
  absl::StatusOr<bool> Update(std::span<const std::span<const float>> from,
                              std::span<const UpdateFactors> factors);

  std::span<const Key> keys(size_t table) const { return parts_[table]->keys(); }

 private:
  absl::Status ReadMessage(uint32_t rank, std::span<const int64_t> message);
  absl::Status CheckReceived(std::span<const std::span<const float>> from,
                             size_t PieceSizes::*expected) const;

  const RankPlace place_;
  const std::vector<int64_t> ids_;
  std::vector<std::unique_ptr<RankPart>> parts_;
  std::vector<double> gradient_factors_;  // of the tables' batches
};

}  // namespace hps
