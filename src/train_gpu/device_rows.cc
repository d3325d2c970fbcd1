#include "train_gpu/device_rows.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "gpu/cuda_status.h"
#include "train_gpu/kernels/kernels.h"

namespace hps {
namespace {

// Of values that are copied at a time.
constexpr size_t kBlockBytes = size_t{64} << 20;

absl::Status CopyToDevice(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                    "copying rows to the device");
}

absl::Status CopyToHost(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
                    "copying rows to the host");
}

absl::Status Wait(cudaStream_t stream) {
  return CudaStatus(cudaStreamSynchronize(stream), "copying rows");
}

template <typename T>
absl::StatusOr<DeviceBuffer> Uploaded(std::span<const T> values, cudaStream_t stream) {
  HPS_ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer("rows", values.size_bytes()));
  HPS_RETURN_IF_ERROR(CopyToDevice(buffer.data(), values.data(), values.size_bytes(), stream));
  return buffer;
}

}  // namespace

DeviceRows::DeviceRows(DeviceStorage* storage, std::span<TableProgress> progress, size_t table)
    : storage_(storage), progress_(progress), table_(table) {}

size_t DeviceRows::width(bool with_state) const {
  return options().dim + (with_state ? options().optimizer.state_count(options().dim) : 0);
}

absl::Status DeviceRows::Begin() {
  HPS_RETURN_IF_ERROR(storage_->Enter(stream()));
  HPS_RETURN_IF_ERROR(EraseAllExpired(*storage_, table_, own(), stream()));
  HPS_RETURN_IF_ERROR(storage_->ReadCounters(stream()));
  return NoteErased();
}

absl::Status DeviceRows::NoteErased() {
  const size_t noted = storage_->table_counters(table_).noted;
  if (noted == 0) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer keys, MakeDeviceBuffer("keys", noted * sizeof(Key)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer flags,
                       MakeDeviceBuffer("keys", noted * sizeof(uint32_t)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer counted, MakeDeviceBuffer("keys", sizeof(uint32_t)));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(counted.data(), 0, counted.bytes(), stream()),
                                 "listing erased rows"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(TakeErased(storage_->memory(table_), {keys.at<Key>(0), flags.at<uint32_t>(0)},
                            counted.at<uint32_t>(0), stream()),
                 "listing erased rows"));
  uint32_t* const counter = &storage_->counters(table_)->noted;
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(counter, 0, sizeof(*counter), stream()), "listing erased rows"));
  std::vector<Key> host_keys(noted);
  std::vector<uint32_t> host_flags(noted);
  HPS_RETURN_IF_ERROR(CopyToHost(host_keys.data(), keys.data(), keys.bytes(), stream()));
  HPS_RETURN_IF_ERROR(CopyToHost(host_flags.data(), flags.data(), flags.bytes(), stream()));
  HPS_RETURN_IF_ERROR(Wait(stream()));
  // These rows were erased after every acknowledged delta, so the present change can stand for
  // theirs.
  for (size_t i = 0; i < noted; ++i) {
    marks_.AddErased(host_keys[i], (host_flags[i] & kEntryPublished) != 0,
                     (host_flags[i] & kEntrySaved) != 0, own().change);
  }
  return absl::OkStatus();
}

