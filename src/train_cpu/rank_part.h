// One table's part of a step that ranks make together: what this rank sends, and what it does for
// the others as an owner of rows.
//
// In a step, every rank sends each of its different keys once: a hot key to all ranks, another to
// its owner. Every rank looks its received keys up, in the order of ranks, and sends the rows of
// cold keys back; hot rows are read at home. Bags are pooled at home. Backward, sums of gradients
// take the way of the keys. So all ranks that hold a row see the same keys and gradients in the
// same order, and copies of a hot row stay equal bit for bit.
//
// The keys of a localized table travel to its holder with their bags, and pooled rows come back, so
// that its sums have the order of one process.
//
// Several features may look up the table: their keys are one batch, and outputs and gradients have
// a piece for each feature.
//
// Pointers of the calls below stand where this part's values begin, and are moved to their end.
// Calls may throw std::bad_alloc. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "hps/types.h"
#include "train/embedding_shard.h"
#include "train_cpu/row_sums.h"

namespace hps {

// How ranks share a table. `hot` may change between steps, the other settings not after the first.
struct RankTable {
  EmbeddingShard* shard = nullptr;  // this rank's
  std::optional<uint32_t> holder;   // localized: the rank that has all rows
  bool is_replicated = false;       // every key is hot
  absl::flat_hash_set<Key> hot{};
  // Of the rows of this rank: gradients that wait for an update.
  RowSums sums{shard->options().dim};
};

struct RankPlace {
  uint32_t rank = 0;
  uint32_t rank_count = 1;
};

// What this rank exchanges with another one.
struct PieceSizes {
  size_t message = 0;  // 64-bit integers to it
  // float32 values. Rows and received gradients are known when all messages have been read.
  size_t rows_to = 0;
  size_t rows_from = 0;
  size_t gradients_to = 0;
  size_t gradients_from = 0;
};

class RankPart {
 public:
  virtual ~RankPart() = default;

  // Borrows the batches until Pool. REQUIRES: ValidateBatch.
  virtual void Begin(std::span<const BagBatch> features, bool is_training) = 0;
  virtual PieceSizes Sizes(uint32_t rank) const = 0;
  virtual void WriteMessage(uint32_t rank, int64_t*& to) const = 0;

  // Called once for each rank, in their order; takes this part off the front of the message.
  // Errors: INTERNAL: not what WriteMessage wrote.
  virtual absl::Status ReadMessage(uint32_t rank, std::span<const int64_t>& message) = 0;

  // Looks all received keys up and writes the rows of each rank. `out` is as in Pool.
  // Errors: the shard's.
  virtual absl::Status LookUp(std::span<float*> to, std::span<const OutputPiece> out) = 0;

  // Writes the features' outputs from what every rank has sent.
  virtual void Pool(std::span<const float*> from, std::span<const OutputPiece> out) = 0;

  // The gradients are kept until ReceiveGradients.
  virtual void SumGradients(std::span<const GradientPiece> gradients, std::span<float*> to) = 0;

  // The gradients of the rows that this rank has looked up for all ranks: those of step().
  virtual std::vector<GradientPiece> ReceiveGradients(std::span<const float*> from) = 0;
  // Null if this rank has no rows of the table.
  virtual StepIndex* step() = 0;

  // The batch's different keys; none for a localized table.
  virtual std::span<const Key> keys() const = 0;
};

// `table` is borrowed.
std::unique_ptr<RankPart> NewRankPart(const RankTable& table, const RankPlace& place);

}  // namespace hps
