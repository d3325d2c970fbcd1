// A step in device memory, as its kernels see it.
//
// Features are in the order of their groups, and of their tables within a group. Their keys, in
// this order, have positions: position v is the key v - starts[f] of feature f. A row's place is
// its number among the step's different rows, by first position. A key without a row has a place of
// its own, so that all gradients are looked at.
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
  float scale;
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
  uint32_t place_begin;
  uint32_t place_end;
  uint64_t sums_begin;  // in ReduceView::sums
};

// What the device counts in a step.
struct StepCounts {
  uint32_t missing;  // positions whose keys have no row
  uint32_t created;
  uint32_t spans;            // runs over several chunks
  uint32_t is_refused;       // 1: the update must change no row
  uint32_t has_bad_offsets;  // 1: no key is looked up, and gradients are not looked at
};

// Of a feature's outputs, or of their gradients.
struct FeatureRows {
  float* rows;
  uint64_t stride;
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

// Positions sorted by the first positions of their rows.
struct SortedPositions {
  uint32_t* firsts;         // [keys], by position
  uint32_t* positions;      // [keys], by position
  uint32_t* sorted_firsts;  // [keys]
  uint32_t* sorted;         // [keys]: positions
  uint32_t* places;         // [keys]: one more than the place of the position's row
  std::byte* scratch;
  size_t scratch_bytes;
};

// A row of the step.
struct alignas(16) StepPlace {
  Key key;
  uint32_t row;    // kNoDeviceRow: the key has none
  uint32_t table;  // among the step's tables
};
struct StepPlaces {
  StepPlace* places;  // [keys]
  uint32_t* begins;   // [keys + 1]: the first sorted position of each place
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
  uint32_t* starts;      // [features + 1]
  FeatureRows* outputs;  // [features]
  FoundRows found;
  SortedPositions order;
  StepPlaces places;
  uint32_t number;  // of the steps that can be updated
  // How keys without a row get one.
  enum class NewRows : uint32_t { kNone, kByAdmission, kAll } new_rows;
};

// Gradients on their way to the rows.
struct ReduceView {
  const FeatureRows* gradients;  // [features]
  StepUpdate* updates;           // [step's tables]
  float* sums;                   // of places, in their order, `dim` of its group each
  float* heads;                  // [chunks, dim_max]: parts of runs that began in an earlier chunk
  float* tails;                  // [chunks, dim_max]: parts of runs that go on in the next chunk
  uint32_t* spans;               // [chunks]: chunks with a tail
  uint32_t dim_max;
  float limit;        // a sum's largest magnitude
  bool is_aligned;    // rows, strides and dims of all features are multiples of four floats
  float* verdict;     // becomes 0, or infinite
  uint64_t* skipped;  // counts
};

}  // namespace hps
