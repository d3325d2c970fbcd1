#include "l1_gpu/gpu_cache_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/logging.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/alignment.h"
#include "l1_gpu/kernels/kernels.h"

namespace hps {
namespace {

constexpr uint64_t kCountersBytes = kDeviceAlignment;
static_assert(sizeof(TableCounters) <= kCountersBytes);

// The longest wait if the caller gave no deadline.
constexpr Duration kWriteWaitMax = std::chrono::seconds(60);

uint64_t FixedBytes() { return kCountersBytes + 3 * kDeviceAlignment; }

uint32_t StrideOf(size_t row_bytes) { return RowStrideBytes(static_cast<uint32_t>(row_bytes)); }

// The layout of a step's staging: keys first, then rows. Rows begin at a cache line of the host, so
// that they can be written past its caches.
size_t KeysRoom(size_t key_count) { return RoundUp(key_count * sizeof(Key), 64); }

// A wait with a deadline that found no room is late, not refused.
absl::Status LateStatus(absl::Status status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::DeadlineExceededError(status.message());
}

// Leaks the memory of a table, because freeing it would block on a device that hangs.
void LeakOnHungDevice(int device, DeviceBuffer& memory, PinnedBuffer& counters,
                      ByteBudget::Lease& budget) {
  LogWarning(absl::StrCat("device ", device, " hangs: leaking ", memory.bytes(),
                          " bytes of a table until the process ends"));
  memory.Leak();
  counters.Leak();
  budget.Leak();
}

}  // namespace

uint64_t GpuCacheTable::BytesOf(size_t row_bytes, uint64_t slab_count) {
  constexpr uint64_t kNever = UINT64_MAX;
  if (slab_count > kSlabsMax) return kNever;
  const uint64_t slab_bytes = SlabBytes(static_cast<uint32_t>(row_bytes));
  const auto bytes = CheckedMultiply(slab_count, slab_bytes);
  return bytes.has_value() ? CheckedAdd(*bytes, FixedBytes()).value_or(kNever) : kNever;
}

uint64_t GpuCacheTable::SlabsWithin(size_t row_bytes, uint64_t bytes_max) {
  if (bytes_max < FixedBytes()) return 0;
  const uint64_t slabs = (bytes_max - FixedBytes()) / SlabBytes(static_cast<uint32_t>(row_bytes));
  return std::min<uint64_t>(slabs, kSlabsMax);
}

absl::StatusOr<std::unique_ptr<GpuCacheTable>> GpuCacheTable::Create(size_t row_bytes,
                                                                     uint32_t slab_count,
                                                                     Owner owner) {
  HPS_CHECK(slab_count >= kSlabsMin);
  Writer& writer = *owner.writer;
  const DeviceScope scope(writer.device());
  // On a device that hangs, create nothing: it could not be freed.
  HPS_RETURN_IF_ERROR(writer.FlushToFree());
  HPS_ASSIGN_OR_RETURN(DeviceBuffer memory,
                       MakeDeviceBuffer("a table", BytesOf(row_bytes, slab_count)));
  HPS_ASSIGN_OR_RETURN(PinnedBuffer counters,
                       MakePinnedBuffer("a table's counters", kCountersBytes));
  std::memset(counters.data(), 0, counters.bytes());
  const size_t slabs_bytes = RoundUp(uint64_t{slab_count} * sizeof(Slab), kDeviceAlignment);
  const size_t frequencies_bytes = RoundUp(
      uint64_t{slab_count} * kFrequencyWordsPerSlab * sizeof(FrequencyWord), kDeviceAlignment);
  // Zero everything but the rows, which are at the end.
  const size_t zeroed_bytes = kCountersBytes + slabs_bytes + frequencies_bytes;
  absl::Status zeroed = writer.Submit(writer.hang_detector().deadline(), [&](cudaStream_t stream) {
    return CudaStatus(cudaMemsetAsync(memory.data(), 0, zeroed_bytes, stream),
                      "zeroing a new table");
  });
  // Lookups on other streams must not see the memory's previous content.
  const absl::Status flushed = writer.FlushToFree();
  zeroed.Update(flushed);
  if (absl::IsDeadlineExceeded(flushed)) {
    LeakOnHungDevice(writer.device(), memory, counters, owner.budget);
    // Also if the writer had no room.
    return absl::DeadlineExceededError(zeroed.message());
  }
  HPS_RETURN_IF_ERROR(zeroed);
  const TableView view = {.slabs = memory.at<Slab>(kCountersBytes),
                          .rows = memory.data() + zeroed_bytes,
                          .counters = memory.at<TableCounters>(0),
                          .write_sequence = owner.write_sequence,
                          .slab_count = slab_count,
                          .row_bytes = static_cast<uint32_t>(row_bytes),
                          .row_stride_bytes = StrideOf(row_bytes)};
  return std::unique_ptr<GpuCacheTable>(
      new GpuCacheTable(view, std::move(memory), std::move(counters), std::move(owner)));
}

GpuCacheTable::GpuCacheTable(const TableView& view, DeviceBuffer memory, PinnedBuffer counters,
                             Owner owner)
    : view_(view),
      memory_(std::move(memory)),
      counters_(std::move(counters)),
      owner_(std::move(owner)),
      fence_(size_t{view.slab_count} * kSlabSlots) {}

GpuCacheTable::~GpuCacheTable() {
  const DeviceScope scope(owner_.writer->device());
  if (absl::IsDeadlineExceeded(owner_.writer->FlushToFree()) || !owner_.wait_for_calls())
    LeakOnHungDevice(owner_.writer->device(), memory_, counters_, owner_.budget);
  memory_ = {};
  counters_ = {};
}

TableView GpuCacheTable::view() const {
  TableView view = view_;
  view.stamp_epoch = StampEpoch(Counter(&TableCounters::insertions), view.slab_count);
  return view;
}

// The device may be writing the copy, so each counter is read with one load.
uint64_t GpuCacheTable::Counter(const uint64_t TableCounters::*counter) const {
  const TableCounters* counters = counters_.at<TableCounters>(0);
  return __atomic_load_n(&(counters->*counter), __ATOMIC_RELAXED);
}

absl::Status GpuCacheTable::Counted(absl::Status status) {
  if (!status.ok()) errors_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void GpuCacheTable::Check(const RowBatch& batch) const {
  HPS_CHECK(batch.rows.row_count >= batch.keys.size() && batch.absent.empty());
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == row_bytes());
}

size_t GpuCacheTable::KeysPerStep(size_t row_bytes) const {
  const size_t room_bytes = owner_.writer->step_bytes_max() - 64;
  return std::min(room_bytes / (sizeof(Key) + row_bytes), kKeysPerWriteMax);
}

absl::StatusOr<uint64_t> GpuCacheTable::InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) {
  Check(batch);
  const DeviceScope scope(owner_.writer->device());
  uint64_t refused_count = 0;
  for (size_t first = 0; first < batch.keys.size();) {
    const size_t count = std::min(batch.keys.size() - first, KeysPerStep(row_bytes()));
    // Only a batch of several steps waits for room: it inserts nothing while there is none.
    const Deadline deadline =
        first == 0 ? TimePoint::min() : DeadlineAfter(RealClock(), kWriteWaitMax);
    HPS_ASSIGN_OR_RETURN(Writer::Step step,
                         owner_.writer->Reserve(KeysRoom(count) + count * row_bytes(), deadline,
                                                Writer::kStepsAheadOfInsertionMax));
    HostRows rows = batch.rows;
    rows.data = batch.rows.row(first);
    rows.row_count = count;
    const RowBatch part = {
        .keys = batch.keys.subspan(first, count), .rows = rows, .admission = batch.admission};
    HPS_ASSIGN_OR_RETURN(const uint64_t refused, InsertStep(part, epoch, std::move(step)));
    refused_count += refused;
    first += count;
  }
  return refused_count;
}

