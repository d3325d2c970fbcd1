#include "query/cache_lookup.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

// A gap in the answers that is smaller than this is sent along. Two pieces instead of one would
// cost another copy: a few microseconds on a GPU, in which PCIe moves this many bytes.
constexpr size_t kGapBytesMax = size_t{128} << 10;

// Answers that are collected before they are sent.
constexpr size_t kPiecesMax = 256;

size_t TotalKeys(std::span<const QueryLookup> queries) {
  size_t total = 0;
  for (const QueryLookup& query : queries) total += query.key_count;
  return total;
}

}  // namespace

CacheLookup::CacheLookup(DeviceCache& cache, size_t keys_max)
    : cache_(cache), statuses_(new KeyStatus[keys_max]) {
  requests_.reserve(kTablesPerCallMax);
  pieces_.reserve(kPiecesMax);
}

absl::Status CacheLookup::Begin(std::span<QueryLookup> queries, MemorySpace space, Stream stream,
                                CallUse use, MissRoute* route) {
  use_ = use;
  awaits_rows_ = space == MemorySpace::kHost || stream.handle == nullptr;
  sent_ = absl::OkStatus();
  const size_t key_count = TotalKeys(queries);
  HPS_ASSIGN_OR_RETURN(call_, use == CallUse::kLookup ? cache_.AcquireCall(key_count)
                                                      : cache_.AcquireCallAhead(key_count));
  MakeRequests(queries, space);
  if (route != nullptr && route->LetsDeviceRead(key_count)) direct_reads_.Begin(queries, requests_);
  HPS_RETURN_IF_ERROR(call_->Begin(requests_, stream));
  is_probing_ = true;
  return absl::OkStatus();
}

// Numbers the misses as if all keys missed, because it is not known yet which of them do.
void CacheLookup::MakeRequests(std::span<QueryLookup> queries, MemorySpace space) {
  size_t native_bytes = 0;
  for (const QueryLookup& query : queries) {
    if (query.out.converts() && space == MemorySpace::kHost)
      native_bytes += query.key_count * query.table->table->row_bytes();
  }
  requests_.clear();
  native_rows_.Begin(native_bytes);
  size_t number = 0;
  for (QueryLookup& query : queries) {
    query.first_miss = std::exchange(number, number + query.key_count);
    query.fetched_ahead = 0;
    query.staged_status = {statuses_.get() + query.first_miss, 0};
    const LiveTable& table = *query.table->table;
    const bool has_l1 = query.table->top == TableLookup::Top::kL1;
    DeviceCacheQuery request = {.table = has_l1 ? table.l1(query.table->cache) : nullptr,
                                .space = space,
                                .keys = query.keys,
                                .key_count = query.key_count,
                                .rows = query.out.row(0),
                                .row_bytes = table.row_bytes(),
                                .row_stride_bytes = query.out.stride_bytes(),
                                .status = query.status,
                                .default_row = table.default_row()};
    if (query.out.converts() && space == MemorySpace::kDevice) {
      request.convert_from = table.spec().dtype;
    } else if (query.out.converts()) {
      request.rows = native_rows_.Take(query.key_count * table.row_bytes());
      request.row_stride_bytes = table.row_bytes();
    }
    requests_.push_back(request);
  }
}

absl::StatusOr<ProbeFigures> CacheLookup::TakeMisses(std::span<QueryLookup> queries,
                                                     std::span<TableLookup> tables,
                                                     MissArena& arena, Deadline deadline) {
  direct_reads_.EndWithProbe(*call_);
  is_probing_ = false;  // also after an error, where it would be waited for in vain
  HPS_ASSIGN_OR_RETURN(const DeviceMisses misses, call_->Misses(deadline));
  ProbeFigures found{.keys = TotalKeys(queries)};
  direct_reads_.TakeAnswers(queries, misses, &found);
  Stage(queries, misses);
  for (TableLookup& table : tables) {
    ListMisses(table, misses, arena);
    found.misses += table.misses.size();
  }
  return found;
}

// Gives every query a place for the answers to its misses.
void CacheLookup::Stage(std::span<QueryLookup> queries, const DeviceMisses& misses) {
  size_t own_bytes_max = 0;  // as if the device lent none to any query
  for (size_t i = 0; i < queries.size(); ++i)
    own_bytes_max += misses.keys[i].size() * queries[i].table->table->row_bytes();
  own_rows_.Begin(own_bytes_max);
  for (size_t i = 0; i < queries.size(); ++i) {
    QueryLookup& query = queries[i];
    const size_t count = misses.keys[i].size();
    query.staged = true;
    query.staged_status = {query.staged_status.data(), count};
    query.staged_rows = HostRows();
    if (query.fetched_ahead == count || query.direct) continue;
    std::ranges::fill(query.staged_status.subspan(query.fetched_ahead), kUnanswered);
    StageRows(i, query);
  }
}

void CacheLookup::StageRows(size_t number, QueryLookup& query) {
  const size_t count = query.staged_status.size();
  const size_t row_bytes = query.table->table->row_bytes();
  query.staged_rows = call_->Staging(number, count);
  if (query.staged_rows.row_count == count) return;
  query.staged_rows = {.data = own_rows_.Take(count * row_bytes),
                       .row_count = count,
                       .row_bytes = row_bytes,
                       .stride_bytes = row_bytes};
}

