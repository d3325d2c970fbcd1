#include "query/cache_lookup.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/macros.h"
#include "base/spin.h"

namespace hps {
namespace {

// A gap in the answers that is smaller than this is sent along. Two pieces instead of one would
// cost another copy: a few microseconds on a GPU, in which PCIe moves this many bytes.
constexpr size_t kGapBytesMax = size_t{128} << 10;

// Answers that are collected before they are sent.
constexpr size_t kPiecesMax = 256;

// A device's reads of level 2 end after this time at the latest, even if the device has not
// answered: it hangs, or has other work to do first. Some ten times what a lookup takes.
constexpr Duration kDirectReadsMax = std::chrono::milliseconds(2);

size_t TotalKeys(std::span<const QueryLookup> queries) {
  size_t total = 0;
  for (const QueryLookup& query : queries) total += query.key_count;
  return total;
}

}  // namespace

CacheLookup::CacheLookup(DeviceCache& cache, size_t cache_index, size_t keys_max)
    : cache_(cache), cache_index_(cache_index), statuses_(new KeyStatus[keys_max]) {
  requests_.reserve(kTablesPerCallMax);
  pieces_.reserve(kPiecesMax);
  direct_reads_.reserve(kTablesPerCallMax);
}

absl::Status CacheLookup::Begin(std::span<QueryLookup> queries, MemorySpace space, Stream stream,
                                CallUse use, bool may_read_level2) {
  use_ = use;
  ready_on_return_ = space == MemorySpace::kHost || stream.handle == nullptr;
  sent_ = absl::OkStatus();
  probes_again_ = false;
  const size_t key_count = TotalKeys(queries);
  HPS_ASSIGN_OR_RETURN(call_, use == CallUse::kLookup ? cache_.AcquireCall(key_count)
                                                      : cache_.AcquireCallAhead(key_count));
  MakeRequests(queries, space);
  NumberMisses(queries);
  if (may_read_level2) BeginDirectReads(queries);
  HPS_RETURN_IF_ERROR(call_->Begin(requests_, stream));
  is_probing_ = true;
  return absl::OkStatus();
}

// Rows that must be converted, or whose key two queries may ask for, are left to the host.
void CacheLookup::BeginDirectReads(std::span<QueryLookup> queries) {
  for (size_t i = 0; i < queries.size(); ++i) {
    const TableLookup& table = *queries[i].table;
    DirectReadable* const l2 = table.table->l2_direct();
    if (l2 == nullptr || table.top != TableLookup::Top::kL1 || !table.asks_l2[0] ||
        !table.has_one_query() || table.hit_rate_threshold < 1.0 || queries[i].out.converts())
      continue;
    const std::optional<size_t> reads = l2->BeginDirectReads();
    if (!reads.has_value()) continue;
    direct_reads_.push_back({l2, *reads});
    requests_[i].direct = &l2->direct_rows();
    queries[i].direct = true;
  }
}

void CacheLookup::EndDirectReads() {
  for (const DirectReads& of : direct_reads_) of.table->EndDirectReads(of.reads);
  direct_reads_.clear();
}

// Returns whether the probe has ended in time. If not, the device may read rows that are being
// overwritten from now on.
bool CacheLookup::EndDirectReadsWithProbe() {
  if (direct_reads_.empty()) return false;
  SpinLimit limit(kDirectReadsMax);
  bool probed = call_->Peek(0).probed;
  while (!probed && limit.Spin()) probed = call_->Peek(0).probed;
  EndDirectReads();
  return probed;
}

// Rows that were read while a change was under way may be newer than what level 1 has taken in
// meanwhile: then the host answers, and has level 1 probed again.
void CacheLookup::TakeDirectAnswers(std::span<QueryLookup> queries, const DeviceMisses& misses,
                                    bool in_time) {
  direct_outcome_ = DirectOutcome();
  for (size_t i = 0; i < queries.size(); ++i) {
    if (!queries[i].direct) continue;
    const TableLookup& table = *queries[i].table;
    const bool changed = table.table->epochs().begun() > table.epoch;
    const bool answered = i < misses.direct.size() && misses.direct[i] != 0;
    queries[i].direct = in_time && !changed && answered;
    direct_outcome_.asked += misses.keys[i].size();
    if (queries[i].direct) direct_outcome_.answered += misses.keys[i].size();
  }
}

// Numbers the misses as if all keys missed, because it is not known yet which of them do.
void CacheLookup::NumberMisses(std::span<QueryLookup> queries) {
  size_t number = 0;
  for (QueryLookup& query : queries) {
    query.first_miss = number;
    query.fetched_ahead = 0;
    number += query.key_count;
  }
}

HostRows CacheLookup::StageAhead(size_t query, size_t row_count) {
  return call_->Staging(query, row_count);
}

void CacheLookup::CopyAhead(const HostRows& rows) {
  if (rows.row_count > 0 && sent_.ok()) sent_ = call_->CopyAhead(rows);
}

void CacheLookup::MakeRequests(std::span<QueryLookup> queries, MemorySpace space) {
  size_t native_bytes = 0;
  for (const QueryLookup& query : queries) {
    if (query.out.converts() && space == MemorySpace::kHost)
      native_bytes += query.key_count * query.table->table->row_bytes();
  }
  requests_.clear();
  std::byte* native = native_rows_.Get(native_bytes);
  for (const QueryLookup& query : queries) {
    const LiveTable& table = *query.table->table;
    const bool has_l1 = query.table->top == TableLookup::Top::kL1;
    DeviceCacheQuery request = {.table = has_l1 ? table.l1(cache_index_) : nullptr,
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
      request.rows = native;
      request.row_stride_bytes = table.row_bytes();
      native += query.key_count * table.row_bytes();
    }
    requests_.push_back(request);
  }
}

absl::Status CacheLookup::TakeMisses(std::span<QueryLookup> queries, std::span<TableLookup> tables,
                                     MissArena& arena, Deadline deadline) {
  const bool direct_in_time = EndDirectReadsWithProbe();
  is_probing_ = false;  // also after an error, where it would be waited for in vain
  HPS_ASSIGN_OR_RETURN(const DeviceMisses misses, call_->Misses(deadline));
  TakeDirectAnswers(queries, misses, direct_in_time);
  Stage(queries, misses);
  for (TableLookup& table : tables) ListMisses(table, queries, misses, arena);
  return absl::OkStatus();
}

// Gives every query a place for the answers to its misses.
void CacheLookup::Stage(std::span<QueryLookup> queries, const DeviceMisses& misses) {
  own_bytes_max_ = own_used_bytes_ = 0;
  for (size_t i = 0; i < queries.size(); ++i)
    own_bytes_max_ += misses.keys[i].size() * queries[i].table->table->row_bytes();
  for (size_t i = 0; i < queries.size(); ++i) {
    QueryLookup& query = queries[i];
    const size_t count = misses.keys[i].size();
    query.staged = true;
    query.staged_status = {statuses_of(query), count};
    query.staged_rows = HostRows();
    if (query.fetched_ahead == count || query.direct) continue;
    std::fill(query.staged_status.begin() + static_cast<std::ptrdiff_t>(query.fetched_ahead),
              query.staged_status.end(), kUnanswered);
    StageRows(i, query);
  }
}

void CacheLookup::StageRows(size_t number, QueryLookup& query) {
  const size_t count = query.staged_status.size();
  const size_t row_bytes = query.table->table->row_bytes();
  query.staged_rows = call_->Staging(number, count);
  if (query.staged_rows.row_count == count) return;
  // Gets the room of all queries each time, so that it does not move while the call needs it.
  query.staged_rows = {.data = own_rows_.Get(own_bytes_max_) + own_used_bytes_,
                       .row_count = count,
                       .row_bytes = row_bytes,
                       .stride_bytes = row_bytes};
  own_used_bytes_ += count * row_bytes;
}

// The misses of one query are unique. If several queries name the table, the same key may be a miss
// of each, so their misses are de-duplicated.
void CacheLookup::ListMisses(TableLookup& table, std::span<QueryLookup> queries,
                             const DeviceMisses& misses, MissArena& arena) {
  if (table.has_one_query()) {
    const size_t number = static_cast<size_t>(table.first_query - queries.data());
    table.misses = arena.ListOf(misses.keys[number]);
    table.missed_positions = misses.positions[number];
    if (table.first_query->direct) table.misses.ClearPending();
    return;
  }
  for (QueryLookup* query = table.first_query; query != nullptr; query = query->next_of_table) {
    const size_t number = static_cast<size_t>(query - queries.data());
    const std::span<const Key> keys = misses.keys[number];
    for (size_t i = 0; i < keys.size(); ++i)
      arena.Add(keys[i], static_cast<uint32_t>(number), static_cast<uint32_t>(i));
    table.missed_positions += misses.positions[number];
  }
  table.misses = arena.MakeList();
}

void CacheLookup::WaitForProbe(Deadline deadline) {
  EndDirectReads();
  if (std::exchange(is_probing_, false)) call_->Misses(deadline).IgnoreError();
}

void CacheLookup::Send(std::span<const DeviceRowPiece> pieces, Deadline deadline) {
  if (pieces.empty()) return;
  if (sent_.ok()) sent_ = call_->Misses(deadline).status();
  Send(pieces);
}

void CacheLookup::Send(std::span<const DeviceRowPiece> pieces) {
  if (pieces.empty() || !sent_.ok()) return;
  probes_again_ |=
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
    std::fill(query.staged_status.begin() + static_cast<std::ptrdiff_t>(query.answered_begin),
              query.staged_status.begin() + static_cast<std::ptrdiff_t>(query.answered_end),
              kUnanswered);
    query.answered_begin = SIZE_MAX;
    query.answered_end = 0;
  }
}

void CacheLookup::AddPiece(const DeviceRowPiece& piece) {
  if (pieces_.size() == kPiecesMax) SendPieces();
  pieces_.push_back(piece);
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
    HostRows rows = query.staged_rows;
    rows.data = query.staged_rows.row(first);
    rows.row_count = has_rows ? end - first : 0;
    AddPiece({.query = number,
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
  if (ready_on_return_ || probes_again_ || waits) HPS_RETURN_IF_ERROR(call->Wait(deadline));
  for (size_t i = 0; i < queries.size(); ++i) queries[i].counts = call->counts(i);
  ProlongBypasses(queries);
  ConvertRows(queries);
  return absl::OkStatus();
}

// A bypassed table stays bypassed until the changes that may have been shown are done.
void CacheLookup::ProlongBypasses(std::span<QueryLookup> queries) {
  for (size_t i = 0; i < queries.size(); ++i) {
    if (requests_[i].table == nullptr)
      queries[i].table->table->l1_health(cache_index_).Quarantine();
  }
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