absl::StatusOr<uint64_t> GpuCacheTable::InsertStep(const RowBatch& batch, ApplyEpoch epoch,
                                                   Writer::Step step) {
  const size_t keys_room = KeysRoom(batch.keys.size());
  std::byte* key_to = step.host();
  std::byte* row_to = step.host() + keys_room;
  size_t admitted = 0;
  // Held from the check to the launch: Raise waits for it, so that later changes of a raised key
  // are behind this step on the writer's stream.
  const Fence::Insertion insertion(fence_, epoch);
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (!insertion.Admits(batch.keys[i])) continue;
    std::memcpy(key_to + admitted * sizeof(Key), &batch.keys[i], sizeof(Key));
    std::memcpy(row_to + admitted * row_bytes(), batch.rows.row(i), row_bytes());
    ++admitted;
  }
  const uint64_t refused_count = batch.keys.size() - admitted;
  refused_.fetch_add(refused_count, std::memory_order_relaxed);
  if (admitted == 0) return refused_count;
  // Before the launch, and therefore before Raise can end. At worst Raise waits for one step too
  // many.
  uint64_t last = last_insertion_step_.load(std::memory_order_relaxed);
  while (last < step.number() + 1 &&
         !last_insertion_step_.compare_exchange_weak(last, step.number() + 1)) {
  }
  HPS_RETURN_IF_ERROR(
      Submit(Change::kInsert, std::move(step), keys_room, admitted, batch.admission));
  return refused_count;
}

