#include "query/lookup_session_impl.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "query/call_pieces.h"
#include "types/names.h"

namespace hps {

// ---- The read path ----

absl::Status LookupSessionImpl::Lookup(const HostLookupRequest& request, LookupCounts* counts) {
  return LookupIn(request, counts);
}

absl::Status LookupSessionImpl::Lookup(const DeviceLookupRequest& request, LookupCounts* counts) {
  if (cache_path_ == nullptr)
    return absl::UnimplementedError("lookup: device queries need a session on a device");
  return LookupIn(request, counts);
}

template <MemorySpace kSpace>
absl::Status LookupSessionImpl::LookupIn(const LookupRequest<kSpace>& request,
                                         LookupCounts* counts) {
  const LiveModel::Guard guard(parts_.model, parts_.reader,
                               parts_.pin.snapshot());  // one snapshot for the whole call
  HPS_RETURN_IF_ERROR(CheckRequest(request, session_tables_, guard.snapshot()));
  deadlines_.Begin(request.timeout, CancelPoint::Of(request.cancel));
  const bool has_stream = kSpace == MemorySpace::kDevice && request.stream.handle != nullptr;
  if (cache_path_ != nullptr) {
    cache_path_->BeginCall({.space = kSpace,
                            .stream = request.stream,
                            .is_behind_callers_work = has_stream && !request.stream_is_idle});
  }
  LookupCounts sum;
  try {
    HPS_RETURN_IF_ERROR(LookupPieces(request, guard, sum));
  } catch (const std::bad_alloc&) {
    if (cache_path_ != nullptr) cache_path_->Abandon(*piece_, *next_piece_);
    host_->PromoteHeld(guard);  // rows that have been fetched already
    return OutOfMemory("lookup: out of memory; try again later");
  }
  if (counts != nullptr) *counts = sum;
  parts_.shared.lookups.Add(parts_.number, 1);
  return absl::OkStatus();
}

// One piece after the other. On a device, the next one is probed while the misses of the present
// one are answered: neither the device nor the host's threads wait for the other.
template <MemorySpace kSpace>
absl::Status LookupSessionImpl::LookupPieces(const LookupRequest<kSpace>& request,
                                             const LiveModel::Guard& guard, LookupCounts& sum) {
  CallPieces<kSpace> pieces(request.queries, parts_.options.keys_max,
                            [this](TableIndex table) { return output_row_bytes(table); });
  BeginPiece(*piece_, pieces.piece(), request, guard.snapshot());
  for (;;) {
    const bool is_last = !pieces.Next();
    const auto begin_next = [&] {
      if (is_last) return;
      BeginPiece(*next_piece_, pieces.piece(), request, guard.snapshot());
      cache_path_->ProbeAhead(*next_piece_, *piece_);
    };
    if (cache_path_ != nullptr) {
      HPS_RETURN_IF_ERROR(cache_path_->Answer(*piece_, *next_piece_, guard, begin_next));
    } else {
      host_->Answer(*piece_, guard);
    }
    Count(sum);
    host_->PromoteHeld(guard);
    if (is_last) return absl::OkStatus();
    if (next_piece_ != nullptr && next_piece_->cache->is_probing()) {
      std::swap(piece_, next_piece_);
      // The last piece may have found that a level 2 fails, or may have used up the time to ask it.
      for (TableLookup& table : piece_->tables) host_->ListAskedParts(table);
    } else {
      BeginPiece(*piece_, pieces.piece(), request, guard.snapshot());
    }
  }
}

// ---- Its steps, in order ----

template <MemorySpace kSpace>
void LookupSessionImpl::BeginPiece(PieceLookup& piece, std::span<const TableQuery<kSpace>> queries,
                                   const LookupRequest<kSpace>& request,
                                   const ModelSnapshot& snapshot) {
  piece.arena.Reset();
  piece.queries.clear();
  piece.tables.clear();
  std::fill(piece.table_by_index.begin(), piece.table_by_index.end(), nullptr);
  for (const TableQuery<kSpace>& query : queries) {
    TableLookup*& table = piece.table_by_index[query.table.value];
    if (table == nullptr) {
      table = &piece.tables.emplace_back();
      table->queries = piece.queries.data();
      BeginTable(*table, query.table, request.hit_rate_threshold, snapshot);
    }
    QueryLookup& work = piece.queries.emplace_back();
    work.table = table;
    work.keys = query.keys.data();
    work.key_count = query.keys.size();
    work.status = query.status.empty() ? nullptr : query.status.data();
    work.out = OutputRows(
        *table->table, parts_.options.output_dtype == Dtype::kFloat32, query.rows.data(),
        query.row_stride_bytes == 0 ? output_row_bytes(query.table) : query.row_stride_bytes);
    (table->first_query == nullptr ? table->first_query : table->last_query->next_of_table) = &work;
    table->last_query = &work;
    table->key_count += work.key_count;
  }
}

void LookupSessionImpl::BeginTable(TableLookup& table, TableIndex index,
                                   std::optional<double> threshold, const ModelSnapshot& snapshot) {
  LiveTable* served = snapshot.table(session_tables_[index.value].slot);
  table.table = served;
  table.counters = session_tables_[index.value].counters;
  table.hit_rate_threshold = threshold.value_or(served->hit_rate_threshold());
  table.epoch = served->epochs().published();
  host_->ListAskedParts(table);
  table.cache = parts_.cache_index;
  const bool has_l1 = table.cache != kNoCache && served->l1(table.cache) != nullptr &&
                      !served->l1_health(table.cache).quarantined();
  table.top = has_l1 ? TableLookup::Top::kL1 : TableLookup::TopOnHost(*served);
}

void LookupSessionImpl::Count(LookupCounts& sum) {
  for (const QueryLookup& query : piece_->queries) {
    query.table->counters->Add(parts_.number, query.counts, parts_.cache_index);
    for (size_t i = 0; i < kKeyStatusCount; ++i) sum.by_status[i] += query.counts.by_status[i];
  }
}

// ---- Making a session, and what it knows of the tables ----

absl::StatusOr<std::unique_ptr<LookupSession>> LookupSessionImpl::Create(Parts parts) {
  try {
    std::unique_ptr<LookupSessionImpl> session(new LookupSessionImpl(std::move(parts)));
    HPS_RETURN_IF_ERROR(session->ListTables());
    session->MakeSteps();
    return session;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("session: no memory for its scratch");
  }
}

LookupSessionImpl::LookupSessionImpl(Parts parts)
    : parts_(std::move(parts)), deadlines_(parts_.shared.fetch->clock(), parts_.shared.timeout) {}

// Needs the list of tables.
void LookupSessionImpl::MakeSteps() {
  const size_t keys_max = parts_.options.keys_max;
  const size_t table_count = specs_.size();
  piece_ = std::make_unique<PieceLookup>(keys_max, table_count, parts_.cache);
  size_t converted_bytes_max = 0;
  for (const TableSpec& spec : specs_) {
    if (parts_.options.output_dtype.has_value())
      converted_bytes_max = std::max(converted_bytes_max, spec.row_bytes());
  }
  host_ = std::make_unique<HostLevels>(parts_.shared, deadlines_, keys_max, converted_bytes_max);
  if (parts_.cache == nullptr) return;
  next_piece_ = std::make_unique<PieceLookup>(keys_max, table_count, parts_.cache);
  cache_path_ =
      std::make_unique<CachePath>(parts_.shared, *host_, deadlines_, *parts_.health, keys_max);
}

absl::Status LookupSessionImpl::ListTables() {
  const LiveModel::Guard guard(parts_.model, parts_.reader, parts_.pin.snapshot());
  if (guard.snapshot().number() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("session: model '", parts_.model.name(), "' has no tables yet"));
  }
  if (guard.snapshot().unloaded()) {
    return absl::UnavailableError(absl::StrCat("session: model '", parts_.model.name(),
                                               "' was unloaded; load it to use it again"));
  }
  for (const auto& served : guard.snapshot().tables()) {
    SessionTable table{.spec = served->spec(), .slot = parts_.model.SlotOf(served->spec().name)};
    table.counters = &parts_.model.counters(table.slot);
    table.output_row_bytes = parts_.options.output_dtype.has_value()
                                 ? size_t{table.spec.dim} * sizeof(float)
                                 : table.spec.row_bytes();
    specs_.push_back(table.spec);
    session_tables_.push_back(std::move(table));
  }
  return absl::OkStatus();
}

absl::StatusOr<TableIndex> LookupSessionImpl::FindTable(std::string_view name) const {
  const bool has_model = name.find('/') != std::string_view::npos;
  const std::string full_name =
      has_model ? std::string(name) : absl::StrCat(parts_.model.name(), "/", std::string(name));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].name == full_name) return TableIndex{i};
    names.push_back(specs_[i].name);
  }
  return absl::NotFoundError(absl::StrCat("session: model '", parts_.model.name(),
                                          "' has no table '", std::string(name), "'",
                                          NearestNameHint(full_name, names)));
}

size_t LookupSessionImpl::output_row_bytes(TableIndex table) const {
  return table.value < session_tables_.size() ? session_tables_[table.value].output_row_bytes : 0;
}

}  // namespace hps
