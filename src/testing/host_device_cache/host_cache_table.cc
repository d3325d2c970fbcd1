#include "testing/host_device_cache/host_cache_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr uint64_t kWatermarkBytesMin = Fence::kWatermarksMin * sizeof(ApplyEpoch);
// A watermark of 8 bytes for every 64 slots is less than this.
constexpr uint64_t kWatermarkBytesPerSlab = 1;
static_assert(kWatermarkBytesPerSlab * 64 > SlabTable::kSlabSlots * sizeof(ApplyEpoch));

}  // namespace

uint64_t HostCacheTable::BytesOf(size_t row_bytes, uint64_t slab_count) {
  const std::optional<uint64_t> with_watermarks =
      CheckedMultiply(slab_count, SlabTable::SlabBytes(row_bytes) + kWatermarkBytesPerSlab);
  if (!with_watermarks.has_value()) return std::numeric_limits<uint64_t>::max();
  const uint64_t slabs = slab_count * SlabTable::SlabBytes(row_bytes);
  return CheckedAdd(sizeof(HostCacheTable), std::max(*with_watermarks, slabs + kWatermarkBytesMin))
      .value_or(std::numeric_limits<uint64_t>::max());
}

uint64_t HostCacheTable::SlabsWithin(size_t row_bytes, uint64_t bytes_max) {
  constexpr uint64_t kFixedBytes = sizeof(HostCacheTable) + kWatermarkBytesMin;
  if (bytes_max < kFixedBytes) return 0;
  const uint64_t slab_bytes = SlabTable::SlabBytes(row_bytes);
  return std::min((bytes_max - kFixedBytes) / slab_bytes,
                  (bytes_max - sizeof(HostCacheTable)) / (slab_bytes + kWatermarkBytesPerSlab));
}

absl::StatusOr<std::unique_ptr<HostCacheTable>> HostCacheTable::Create(size_t row_bytes,
                                                                       size_t slab_count,
                                                                       ByteBudget::Lease budget) {
  HPS_ASSIGN_OR_RETURN(SlabTable slabs, SlabTable::Create(slab_count, row_bytes));
  return std::unique_ptr<HostCacheTable>(new HostCacheTable(std::move(slabs), std::move(budget)));
}

HostCacheTable::HostCacheTable(SlabTable slabs, ByteBudget::Lease budget)
    : row_bytes_(slabs.row_bytes()),
      bytes_(BytesOf(slabs.row_bytes(), slabs.slab_count())),
      budget_(std::move(budget)),
      fence_(slabs.slab_count() * SlabTable::kSlabSlots),
      slabs_(std::move(slabs)),
      frequency_words_(4 * slabs_.slab_count()),
      frequencies_(frequency_words_, SlabTable::kSlabSlots * slabs_.slab_count()) {}

bool HostCacheTable::Read(Key key, std::byte* row) const {
  MutexLock lock(mutex_);
  const std::byte* held = slabs_.FindAndTouch(key);
  if (held == nullptr) return false;
  std::memcpy(row, held, row_bytes_);
  return true;
}

void HostCacheTable::Check(const RowBatch& batch) const {
  HPS_CHECK(batch.rows.row_count >= batch.keys.size() && batch.absent.empty());
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == row_bytes_);
}

absl::StatusOr<uint64_t> HostCacheTable::InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) {
  Check(batch);
  uint64_t refused_count = 0;
  const Fence::Insertion insertion(fence_, epoch);
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    const Key key = batch.keys[i];
    MutexLock lock(mutex_);
    if (!insertion.Admits(key)) {
      ++refused_count;
      ++statistics_.refused;
    } else if (slabs_.Find(key) == nullptr) {
      InsertOne(key, {batch.rows.row(i), row_bytes_}, batch.admission);
    }
  }
  return refused_count;
}

void HostCacheTable::InsertOne(Key key, std::span<const std::byte> row, Admission admission) {
  const auto may_evict = [&]() HPS_REQUIRES(mutex_) {
    return admission == Admission::kAlways ||
           (admission == Admission::kFrequent && frequencies_.IsFrequent(key));
  };
  switch (slabs_.Insert(key, row, may_evict)) {
    case SlabTable::Inserted::kNo:
      ++(admission == Admission::kIfRoom ? statistics_.dropped : statistics_.not_admitted);
      break;
    case SlabTable::Inserted::kByEviction:
      ++statistics_.evictions;
      ++statistics_.insertions;
      break;
    case SlabTable::Inserted::kWithRoom:
      ++statistics_.insertions;
      break;
  }
}

absl::Status HostCacheTable::Update(const RowBatch& batch, Deadline) {
  Check(batch);
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    MutexLock lock(mutex_);
    std::byte* held = slabs_.Find(batch.keys[i]);
    if (held == nullptr) continue;
    std::memcpy(held, batch.rows.row(i), row_bytes_);
    ++statistics_.updates;
  }
  return absl::OkStatus();
}

absl::Status HostCacheTable::UpdateFrom(size_t keys_max, const FillUpdate& fill,
                                        Deadline deadline) {
  HPS_CHECK(keys_max > 0 && keys_max <= UpdateFromKeysMax(row_bytes_));
  std::vector<Key> keys(keys_max);
  std::vector<std::byte> memory(keys_max * row_bytes_);
  const HostRows rows = {.data = memory.data(),
                         .row_count = keys_max,
                         .row_bytes = row_bytes_,
                         .stride_bytes = row_bytes_};
  HPS_ASSIGN_OR_RETURN(const size_t count, fill(keys, rows));
  return Update({.keys = std::span(keys).first(count), .rows = rows}, deadline);
}

absl::Status HostCacheTable::Erase(std::span<const Key> keys, Deadline) {
  for (Key key : keys) {
    MutexLock lock(mutex_);
    slabs_.Erase(key);
  }
  return absl::OkStatus();
}

absl::Status HostCacheTable::RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                             Deadline deadline) {
  return fence_.Raise(keys, epoch, deadline);
}

absl::StatusOr<size_t> HostCacheTable::Dump(uint64_t* cursor, std::span<Key> out, Deadline) {
  HPS_CHECK(out.size() >= kDumpKeysMin);
  size_t count = 0;
  for (; out.size() - count >= SlabTable::kSlabSlots; ++*cursor) {
    MutexLock lock(mutex_);
    if (*cursor >= slabs_.slab_count()) {
      if (count == 0) slabs_.EndDump();
      break;
    }
    count += slabs_.DumpSlab(*cursor, out.subspan(count));
  }
  return count;
}

absl::Status HostCacheTable::Clear() {
  MutexLock lock(mutex_);
  slabs_.Clear();
  return absl::OkStatus();
}

absl::Status HostCacheTable::Flush(Deadline) { return absl::OkStatus(); }

LevelStatistics HostCacheTable::Statistics() const {
  MutexLock lock(mutex_);
  LevelStatistics statistics = statistics_;
  statistics.entries = slabs_.key_count();
  statistics.bytes_used = bytes_;
  statistics.bytes_max = bytes_;
  return statistics;
}

}  // namespace hps
