#include "query/cache_lookup.h"

#include <algorithm>
#include <utility>

#include "base/macros.h"

namespace hps {
namespace {

size_t TotalKeys(std::span<const QueryWork> works) {
  size_t total = 0;
  for (const QueryWork& work : works) total += work.key_count;
  return total;
}

}  // namespace

absl::Status CacheLookup::Probe(std::span<QueryWork> works, MemorySpace space, Stream stream,
                                MissArena& arena, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(DeviceCallLease call, cache_.AcquireCall(TotalKeys(works)));
  MakeQueries(works, space);
  HPS_RETURN_IF_ERROR(call->Begin(queries_, stream));
  HPS_ASSIGN_OR_RETURN(const DeviceMisses misses, call->Misses(deadline));
  call_ = std::move(call);
  Stage(works, misses, arena);
  return absl::OkStatus();
}

void CacheLookup::MakeQueries(std::span<QueryWork> works, MemorySpace space) {
  size_t native_bytes = 0;
  for (const QueryWork& work : works) {
    if (work.out.converts()) native_bytes += work.key_count * work.table->row_bytes();
  }
  if (native_rows_.size() < native_bytes) native_rows_.resize(native_bytes);
  queries_.clear();
  std::byte* native = native_rows_.data();
  for (const QueryWork& work : works) {
    ServedTable& table = *work.table;
    const bool passed_by = table.l1_bypass(cache_index_).bypassed();
    DeviceCacheQuery query = {.table = passed_by ? nullptr : table.l1(cache_index_),
                              .space = space,
                              .keys = work.keys,
                              .key_count = work.key_count,
                              .rows = work.out.row(0),
                              .row_bytes = table.row_bytes(),
                              .row_stride_bytes = work.out.stride_bytes(),
                              .status = work.status,
                              .default_row = table.default_row()};
    if (work.out.converts()) {
      query.rows = native;
      query.row_stride_bytes = table.row_bytes();
      native += work.key_count * table.row_bytes();
    }
    queries_.push_back(query);
  }
}

void CacheLookup::Stage(std::span<QueryWork> works, const DeviceMisses& misses, MissArena& arena) {
  statuses_.resize(std::max(statuses_.size(), misses.keys.size()));
  size_t own_bytes = 0;
  for (size_t i = 0; i < works.size(); ++i) {
    QueryWork& work = works[i];
    const size_t first = misses.begin[i];
    const size_t count = misses.begin[i + 1] - first;
    const size_t row_bytes = work.table->row_bytes();
    work.misses = arena.ListOf(misses.keys.subspan(first, count));
    work.missed_positions = misses.positions[i];
    work.staged = true;
    work.staged_status = {statuses_.data() + first, count};
    work.staged_rows = call_->Staging(i, count);
    if (work.staged_rows.row_count >= count) continue;
    work.staged_rows = {.row_count = count, .row_bytes = row_bytes, .stride_bytes = row_bytes};
    own_bytes += count * row_bytes;
  }
  if (staged_rows_.size() < own_bytes) staged_rows_.resize(own_bytes);
  std::byte* own = staged_rows_.data();
  for (QueryWork& work : works) {
    if (work.staged_rows.data != nullptr) continue;
    work.staged_rows.data = own;
    own += work.staged_rows.row_count * work.staged_rows.row_bytes;
  }
}

absl::Status CacheLookup::Finish(std::span<QueryWork> works, MemorySpace space, Deadline deadline) {
  const DeviceCallLease call = std::move(call_);
  pieces_.clear();
  bool probes_again = false;
  for (size_t i = 0; i < works.size(); ++i) {
    const QueryWork& work = works[i];
    if (work.misses.size() == 0) continue;
    const bool changed = work.table->epochs().begun() > work.epoch;
    probes_again |= changed;
    HostRows rows = work.staged_rows;
    rows.row_count = work.misses.size();
    pieces_.push_back(
        {.query = i, .statuses = work.staged_status, .rows = rows, .probe_again = changed});
  }
  if (!pieces_.empty()) HPS_RETURN_IF_ERROR(call->Finish(pieces_));
  if (space == MemorySpace::kHost || probes_again) HPS_RETURN_IF_ERROR(call->Wait(deadline));
  for (size_t i = 0; i < works.size(); ++i) works[i].counts = call->counts(i);
  ProlongBypasses(works);
  ConvertRows(works);
  return absl::OkStatus();
}

// A table that was passed by stays so until the changes that may have been shown are done.
void CacheLookup::ProlongBypasses(std::span<QueryWork> works) {
  for (size_t i = 0; i < works.size(); ++i) {
    if (queries_[i].table == nullptr) works[i].table->l1_bypass(cache_index_).Trip();
  }
}

void CacheLookup::ConvertRows(std::span<QueryWork> works) {
  for (size_t i = 0; i < works.size(); ++i) {
    const QueryWork& work = works[i];
    if (!work.out.converts()) continue;
    for (size_t position = 0; position < work.key_count; ++position)
      work.out.Write(position, queries_[i].rows + position * queries_[i].row_stride_bytes);
  }
}

}  // namespace hps
