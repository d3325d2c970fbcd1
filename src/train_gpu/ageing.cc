#include "train_gpu/ageing.h"

#include <algorithm>

#include "base/macros.h"
#include "gpu/cuda_status.h"

namespace hps {
namespace {

// Keys that wait for admission; beyond, those that came once are forgotten.
constexpr uint32_t kPendingKeysMax = uint32_t{1} << 24;
// The share of a bounded table that is erased at a time, so that looking for the oldest rows is
// rare.
constexpr uint64_t kErasedShare = 16;

// Erases the least recently seen rows; of equal ones, those with the smallest keys.
absl::Status EraseOldest(DeviceStorage& storage, size_t table, cudaStream_t stream) {
  HPS_ASSIGN_OR_RETURN(const RowList all, ListRows(storage, table, {}, stream));
  const uint64_t rows_max = storage.options(table).rows_max;
  const uint64_t kept = rows_max - rows_max / kErasedShare;
  if (all.count <= kept) return absl::OkStatus();
  size_t scratch_bytes = 0;
  HPS_RETURN_IF_ERROR(CudaStatus(SortScratchBytes(all.count, &scratch_bytes), "sorting rows"));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer scratch, MakeDeviceBuffer("ages", scratch_bytes));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer ages,
                       MakeDeviceBuffer("ages", uint64_t{all.count} * 2 * sizeof(uint32_t)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer keys,
                       MakeDeviceBuffer("keys", uint64_t{all.count} * sizeof(Key)));
  const TableMemory memory = storage.memory(table);
  const ListSort sort{.from = {all.keys.at<Key>(0), all.rows.at<uint32_t>(0)},
                      .to = {keys.at<Key>(0), ages.at<uint32_t>(all.count * sizeof(uint32_t))},
                      .ages = ages.at<uint32_t>(0),
                      .count = all.count,
                      .scratch = {scratch.data(), scratch.bytes()}};
  HPS_RETURN_IF_ERROR(CudaStatus(SortByAge(memory.group, sort, stream), "sorting rows"));
  HPS_RETURN_IF_ERROR(
      CudaStatus(EraseKeys(memory, {keys.at<Key>(0), all.count - kept}, stream), "erasing rows"));
  return storage.ReadCounters(stream);
}

// Expired rows go first, all of them: how many of them are left otherwise depends on how far the
// sweep has come, and a table that was loaded from a checkpoint has none.
absl::Status KeepBound(DeviceStorage& storage, size_t table, const TableProgress& progress,
                       cudaStream_t stream) {
  const uint64_t rows_max = storage.options(table).rows_max;
  if (rows_max == 0 || storage.RowsBound(table) <= rows_max) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(storage.ReadCounters(stream));
  if (storage.table_counters(table).rows <= rows_max) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(EraseAllExpired(storage, table, progress, stream));
  HPS_RETURN_IF_ERROR(storage.ReadCounters(stream));
  if (storage.table_counters(table).rows <= rows_max) return absl::OkStatus();
  return EraseOldest(storage, table, stream);
}

absl::Status KeepFewPending(DeviceStorage& storage, size_t table, cudaStream_t stream) {
  for (const uint32_t count_max : {1U, kPendingMax}) {
    if (storage.table_counters(table).pending <= kPendingKeysMax) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(CudaStatus(ForgetPending(storage.memory(table), count_max, stream),
                                   "forgetting keys that wait"));
    HPS_RETURN_IF_ERROR(storage.ReadCounters(stream));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowList> ListRows(const DeviceStorage& storage, size_t table,
                                 const EntryFilter& filter, cudaStream_t stream) {
  const TrainTableCounters& counters = storage.table_counters(table);
  const uint64_t most = filter.is_pending ? counters.pending : counters.rows;
  RowList list;
  if (most == 0) return list;
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer keys, MakeDeviceBuffer("keys", most * sizeof(Key)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer rows, MakeDeviceBuffer("rows", most * sizeof(uint32_t)));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer counted, MakeDeviceBuffer("rows", sizeof(uint32_t)));
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(counted.data(), 0, counted.bytes(), stream), "listing rows"));
  const KeyValues found{keys.at<Key>(0), rows.at<uint32_t>(0)};
  HPS_RETURN_IF_ERROR(
      CudaStatus(ListEntries(storage.memory(table), filter, found, counted.at<uint32_t>(0), stream),
                 "listing rows"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(&list.count, counted.data(), sizeof(list.count),
                                                 cudaMemcpyDeviceToHost, stream),
                                 "listing rows"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "listing rows"));
  if (list.count == 0) return list;
  size_t scratch_bytes = 0;
  HPS_RETURN_IF_ERROR(CudaStatus(SortScratchBytes(list.count, &scratch_bytes), "sorting rows"));
  HPS_ASSIGN_OR_RETURN(const DeviceBuffer scratch, MakeDeviceBuffer("keys", scratch_bytes));
  HPS_ASSIGN_OR_RETURN(list.keys, MakeDeviceBuffer("keys", list.count * sizeof(Key)));
  HPS_ASSIGN_OR_RETURN(list.rows, MakeDeviceBuffer("rows", list.count * sizeof(uint32_t)));
  const ListSort sort{.from = found,
                      .to = {list.keys.at<Key>(0), list.rows.at<uint32_t>(0)},
                      .count = list.count,
                      .scratch = {scratch.data(), scratch.bytes()}};
  HPS_RETURN_IF_ERROR(CudaStatus(SortByKey(sort, stream), "sorting rows"));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "sorting rows"));
  return list;
}

absl::Status EraseAllExpired(const DeviceStorage& storage, size_t table,
                             const TableProgress& progress, cudaStream_t stream) {
  if (storage.options(table).expire_after == 0) return absl::OkStatus();
  return CudaStatus(EraseExpired(storage.memory(table), progress.step, 0,
                                 storage.table(table).bucket_count, stream),
                    "erasing rows that have expired");
}

absl::Status BeginAges(DeviceStorage& storage, size_t table, TableProgress& progress,
                       cudaStream_t stream) {
  if (const uint32_t expire_after = storage.options(table).expire_after; expire_after != 0) {
    const uint64_t buckets = storage.table(table).bucket_count;
    const uint64_t share = std::min(buckets / expire_after + 1, buckets);
    HPS_RETURN_IF_ERROR(CudaStatus(
        EraseExpired(storage.memory(table), progress.step, progress.sweep % buckets, share, stream),
        "erasing rows that have expired"));
    progress.sweep = (progress.sweep + share) % buckets;
  }
  HPS_RETURN_IF_ERROR(KeepBound(storage, table, progress, stream));
  return KeepFewPending(storage, table, stream);
}

}  // namespace hps