absl::Status DeviceRows::CopyOut(const RowList& list, uint32_t flag, bool with_state,
                                 ShardRows& rows) const {
  const size_t count = list.count;
  rows.keys.resize(count);
  HPS_RETURN_IF_ERROR(CopyToHost(rows.keys.data(), list.keys.data(), list.keys.bytes(), stream()));
  const size_t each = width(with_state);
  const size_t at_once = std::max<size_t>(kBlockBytes / (each * sizeof(float)), 1);
  const size_t block = std::min(at_once, count);
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer values,
                       MakeDeviceBuffer("rows", block * each * sizeof(float)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer history,
                       MakeDeviceBuffer("rows", 2 * block * sizeof(uint32_t)));
  rows.values.resize(count * each);
  if (with_state) {
    rows.last_seen.resize(count);
    rows.update_counts.resize(count);
  }
  for (size_t begin = 0; begin < count; begin += block) {
    const size_t size = std::min(block, count - begin);
    RowCopy to{.values = values.at<float>(0)};
    if (with_state) {
      to.last_seen = history.at<uint32_t>(0);
      to.updates = to.last_seen + block;
    }
    HPS_RETURN_IF_ERROR(
        CudaStatus(CopyRowsOut(group(), {list.rows.at<uint32_t>(begin * sizeof(uint32_t)), size},
                               flag, to, stream()),
                   "copying rows"));
    HPS_RETURN_IF_ERROR(CopyToHost(rows.values.data() + begin * each, values.data(),
                                   size * each * sizeof(float), stream()));
    if (with_state) {
      HPS_RETURN_IF_ERROR(CopyToHost(rows.last_seen.data() + begin, to.last_seen,
                                     size * sizeof(uint32_t), stream()));
      HPS_RETURN_IF_ERROR(CopyToHost(rows.update_counts.data() + begin, to.updates,
                                     size * sizeof(uint32_t), stream()));
    }
    HPS_RETURN_IF_ERROR(Wait(stream()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardRows> DeviceRows::ReadMatching(const EntryFilter& filter, bool with_state,
                                                   uint32_t flag) const {
  HPS_ASSIGN_OR_RETURN(const RowList list, ListRows(*storage_, table_, filter, stream()));
  ShardRows rows;
  HPS_RETURN_IF_ERROR(CopyOut(list, flag, with_state, rows));
  rows.step = own().step;
  rows.table_updates = storage_->table_counters(table_).updates;
  if (!with_state) return rows;
  HPS_ASSIGN_OR_RETURN(const RowList pending,
                       ListRows(*storage_, table_, {.is_pending = true}, stream()));
  rows.pending_keys.resize(pending.count);
  rows.pending_counts.resize(pending.count);
  HPS_RETURN_IF_ERROR(
      CopyToHost(rows.pending_keys.data(), pending.keys.data(), pending.keys.bytes(), stream()));
  HPS_RETURN_IF_ERROR(
      CopyToHost(rows.pending_counts.data(), pending.rows.data(), pending.rows.bytes(), stream()));
  HPS_RETURN_IF_ERROR(Wait(stream()));
  return rows;
}

absl::StatusOr<ShardRows> DeviceRows::ReadRows(bool with_state) {
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  HPS_RETURN_IF_ERROR(Begin());
  return ReadMatching({}, with_state, 0);
}

absl::Status DeviceRows::WriteRows(const ShardRows& rows) {
  HPS_RETURN_IF_ERROR(ValidateRows(rows, options()));
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  HPS_RETURN_IF_ERROR(Begin());
  own().step = std::max(own().step, rows.step);
  ++own().change;
  if (rows.table_updates > storage_->table_counters(table_).updates)
    HPS_RETURN_IF_ERROR(WriteUpdates(rows.table_updates));
  const size_t each = width(!rows.update_counts.empty());
  const size_t block = std::max<size_t>(kBlockBytes / (each * sizeof(float)), 1);
  for (size_t begin = 0; begin < rows.keys.size(); begin += block)
    HPS_RETURN_IF_ERROR(WriteSome(rows, begin, std::min(begin + block, rows.keys.size())));
  return WritePendingKeys(rows);
}

absl::Status DeviceRows::WriteUpdates(uint32_t updates) {
  HPS_RETURN_IF_ERROR(
      CopyToDevice(&storage_->counters(table_)->updates, &updates, sizeof(updates), stream()));
  return Wait(stream());
}

absl::Status DeviceRows::WriteSome(const ShardRows& rows, size_t begin, size_t end) {
  const bool with_state = !rows.update_counts.empty();
  const size_t count = end - begin;
  const size_t each = width(with_state);
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer keys,
                       Uploaded(std::span(rows.keys).subspan(begin, count), stream()));
  HPS_ASSIGN_OR_RETURN(
      const DeviceBuffer values,
      Uploaded(std::span(rows.values).subspan(begin * each, count * each), stream()));
  DeviceBuffer seen;
  DeviceBuffer updates;
  RowCopy from{.values = values.at<float>(0), .seen = own().step, .change = own().change};
  if (with_state) {
    HPS_ASSIGN_OR_RETURN(seen, Uploaded(std::span(rows.last_seen).subspan(begin, count), stream()));
    HPS_ASSIGN_OR_RETURN(updates,
                         Uploaded(std::span(rows.update_counts).subspan(begin, count), stream()));
    from.last_seen = seen.at<uint32_t>(0);
    from.updates = updates.at<uint32_t>(0);
  }
  const auto bags = static_cast<int64_t>(count);
  const SetBatch batch{.keys = {keys.at<const Key>(0), count}, .bag_counts = {&bags, 1}};
  DeviceStep step(storage_, progress_, {table_}, {{.name = options().name}});
  HPS_ASSIGN_OR_RETURN(const size_t bytes, step.PrepareBytes(batch, StepMode::kTrain));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer memory, MakeDeviceBuffer("new rows", bytes));
  HPS_RETURN_IF_ERROR(step.InsertRows(batch, {memory.data(), memory.bytes()}, stream()));
  HPS_RETURN_IF_ERROR(
      CudaStatus(CopyRowsIn(group(), {step.rows(), count}, from, stream()), "copying rows"));
  HPS_RETURN_IF_ERROR(Wait(stream()));
  return storage_->TakeFullIndex();
}

absl::Status DeviceRows::WritePendingKeys(const ShardRows& rows) {
  const size_t count = rows.pending_keys.size();
  if (count == 0) return absl::OkStatus();
  const NewKeys added{.tables = {{.table = table_, .count = count}},
                      .total = 0};  // they need no rows
  HPS_RETURN_IF_ERROR(storage_->MakeRoom(added, added, stream()));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer keys,
                       Uploaded(std::span<const Key>(rows.pending_keys), stream()));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer counts,
                       Uploaded(std::span<const uint32_t>(rows.pending_counts), stream()));
  HPS_RETURN_IF_ERROR(
      CudaStatus(WritePending(storage_->memory(table_), {keys.at<Key>(0), counts.at<uint32_t>(0)},
                              static_cast<uint32_t>(count), stream()),
                 "copying keys that wait"));
  storage_->AddTaken(added, stream());
  return Wait(stream());
}

