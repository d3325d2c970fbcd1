// A step in device memory, as its kernels see it.
//
// Features are in the order of their groups, and of their tables within a group. Their keys, in
// this order, have positions: position v is the key v - starts[f] of feature f. Positions are
// sorted by the first position that has their row; those of a row are a run. A key without a row
// has a run of its own, so that all gradients are looked at. The positions of a group stay
// together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hps/types.h"
#include "train/embedding_shard.h"
#include "train_gpu/kernels/layout.h"

namespace hps {

inline constexpr uint32_t kChunk = 32;  // sorted positions that a worker of Reduce sums up

struct FeatureView {
  uint32_t bag_begin;  // among the bags of all features of the batch, in its order
  uint32_t bag_count;
  uint32_t table;       // of the set
  uint32_t step_table;  // among the step's tables
  uint32_t step_group;  // among the step's groups
  Pooling pooling;
  uint32_t is_weighted;
  uint64_t key_begin;  // in the batch; the device writes it
};

// Of one of the step's tables.
struct StepTable {
  uint32_t table;   // of the set
  uint32_t step;    // the table's training step
  uint32_t change;  // the number of the change that inserts rows
};
struct StepUpdate {
  float rate;
  uint32_t change;
  uint32_t has_gradients;
  float correction;  // of sparse Adam; the device writes it
};

// The step's part of a group of tables: features that follow each other.
struct StepGroup {
  uint32_t group;  // of the set
  uint32_t feature_begin;
  uint32_t feature_end;
  uint32_t dim;
  uint32_t states;  // values of state behind each of the vector
  // The device writes these.
  uint32_t begin;       // position, also of the sorted ones
  uint32_t end;         // position
  uint64_t sums_begin;  // in ReduceView::sums
};

// What the device counts in a step.
struct StepCounts {
  uint32_t missing;  // positions whose keys have no row
  uint32_t created;
  uint32_t short_spans;  // runs over several chunks
  uint32_t long_spans;
  uint32_t is_refused;       // 1: the update must change no row
  uint32_t has_bad_offsets;  // 1: no key is looked up, and gradients are not looked at
};

// Of a feature's outputs, or of their gradients.
struct FeatureRows {
  std::byte* rows;
  uint64_t stride;  // bytes
};

struct StepOutputs {
  FeatureRows* rows;  // [features]
  Dtype dtype;
};

// As SetBatch.
struct BatchView {
  const Key* keys;
  const int64_t* offsets;  // null: a key a bag
  const float* weights;    // null: 1
  uint32_t key_count;
  uint32_t bag_count;
};

// What Prepare finds for each position.
struct FoundRows {
  StepCounts* counts;
  uint32_t* table_missing;  // [step's tables]: positions whose keys have no row
  uint32_t* rows;           // [keys], by position; kNoDeviceRow: none
  uint32_t* bags;           // [keys]: the feature's bag that the position is in; only with offsets
  // Where keys get rows.
  uint32_t* missing;   // [keys]: positions
  uint64_t** entries;  // [keys], of missing[i]
  uint32_t* created;   // [keys]: where they are in `missing`
};

// Positions, by position and sorted.
struct SortedPositions {
  uint32_t* firsts;         // [keys]: the first position of each position's row
  uint32_t* positions;      // [keys]
  uint32_t* sorted_firsts;  // [keys]
  uint32_t* sorted;         // [keys]: positions
  std::byte* scratch;
  size_t scratch_bytes;
};

struct TrainStepView {
  TrainSetView set;
  BatchView batch;
  FeatureView* features;
  uint32_t feature_count;
  const StepTable* tables;
  uint32_t table_count;
  StepGroup* groups;
  uint32_t group_count;
  uint32_t* starts;  // [features + 1]
  StepOutputs outputs;
  FoundRows found;
  SortedPositions order;
  uint32_t number;  // of the steps that can be updated
  // How keys without a row get one.
  enum class NewRows : uint32_t { kNone, kByAdmission, kAll } new_rows;
};

// A run over several chunks.
struct Span {
  uint32_t begin;  // sorted position
  uint32_t parts;  // chunks that have some of it; of a long one not known yet
};

// Gradients on their way to the rows.
struct ReduceView {
  FeatureRows* gradients;  // [features]
  Dtype dtype;             // of the gradients
  StepUpdate* updates;     // [step's tables]
  float* sums;             // of runs, where their first sorted positions are
  float scale;             // of the sums
  float* heads;            // [chunks, dim_max]: parts of runs that began in an earlier chunk
  float* tails;            // [chunks, dim_max]: parts of runs that go on in the next chunk
  Span* spans;             // [chunks]: see ListSpan
  uint32_t chunks;
  uint32_t dim_max;
  float limit;        // a sum's largest magnitude
  bool is_aligned;    // rows, strides and dims of all features are multiples of four elements
  float* verdict;     // becomes infinite, if no row may change
  uint64_t* skipped;  // counts
};

}  // namespace hps