// The misses of one query are unique. If several queries name the table, the same key may be a miss
// of each, so their misses are de-duplicated.
void CacheLookup::ListMisses(TableLookup& table, const DeviceMisses& misses, MissArena& arena) {
  if (table.has_one_query()) {
    const size_t number = table.NumberOf(*table.first_query);
    table.misses = arena.ListOf(misses.keys[number]);
    table.missed_positions = misses.positions[number];
    if (table.first_query->direct) table.misses.ClearPending();
    return;
  }
  for (QueryLookup* query = table.first_query; query != nullptr; query = query->next_of_table) {
    const uint32_t number = table.NumberOf(*query);
    const std::span<const Key> keys = misses.keys[number];
    for (size_t i = 0; i < keys.size(); ++i) arena.Add(keys[i], number, static_cast<uint32_t>(i));
    table.missed_positions += misses.positions[number];
  }
  table.misses = arena.MakeList();
}

void CacheLookup::WaitForProbe(Deadline deadline) {
  direct_reads_.End();
  if (std::exchange(is_probing_, false)) call_->Misses(deadline).IgnoreError();
}

void CacheLookup::Send(std::span<const DeviceRowPiece> pieces, Deadline deadline) {
  if (!pieces.empty() && sent_.ok()) sent_ = call_->Misses(deadline).status();
  Send(pieces);
}

void CacheLookup::Send(std::span<const DeviceRowPiece> pieces) {
  if (pieces.empty() || !sent_.ok()) return;
  awaits_rows_ |=
      std::ranges::any_of(pieces, [](const DeviceRowPiece& piece) { return piece.reprobe; });
  sent_ = call_->Finish(pieces);
}

void CacheLookup::SendAnswered(std::span<QueryLookup> queries, Deadline deadline) {
  pieces_.clear();
  if (sent_.ok()) sent_ = call_->Misses(deadline).status();
  for (size_t i = 0; i < queries.size(); ++i) AddPieces(i, queries[i]);
  SendPieces();
  for (QueryLookup& query : queries) {
    if (query.answered_begin >= query.answered_end) continue;
    const size_t count = query.answered_end - query.answered_begin;
    std::ranges::fill(query.staged_status.subspan(query.answered_begin, count), kUnanswered);
    query.answered_begin = SIZE_MAX;
    query.answered_end = 0;
  }
}

void CacheLookup::SendPieces() {
  Send(pieces_);
  pieces_.clear();
}

// Adds the answers of one query, in as few pieces as possible without sending large gaps.
void CacheLookup::AddPieces(size_t number, QueryLookup& query) {
  if (query.answered_begin >= query.answered_end) return;
  const size_t gap_max = kGapBytesMax / query.staged_rows.row_bytes;
  // Read after the rows were fetched: a change that has begun later is in none of them.
  const bool changed = query.table->table->epochs().begun() > query.table->epoch;
  size_t first = 0;
  size_t end = 0;  // of the piece that is being made; 0 = none
  bool has_rows = false;
  const auto add = [&] {
    if (pieces_.size() == kPiecesMax) SendPieces();
    HostRows rows = query.staged_rows;
    rows.data = query.staged_rows.row(first);
    rows.row_count = has_rows ? end - first : 0;
    pieces_.push_back({.query = number,
                       .first = first,
                       .statuses = query.staged_status.subspan(first, end - first),
                       .rows = rows,
                       .reprobe = changed});
  };
  for (size_t i = query.answered_begin; i < query.answered_end; ++i) {
    const KeyStatus status = query.staged_status[i];
    if (status == kUnanswered) continue;
    if (end > 0 && i - end > gap_max) {
      add();
      end = 0;
    }
    if (end == 0) {
      first = i;
      has_rows = false;
    }
    has_rows |= status == KeyStatus::kHitL2 || status == KeyStatus::kHitL3;
    end = i + 1;
  }
  if (end > 0) add();
}

absl::Status CacheLookup::Finish(std::span<QueryLookup> queries, Deadline deadline, bool waits) {
  const DeviceCallLease call = std::move(call_);
  HPS_RETURN_IF_ERROR(sent_);
  const auto widens = [](const DeviceCacheQuery& request) {
    return request.convert_from != Dtype::kFloat32;
  };
  if (std::ranges::any_of(requests_, widens)) HPS_RETURN_IF_ERROR(call->ConvertToFloat32());
  // Costs nothing if all keys have hit and the device has written the rows itself.
  if (awaits_rows_ || waits) HPS_RETURN_IF_ERROR(call->Wait(deadline));
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i].counts = call->counts(i);
    // A bypassed table stays bypassed until the changes that may have been shown are done.
    const TableLookup& table = *queries[i].table;
    if (requests_[i].table == nullptr) table.table->l1_health(table.cache).Quarantine();
  }
  ConvertRows(queries);
  return absl::OkStatus();
}

void CacheLookup::ConvertRows(std::span<QueryLookup> queries) {
  for (size_t i = 0; i < queries.size(); ++i) {
    const QueryLookup& query = queries[i];
    if (!query.out.converts() || requests_[i].space == MemorySpace::kDevice) continue;
    for (size_t position = 0; position < query.key_count; ++position)
      query.out.Write(position, requests_[i].rows + position * requests_[i].row_stride_bytes);
  }
}

}  // namespace hps
