// One rank's part of a training step of many tables, with the ranks that share them.
//
//   step.Begin(batch, is_training);
//   for each rank: step.WriteMessage(rank, ...);       // exchanged by the caller
//   step.ReadMessages(messages);
//   step.LookUp(rows to each rank, outputs);           // exchanged
//   step.Pool(rows from each rank, outputs);
//   step.SumGradients(gradients, sums to each rank);   // exchanged
//   updated = step.Update(sums from each rank, factors);
//
// Three exchanges, whatever the number of tables: of keys, rows, and sums of gradients. Every rank
// must make every step with the same features in the same order. RankPart has the way of one table.
// A rank that is alone and holds all its tables needs no exchange: it calls Begin, LookUp,
// SumGradients and Update.
//
// Where several steps are to make one update, AddToSums takes the place of Update; then SumsAllow
// and ApplySums update the rows.
//
// Keeps its memory from step to step. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/embedding_shard.h"
#include "train/set_batch.h"
#include "train_cpu/rank_part.h"

namespace hps {

class RankStep {
 public:
  // The tables are borrowed; each has a feature.
  RankStep(const RankPlace& place, std::span<RankTable* const> tables,
           std::vector<SetFeature> features);
  RankStep(const RankStep&) = delete;
  RankStep& operator=(const RankStep&) = delete;

  // Borrows the batch until Pool, or LookUp if the rank is alone. Errors, here and below: those of
  // SplitBatch and RankPart, RESOURCE_EXHAUSTED.
  absl::Status Begin(const SetBatch& batch, bool is_training);

  // What this rank exchanges with `rank`, of all tables.
  PieceSizes Sizes(uint32_t rank) const;
  void WriteMessage(uint32_t rank, int64_t* to) const;
  // One message of each rank. Errors: FAILED_PRECONDITION: a rank makes a step of other features.
  absl::Status ReadMessages(std::span<const std::span<const int64_t>> messages);

  // `to`: memory for each rank's values; `from`: the values of each rank. `outputs`: of each
  // feature; complete after Pool.
  // Errors, here and below: FAILED_PRECONDITION: another number of values than Sizes tells.
  absl::Status LookUp(std::span<float* const> to, std::span<const FeatureOutput> outputs);
  absl::Status Pool(std::span<const std::span<const float>> from,
                    std::span<const FeatureOutput> outputs);

  // The gradients are kept until Update or AddToSums. `scale`: that of the update.
  absl::Status SumGradients(std::span<const FeatureGradient> gradients, float scale,
                            std::span<float* const> to);

  // False, and no row of any table has changed, if a gradient of any rank is NaN or infinite, or
  // too large (gradient_bound.h). A table whose gradients are null on all ranks stays as it is.
  // `factors`: of each table.
  absl::StatusOr<bool> Update(std::span<const std::span<const float>> from,
                              std::span<const UpdateFactors> factors);
  // Adds the gradients to the sums of the tables. False, and no sum has changed: as Update. After
  // an error there are no sums.
  absl::StatusOr<bool> AddToSums(std::span<const std::span<const float>> from);

  std::span<const Key> keys(size_t table) const { return parts_[table]->keys(); }
  std::span<const SetFeature> features() const { return features_; }
  // Of the feature's table.
  size_t dim(size_t feature) const {
    return tables_[features_[feature].table]->shard->options().dim;
  }

 private:
  absl::Status ReadMessage(uint32_t rank, std::span<const int64_t> message);
  absl::Status CheckReceived(std::span<const std::span<const float>> from,
                             size_t PieceSizes::*expected) const;
  float LimitOf(size_t table, float scale) const;
  bool AreAllWithin(std::span<const FeatureGradient> gradients, float scale) const;
  void GatherGradients();
  std::span<const OutputPiece> PiecesOf(size_t table, std::span<const FeatureOutput> outputs);
  template <typename Piece>
  std::span<Piece> OfTable(size_t table, std::vector<Piece>& pieces) const {
    return std::span(pieces).subspan(begins_[table], begins_[table + 1] - begins_[table]);
  }
  // Calls `use` with each table that has gradients and with these; false: not allowed.
  template <typename Use>
  absl::StatusOr<bool> TakeGradients(std::span<const std::span<const float>> from, const Use& use);

  const RankPlace place_;
  const std::vector<RankTable*> tables_;
  const std::vector<SetFeature> features_;
  std::vector<std::string> table_names_;
  // The features by table: those of table t are order_[begins_[t]] to order_[begins_[t + 1]].
  std::vector<size_t> order_;
  std::vector<size_t> begins_;
  std::vector<std::unique_ptr<RankPart>> parts_;  // of the tables
  std::vector<double> gradient_factors_;          // of the tables' batches

  std::vector<BagBatch> split_;    // of one call, by feature
  std::vector<BagBatch> batches_;  // in order_
  std::vector<OutputPiece> output_pieces_;
  std::vector<GradientPiece> gradient_pieces_;
  std::vector<float> gathered_;      // gradients
  std::vector<bool> has_gradients_;  // of the tables
};

// Whether the sums of the tables are finite and, multiplied by `scale`, not too large.
bool SumsAllow(std::span<RankTable* const> tables, float scale);
// The sum of the squares of the sums. Of a row that several ranks have, its owner counts it; so the
// results of all ranks add up to that of all rows.
double SquaredNorm(std::span<RankTable* const> tables, const RankPlace& place);
// Updates the rows from the sums, which stay. A table without gradients stays as it is. `factors`:
// of each table. Errors: those of the shards.
absl::Status ApplySums(std::span<RankTable* const> tables, std::span<const UpdateFactors> factors);

}  // namespace hps
