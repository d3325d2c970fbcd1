// The rows of one table of a device, out and in. Every call waits for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/delta_marks.h"
#include "train/table_rows.h"
#include "train_gpu/device_step.h"
#include "train_gpu/device_storage.h"

namespace hps {

class DeviceRows final : public TableRows {
 public:
  // Everything is borrowed. `progress`: of all tables, guarded by the storage's mutex.
  DeviceRows(DeviceStorage* storage, std::span<TableProgress> progress, size_t table);

  const ShardOptions& options() const override { return storage_->options(table_); }
  absl::StatusOr<ShardRows> ReadRows(bool with_state) override;
  absl::Status WriteRows(const ShardRows& rows) override;
  absl::Status EraseRows(std::span<const Key> keys) override;
  absl::StatusOr<ShardDelta> CollectDelta(DeltaReader reader) override;
  void AcknowledgeDelta(DeltaReader reader, DeltaMark through) override;
  ShardStatistics Statistics() const override;

 private:
  const TrainGroupView& group() const { return storage_->group(storage_->group_of(table_)); }
  size_t width(bool with_state) const;  // of a row in ShardRows
  TableProgress& own() const { return progress_[table_]; }
  cudaStream_t stream() const { return storage_->stream(); }

  // Waits for the work of all steps, erases the table's expired rows, and reads the counters.
  absl::Status Begin();
  // Tells the readers' marks of the rows that were erased since the last call.
  absl::Status NoteErased();
  absl::Status CopyOut(const RowList& list, uint32_t flag, bool with_state, ShardRows& rows) const;
  absl::StatusOr<ShardRows> ReadMatching(const EntryFilter& filter, bool with_state,
                                         uint32_t flag) const;
  absl::Status WriteSome(const ShardRows& rows, size_t begin, size_t end);
  absl::Status WritePendingKeys(const ShardRows& rows);
  absl::Status WriteUpdates(uint32_t updates);
  absl::Status RemoveKeysWithRows(std::vector<Key>& keys) const;

  DeviceStorage* const storage_;
  const std::span<TableProgress> progress_;
  const size_t table_;
  DeltaMarks marks_;
};

}  // namespace hps