absl::Status DeviceRows::EraseRows(std::span<const Key> keys) {
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  HPS_RETURN_IF_ERROR(Begin());
  ++own().change;
  if (keys.empty()) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer device_keys, Uploaded(keys, stream()));
  HPS_RETURN_IF_ERROR(CudaStatus(
      EraseKeys(storage_->memory(table_), {device_keys.at<Key>(0), keys.size()}, stream()),
      "erasing rows"));
  return Wait(stream());
}

absl::Status DeviceRows::RemoveKeysWithRows(std::vector<Key>& keys) const {
  if (keys.empty()) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer device_keys,
                       Uploaded(std::span<const Key>(keys), stream()));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer have,
                       MakeDeviceBuffer("keys", keys.size() * sizeof(uint32_t)));
  HPS_RETURN_IF_ERROR(
      CudaStatus(HaveRows(storage_->table(table_), {device_keys.at<Key>(0), keys.size()},
                          have.at<uint32_t>(0), stream()),
                 "looking for rows"));
  std::vector<uint32_t> found(keys.size());
  HPS_RETURN_IF_ERROR(CopyToHost(found.data(), have.data(), have.bytes(), stream()));
  HPS_RETURN_IF_ERROR(Wait(stream()));
  size_t kept = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (found[i] == 0) keys[kept++] = keys[i];
  }
  keys.resize(kept);
  return absl::OkStatus();
}

absl::StatusOr<ShardDelta> DeviceRows::CollectDelta(DeltaReader reader) {
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  HPS_RETURN_IF_ERROR(Begin());
  const bool is_saved = reader == DeltaReader::kCheckpoint;
  const DeltaMark mark = marks_.of(reader);
  ++own().change;
  ShardDelta delta{.through = {.change = own().change, .step = own().step}};
  // A row that a step had without changing it is of no interest to a publication.
  const EntryFilter filter{.is_all = mark.change == 0,
                           .change_after = mark.change,
                           .seen_after = is_saved ? mark.step : UINT32_MAX};
  HPS_ASSIGN_OR_RETURN(delta.changed,
                       ReadMatching(filter, is_saved, is_saved ? kEntrySaved : kEntryPublished));
  if (is_saved && mark.change == 0) return delta;
  delta.erased = marks_.ErasedKeys(reader);
  HPS_RETURN_IF_ERROR(RemoveKeysWithRows(delta.erased));
  return delta;
}

void DeviceRows::AcknowledgeDelta(DeltaReader reader, DeltaMark through) {
  const MutexLock lock(storage_->mutex());
  marks_.Acknowledge(reader, through);
}

ShardStatistics DeviceRows::Statistics() const {
  const MutexLock lock(storage_->mutex());
  const DeviceScope scope(storage_->device());
  // If the device fails, the counters of the last reading are returned.
  if (storage_->Enter(stream()).ok()) storage_->ReadCounters(stream()).IgnoreError();
  const TrainTableCounters& counters = storage_->table_counters(table_);
  return {.rows = counters.rows,
          .bytes = storage_->IndexBytes(table_) + storage_->RowBytes(table_) + marks_.bytes(),
          .pending = counters.pending,
          .erased = counters.erased,
          .step = own().step};
}

}  // namespace hps