FrequencyWord* GpuCacheTable::frequencies() const {
  const size_t slabs_bytes = RoundUp(uint64_t{view_.slab_count} * sizeof(Slab), kDeviceAlignment);
  return memory_.at<FrequencyWord>(kCountersBytes + slabs_bytes);
}

absl::Status GpuCacheTable::Submit(Change change, Writer::Step step, size_t keys_room,
                                   size_t key_count, Admission admission) {
  const size_t rows_bytes = change == Change::kErase ? 0 : key_count * row_bytes();
  WriteView write = {.keys = static_cast<const Key*>(static_cast<const void*>(step.device())),
                     .rows = step.device() + keys_room,
                     .row_stride_bytes = row_bytes(),
                     .key_count = static_cast<uint32_t>(key_count),
                     .blocks_max = kBackgroundBlocks,
                     .admission = admission,
                     .frequencies = frequencies()};
  const auto launch = [&](cudaStream_t stream) {
    write.table = view();
    cudaError_t launched = cudaSuccess;
    switch (change) {
      case Change::kInsert:
        launched =
            LaunchInsertIfAbsent(write, dumped_slab_count_.load(std::memory_order_relaxed), stream);
        break;
      case Change::kUpdate:
        launched = LaunchUpdate(write, stream);
        break;
      case Change::kErase:
        launched = LaunchErase(write, stream);
        break;
    }
    HPS_RETURN_IF_ERROR(CudaStatus(launched, "the launch of a write"));
    return CopyCounters(stream);
  };
  return Counted(owner_.writer->Submit(std::move(step), keys_room + rows_bytes, launch));
}

absl::Status GpuCacheTable::CopyCounters(cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(counters_.data(), view_.counters, sizeof(TableCounters),
                                    cudaMemcpyDeviceToHost, stream),
                    "copy of the counters");
}

absl::Status GpuCacheTable::Update(const RowBatch& batch, Deadline deadline) {
  Check(batch);
  const DeviceScope scope(owner_.writer->device());
  for (size_t first = 0; first < batch.keys.size();) {
    const size_t count = std::min(batch.keys.size() - first, KeysPerStep(row_bytes()));
    const size_t keys_room = KeysRoom(count);
    auto step = owner_.writer->Reserve(keys_room + count * row_bytes(), deadline);
    if (!step.ok()) return Counted(LateStatus(step.status()));
    std::memcpy(step->host(), batch.keys.data() + first, count * sizeof(Key));
    std::byte* const to = step->host() + keys_room;
    if (batch.rows.stride_bytes == row_bytes()) {
      std::memcpy(to, batch.rows.row(first), count * row_bytes());
    } else {
      for (size_t i = 0; i < count; ++i)
        std::memcpy(to + i * row_bytes(), batch.rows.row(first + i), row_bytes());
    }
    HPS_RETURN_IF_ERROR(Submit(Change::kUpdate, *std::move(step), keys_room, count));
    first += count;
  }
  return absl::OkStatus();
}

absl::Status GpuCacheTable::UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline deadline) {
  HPS_CHECK(keys_max > 0 && keys_max <= UpdateFromKeysMax(row_bytes()));
  const DeviceScope scope(owner_.writer->device());
  const size_t keys_room = KeysRoom(keys_max);
  auto step = owner_.writer->Reserve(keys_room + keys_max * row_bytes(), deadline);
  if (!step.ok()) return Counted(LateStatus(step.status()));
  HPS_ASSIGN_OR_RETURN(const size_t count,
                       fill({static_cast<Key*>(static_cast<void*>(step->host())), keys_max},
                            {.data = step->host() + keys_room,
                             .row_count = keys_max,
                             .row_bytes = row_bytes(),
                             .stride_bytes = row_bytes()}));
  HPS_CHECK(count <= keys_max);
  if (count == 0) return absl::OkStatus();
  return Submit(Change::kUpdate, *std::move(step), keys_room, count);
}

absl::Status GpuCacheTable::Erase(std::span<const Key> keys, Deadline deadline) {
  const DeviceScope scope(owner_.writer->device());
  for (size_t first = 0; first < keys.size();) {
    const size_t count = std::min(keys.size() - first, KeysPerStep(0));
    const size_t keys_room = KeysRoom(count);
    auto step = owner_.writer->Reserve(keys_room, deadline);
    if (!step.ok()) return Counted(LateStatus(step.status()));
    std::memcpy(step->host(), keys.data() + first, count * sizeof(Key));
    HPS_RETURN_IF_ERROR(Submit(Change::kErase, *std::move(step), keys_room, count));
    first += count;
  }
  return absl::OkStatus();
}

absl::Status GpuCacheTable::RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                            Deadline deadline) {
  const DeviceScope scope(owner_.writer->device());
  HPS_RETURN_IF_ERROR(Counted(fence_.Raise(keys, epoch, deadline)));
  const uint64_t last = last_insertion_step_.load(std::memory_order_seq_cst);
  if (last == 0) return absl::OkStatus();
  return Counted(owner_.writer->WaitUntilDone(last - 1, deadline));
}

