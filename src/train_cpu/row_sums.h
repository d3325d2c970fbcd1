// Sums of gradients of a table's rows, from several steps, until one update applies them.
//
// Sums are added in the order of the calls. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hps/types.h"
#include "train/embedding_shard.h"
#include "train_cpu/host_step.h"

namespace hps {

class RowSums {
 public:
  // Rows of `dim` elements.
  explicit RowSums(size_t dim) : dim_(dim), zeros_(dim) {}

  // Adds the gradients of a step of the table's HostShard. May throw std::bad_alloc; then call
  // Clear.
  void Add(const StepIndex& step, std::span<const GradientPiece> gradients);

  // Whether Add was called since the last Clear.
  bool has_gradients() const { return has_gradients_; }
  std::span<const float> sums() const { return sums_; }  // [rows, dim]
  std::span<const Key> keys() const { return keys_; }    // of the rows

  void Scale(float factor);

  // A step that has each row once, for the shard's Backward; the gradients are the sums.
  StepIndex& Step();
  GradientPiece gradients() const { return {places_.size(), sums_.data(), dim_}; }

  void Clear();

 private:
  const size_t dim_;
  bool has_gradients_ = false;
  absl::flat_hash_map<Key, uint32_t> places_;
  std::vector<Key> keys_;        // by place
  std::vector<uint32_t> slots_;  // by place: the newest
  std::vector<float> sums_;
  HostStep step_;

  // Of one call, kept for their memory.
  std::vector<const float*> gradients_;
  std::vector<float> added_;
  std::vector<float*> added_rows_;
  const std::vector<float> zeros_;
};

}  // namespace hps
