#include "inference/device_lookup.h"

#include <algorithm>

#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + RowRoom::kTableAlignment - 1) / RowRoom::kTableAlignment *
         RowRoom::kTableAlignment;
}

}  // namespace

bool DeviceLookup::Takes(Plans plans) {
  return std::all_of(plans.begin(), plans.end(), [](const ExecutionPlan* plan) {
    return plan->is_prediction &&
           std::none_of(plan->parts.begin(), plan->parts.end(), [](const TablePart& part) {
             return part.rows().is_set() || DatatypeBytes(part.key_type) != sizeof(Key);
           });
  });
}

DeviceLookup::Size DeviceLookup::SizeOf(const ExecutionPlan& plan) {
  Size size;
  for (const TablePart& part : plan.parts) {
    size.keys += part.key_count;
    size.row_bytes += Aligned(part.key_count * part.row_bytes);
  }
  return size;
}

absl::Status DeviceLookup::Run(LookupSession& session, RowRoom& room, Plans plans,
                               const Options& options, LookupCounts& counts) {
  PlaceParts(plans);
  if (key_count_ == 0) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const RowRoom::Room made,
                       options.part.has_value() ? room.MakePart(pieces_, row_bytes_, *options.part)
                                                : room.Make(pieces_, row_bytes_));
  // Of a single plan the counts tell whether it is complete.
  MakeQueries(made, plans.size() > 1);
  if (queries_.size() > kTablesPerCallMax)
    return absl::ResourceExhaustedError("more tables than one lookup takes");
  HPS_RETURN_IF_ERROR(session.Lookup(DeviceLookupRequest{.queries = queries_,
                                                         .timeout = options.timeout,
                                                         .cancel = options.cancel,
                                                         .stream = room.stream(),
                                                         // The room has waited for it.
                                                         .stream_is_idle = true},
                                     &counts));
  return CountDegraded(room, plans, counts[KeyStatus::kDefaultDegraded]);
}

// Those of a table one after the other, so that the network can read them together.
void DeviceLookup::PlaceParts(Plans plans) {
  parts_.clear();
  pieces_.clear();
  key_count_ = 0;
  row_bytes_ = 0;
  for (ExecutionPlan* plan : plans) {
    plan->degraded_count = 0;
    for (TablePart& part : plan->parts) parts_.push_back({.part = &part, .plan = plan});
  }
  std::stable_sort(parts_.begin(), parts_.end(), [](const PlacedPart& a, const PlacedPart& b) {
    return a.part->table < b.part->table;
  });
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TablePart& part = *parts_[i].part;
    if (i == 0 || parts_[i - 1].part->table != part.table) row_bytes_ = Aligned(row_bytes_);
    parts_[i].rows_at = row_bytes_;
    pieces_.push_back({.keys = part.keys, .key_count = part.key_count});
    key_count_ += part.key_count;
    row_bytes_ += part.key_count * part.row_bytes;
  }
}

void DeviceLookup::MakeQueries(const RowRoom::Room& room, bool with_statuses) {
  queries_.clear();
  size_t first_key = 0;
  for (size_t i = 0; i < parts_.size();) {
    const uint32_t table = parts_[i].part->table;
    const uint64_t rows_at = parts_[i].rows_at;
    size_t key_count = 0;
    uint64_t row_bytes = 0;
    for (; i < parts_.size() && parts_[i].part->table == table; ++i) {
      TablePart& part = *parts_[i].part;
      part.network_rows = room.rows + parts_[i].rows_at;
      key_count += part.key_count;
      row_bytes += part.key_count * part.row_bytes;
    }
    DeviceTableQuery& query = queries_.emplace_back();
    query.table = {table};
    query.keys = {room.keys + first_key, key_count};
    query.rows = {room.rows + rows_at, row_bytes};
    if (with_statuses) query.status = {room.statuses + first_key, key_count};
    first_key += key_count;
  }
}

absl::Status DeviceLookup::CountDegraded(RowRoom& room, Plans plans, uint64_t degraded_count) {
  if (degraded_count == 0) return absl::OkStatus();
  if (plans.size() == 1) {
    plans.front()->degraded_count = degraded_count;
    return absl::OkStatus();
  }
  statuses_.resize(key_count_);
  HPS_RETURN_IF_ERROR(room.ReadStatuses(statuses_));
  auto next = statuses_.begin();
  for (const PlacedPart& placed : parts_) {
    const auto end = next + static_cast<std::ptrdiff_t>(placed.part->key_count);
    placed.plan->degraded_count +=
        static_cast<size_t>(std::count(next, end, KeyStatus::kDefaultDegraded));
    next = end;
  }
  return absl::OkStatus();
}

}  // namespace hps