absl::StatusOr<size_t> GpuCacheTable::Dump(uint64_t* cursor, std::span<Key> out,
                                           Deadline deadline) {
  HPS_CHECK(out.size() >= kDumpKeysMin);
  const DeviceScope scope(owner_.writer->device());
  const size_t room_keys = (owner_.writer->step_bytes_max() - kDeviceAlignment) / sizeof(Key);
  const uint64_t slabs_per_step = std::min(out.size(), room_keys) / kSlabSlots;
  while (*cursor < view_.slab_count) {
    const auto begin = static_cast<uint32_t>(*cursor);
    const auto end =
        static_cast<uint32_t>(std::min<uint64_t>(begin + slabs_per_step, view_.slab_count));
    auto count = DumpSlabs(begin, end, out, deadline);
    if (!count.ok()) return Counted(count.status());
    *cursor = end;
    if (*count > 0) return *count;
  }
  dumped_slab_count_.store(0, std::memory_order_relaxed);
  return size_t{0};
}

absl::StatusOr<size_t> GpuCacheTable::DumpSlabs(uint32_t begin, uint32_t end, std::span<Key> out,
                                                Deadline deadline) {
  const size_t room_bytes = kDeviceAlignment + size_t{end - begin} * kSlabSlots * sizeof(Key);
  auto step = owner_.writer->Reserve(room_bytes, deadline);
  if (!step.ok()) return LateStatus(step.status());
  std::byte* const room = step->device();
  const auto launch = [&](cudaStream_t stream) {
    // Insertions after this launch must not move keys across `end`; earlier ones have completed
    // when it runs.
    dumped_slab_count_.store(end, std::memory_order_relaxed);
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(room, 0, sizeof(uint32_t), stream), "zeroing a dump's count"));
    const cudaError_t launched = LaunchDump(
        view(), {begin, end}, static_cast<Key*>(static_cast<void*>(room + kDeviceAlignment)),
        static_cast<uint32_t*>(static_cast<void*>(room)), stream);
    HPS_RETURN_IF_ERROR(CudaStatus(launched, "the launch of a dump"));
    return CudaStatus(
        cudaMemcpyAsync(step->host(), room, room_bytes, cudaMemcpyDeviceToHost, stream),
        "copy of dumped keys");
  };
  HPS_RETURN_IF_ERROR(owner_.writer->SubmitAndHold(*step, launch));
  HPS_RETURN_IF_ERROR(Writer::WaitForHeld(*step, deadline));
  const auto count = LoadLittleEndian<uint32_t>(step->host());
  HPS_CHECK(count <= out.size());
  if (count > 0) std::memcpy(out.data(), step->host() + kDeviceAlignment, count * sizeof(Key));
  return size_t{count};
}

absl::Status GpuCacheTable::Clear() {
  const DeviceScope scope(owner_.writer->device());
  auto step = owner_.writer->Reserve(0, DeadlineAfter(RealClock(), kWriteWaitMax));
  if (!step.ok()) return Counted(LateStatus(step.status()));
  return Counted(owner_.writer->Submit(*std::move(step), 0, [&](cudaStream_t stream) {
    HPS_RETURN_IF_ERROR(CudaStatus(LaunchClear(view(), stream), "the launch of a clear"));
    return CopyCounters(stream);
  }));
}

// Waits for the writes of all tables, so that a caller that found no room has room afterwards.
absl::Status GpuCacheTable::Flush(Deadline deadline) {
  const DeviceScope scope(owner_.writer->device());
  return owner_.writer->Flush(deadline);
}

LevelStatistics GpuCacheTable::Statistics() const {
  LevelStatistics statistics;
  // Read insertions last: every removed key was inserted before, so the difference never wraps.
  const uint64_t gone = Counter(&TableCounters::evictions) + Counter(&TableCounters::erased) +
                        Counter(&TableCounters::cleared);
  statistics.evictions = Counter(&TableCounters::evictions);
  statistics.updates = Counter(&TableCounters::updates);
  statistics.dropped = Counter(&TableCounters::dropped);
  statistics.not_admitted = Counter(&TableCounters::not_admitted);
  statistics.insertions = Counter(&TableCounters::insertions);
  statistics.entries = statistics.insertions - std::min(gone, statistics.insertions);
  statistics.bytes_used = statistics.bytes_max = BytesOf(row_bytes(), view_.slab_count);
  statistics.refused = refused_.load(std::memory_order_relaxed);
  statistics.errors = errors_.load(std::memory_order_relaxed);
  return statistics;
}

}  // namespace hps
