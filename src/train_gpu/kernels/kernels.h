// Launches of the kernels. They return the launch's error, and wait for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "train_gpu/kernels/layout.h"
#include "train_gpu/kernels/step_view.h"

namespace hps {

// Copies bytes of the host to the device as arguments of kernels: unlike a copy, they may change
// after the call, and a graph keeps them. `to` is aligned to 16 bytes.
cudaError_t WriteToDevice(std::byte* to, std::span<const std::byte> bytes, cudaStream_t stream);

// Prepare. In this order; the last three where keys get rows. `description`: the arrays of
// features, tables and groups. `bags_max`: the most bags of a feature.
cudaError_t StartPositions(const TrainStepView& step, std::span<const std::byte> description,
                           uint32_t bags_max, cudaStream_t stream);
// `is_seen`: the step has the rows, which may be updated.
cudaError_t FindRows(const TrainStepView& step, bool is_seen, cudaStream_t stream);
cudaError_t ClaimEntries(const TrainStepView& step, cudaStream_t stream);
cudaError_t CreateRows(const TrainStepView& step, cudaStream_t stream);
cudaError_t ResolveRows(const TrainStepView& step, cudaStream_t stream);

// Then, where the step can be updated: the first position of each position's row, which the next
// step changes; a stable sort of the positions by it, which is of this step alone.
// OrderScratchBytes launches nothing.
cudaError_t OrderScratchBytes(uint32_t key_count, size_t* bytes);
cudaError_t FindFirsts(const TrainStepView& step, cudaStream_t stream);
cudaError_t OrderPositions(const TrainStepView& step, cudaStream_t stream);

// `rows_max`: the most output rows of a feature. `dim_max`: the widest row. `is_aligned`: rows,
// strides and dims of all outputs are multiples of four elements.
cudaError_t GatherRows(const TrainStepView& step, uint32_t rows_max, uint32_t dim_max,
                       bool is_aligned, cudaStream_t stream);

// `groups`: those of the step.
cudaError_t SumGradients(const TrainStepView& step, const ReduceView& reduce,
                         std::span<const StepGroup> groups, cudaStream_t stream);
// `updates`: of the step's tables.
cudaError_t UpdateRows(const TrainStepView& step, const ReduceView& reduce,
                       std::span<const StepUpdate> updates, std::span<const StepGroup> groups,
                       cudaStream_t stream);

// Index and rows of one table, outside of steps. Lists and rows are in device memory.

// Moves all keys of an index into an empty one.
cudaError_t MoveIndex(const TrainTableView& from, const TrainTableView& to,
                      TrainTableCounters* counters, cudaStream_t stream);

// Keys with a value each: rows, counts or flags.
struct KeyValues {
  Key* keys = nullptr;
  uint32_t* values = nullptr;
};

// Erases the rows that have expired at `step` in some buckets, the table's last one included.
cudaError_t EraseExpired(const TableMemory& memory, uint32_t step, uint64_t bucket_begin,
                         uint64_t bucket_count, cudaStream_t stream);
// Erases the rows of keys.
cudaError_t EraseKeys(const TableMemory& memory, std::span<const Key> keys, cudaStream_t stream);
// Lists keys whose rows were erased and that readers had, with their flags, and forgets them. The
// list has room for as many keys as the counter `noted` says; the caller clears it.
cudaError_t TakeErased(const TableMemory& memory, const KeyValues& list, uint32_t* count,
                       cudaStream_t stream);
// Forgets keys that wait for admission and came at most so often.
cudaError_t ForgetPending(const TableMemory& memory, uint32_t count_max, cudaStream_t stream);

// What ListEntries looks for.
struct EntryFilter {
  bool is_pending = false;    // true: keys that wait for admission; the rest is ignored
  bool is_all = true;         // false: only rows that changed after, or were seen after:
  uint32_t change_after = 0;  // a change
  uint32_t seen_after = 0;    // a step
};
// Appends keys with their rows or counts to the list, and counts them.
cudaError_t ListEntries(const TableMemory& memory, const EntryFilter& filter, const KeyValues& list,
                        uint32_t* count, cudaStream_t stream);

// Sorts a list by key, or rows by the step that had them last, those of one step as they are.
struct ListSort {
  KeyValues from;
  KeyValues to;              // by age: the values are of no use
  uint32_t* ages = nullptr;  // [count], for SortByAge
  uint32_t count = 0;
  std::span<std::byte> scratch;
};
cudaError_t SortScratchBytes(uint32_t count, size_t* bytes);
cudaError_t SortByKey(const ListSort& sort, cudaStream_t stream);
cudaError_t SortByAge(const TrainGroupView& group, const ListSort& sort, cudaStream_t stream);

struct RowCopy {
  float* values = nullptr;        // [rows, width]
  uint32_t* last_seen = nullptr;  // [rows]; null: vectors only, width is dim
  uint32_t* updates = nullptr;    // [rows]
  // Of rows that are copied in.
  uint32_t seen = 0;    // without state, the last step of all of them
  uint32_t change = 0;  // the number of the change
};
// `flag`: is set in the rows' records; 0: none.
cudaError_t CopyRowsOut(const TrainGroupView& group, std::span<const uint32_t> rows, uint32_t flag,
                        const RowCopy& to, cudaStream_t stream);
// Without state, the rows keep theirs. With it, they are marked as published.
cudaError_t CopyRowsIn(const TrainGroupView& group, std::span<const uint32_t> rows,
                       const RowCopy& from, cudaStream_t stream);

// Sets the counts of keys that wait for admission; a key that has a row is left alone.
cudaError_t WritePending(const TableMemory& memory, const KeyValues& list, uint32_t count,
                         cudaStream_t stream);
// `found` [keys]: whether the key has a row.
cudaError_t HaveRows(const TrainTableView& table, std::span<const Key> keys, uint32_t* found,
                     cudaStream_t stream);

}  // namespace hps
