#include "update/table_applier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "types/elements.h"

namespace hps {
namespace {

absl::Status CheckShape(const TableSpec& spec, const TableApplier::DirectChange& change) {
  const std::string about = absl::StrCat("table '", spec.name, "': ");
  if (change.is_delete) {
    if (change.rows.empty()) return absl::OkStatus();
    return Public(absl::InvalidArgumentError(about + "a delete takes keys only, no rows"));
  }
  if (change.dtype != spec.dtype && change.dtype != Dtype::kFloat32) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat(about, "the rows are ", std::string(DtypeName(change.dtype)),
                     ", the table has ", std::string(DtypeName(spec.dtype)))));
  }
  if (change.dim != spec.dim) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat(about, "the rows have dim ", change.dim, ", the table has dim ", spec.dim)));
  }
  const size_t bytes = change.keys.size() * change.dim * ElementBytes(change.dtype);
  if (change.rows.size() != bytes) {
    return Public(
        absl::InvalidArgumentError(absl::StrCat(about, change.keys.size(), " keys need ", bytes,
                                                " bytes of rows, found ", change.rows.size())));
  }
  return absl::OkStatus();
}

// The rows in the table's type, in `converted` if they had another one.
absl::StatusOr<std::span<const std::byte>> RowsFor(const TableSpec& spec,
                                                   const TableApplier::DirectChange& change,
                                                   std::vector<std::byte>* converted) {
  if (change.is_delete || change.dtype == spec.dtype) return change.rows;
  absl::StatusOr<std::vector<std::byte>> rows = ConvertChangedRows(change.rows, spec.dtype);
  if (!rows.ok()) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat("table '", spec.name, "': ", rows.status().message())));
  }
  *converted = *std::move(rows);
  return *converted;
}

absl::Status OtherSource(const std::string& table, std::string_view has, std::string_view refused) {
  return Public(absl::FailedPreconditionError(absl::StrCat(
      "table '", table, "' takes its changes from ", std::string(has), " since its last import; ",
      std::string(refused), " is refused until it is imported again")));
}

absl::Status WouldReachOneNode(const std::string& table) {
  return Public(absl::FailedPreconditionError(absl::StrCat(
      "table '", table,
      "' was imported with an import id, so that nodes can share its rows: a direct change would "
      "reach this node only. Publish it to the update stream, or import the table without an "
      "import id")));
}

}  // namespace

absl::Status TableApplier::ApplyDirect(const DirectChange& change, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, Acquire(deadline));
  DurableTable& l3 = L3Of(lease);
  HPS_RETURN_IF_ERROR(CheckShape(l3.spec(), change));
  if (source_.has_import_id) return WouldReachOneNode(table_);
  if (source_.kind == Source::Kind::kStream)
    return OtherSource(table_, "the update stream", "a direct change");
  if (change.keys.empty()) return absl::OkStatus();
  std::vector<std::byte> converted;
  HPS_ASSIGN_OR_RETURN(const std::span<const std::byte> rows,
                       RowsFor(l3.spec(), change, &converted));
  // A failed change may be visible in level 3, so its version is not used again.
  const uint64_t number = source_.next_direct++;
  const StreamPosition position = {.generation = kDirectGeneration, .offset = number + 1};
  const std::vector<Version> versions(change.is_delete ? 0 : change.keys.size(),
                                      VersionAt(kDirectGeneration, number));
  DurableWrite write;
  write.positions = {&position, 1};
  if (change.is_delete) {
    write.deletes = change.keys;
  } else {
    const size_t row_bytes = l3.spec().row_bytes();
    write.upserts = {.keys = change.keys,
                     .rows = {.data = const_cast<std::byte*>(rows.data()),  // not written
                              .row_count = change.keys.size(),
                              .row_bytes = row_bytes,
                              .stride_bytes = row_bytes},
                     .versions = versions};
  }
  HPS_RETURN_IF_ERROR(Change(lease, write));
  source_.kind = Source::Kind::kDirect;
  if (lease.live() != nullptr) refresh_.RefreshNow(*lease.live(), keys_, deadline);
  return absl::OkStatus();
}

absl::Status TableApplier::ApplyStream(const StreamChange& change, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, Acquire(deadline));
  if (L3Of(lease).incarnation() != change.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", table_, "' was imported again: its stream begins anew"));
  }
  if (source_.kind == Source::Kind::kDirect)
    return OtherSource(table_, "direct changes", "the update stream");
  HPS_RETURN_IF_ERROR(Change(lease, change.write, change.publish_times_us));
  source_.kind = Source::Kind::kStream;
  if (lease.live() != nullptr) refresh_.Note(*lease.live(), keys_, change.publish_times_us);
  return absl::OkStatus();
}

// The lease of a table that can be written. Forgets what is known of the levels of a LiveTable that
// was replaced.
absl::StatusOr<WriteLease> TableApplier::Acquire(Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(WriteLease lease, registry_.AcquireWriter(table_, deadline));
  const std::shared_ptr<LiveTable>& live = lease.live();
  if (live_.owner_before(live) || live.owner_before(live_)) {
    live_ = live;
    levels_.Reset();
    refresh_.Reset();
  }
  if (live != nullptr) {
    unloaded_ = nullptr;
    if (!live->l3().IsCurrent()) {
      return Public(absl::UnavailableError(absl::StrCat(
          "table '", table_, "' was imported again or dropped, and its model is not loaded yet")));
    }
  } else if (unloaded_ == nullptr || !unloaded_->IsCurrent()) {
    HPS_ASSIGN_OR_RETURN(unloaded_, store_.OpenTable(table_));
  }
  DurableTable& l3 = L3Of(lease);
  if (l3.incarnation() != source_.incarnation) {
    HPS_ASSIGN_OR_RETURN(source_, SourceOf(l3));
  }
  return lease;
}

absl::StatusOr<TableApplier::Source> TableApplier::SourceOf(DurableTable& l3) {
  HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> positions, l3.Positions());
  Source source = {.incarnation = l3.incarnation(),
                   .kind = positions.empty() ? Source::Kind::kNone : Source::Kind::kStream,
                   .has_import_id = !l3.Info().import_id.empty()};
  for (const StreamPosition& position : positions) {
    if (position.generation != kDirectGeneration) continue;
    source.kind = Source::Kind::kDirect;
    source.next_direct = position.offset;
  }
  return source;
}

absl::Status TableApplier::Change(const WriteLease& lease, const DurableWrite& write,
                                  std::span<const int64_t> publish_times_us) {
  LiveTable* const live = lease.live().get();
  const absl::Status status = live == nullptr ? WriteL3(*unloaded_, write, publish_times_us)
                                              : ChangeLevels(*live, write, publish_times_us);
  if (!status.ok()) {
    changes_failed_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  rows_upserted_.fetch_add(write.upserts.keys.size(), std::memory_order_relaxed);
  rows_deleted_.fetch_add(write.deletes.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

// Level 1 is yet to be refreshed. After an error its keys are noted for that.
absl::Status TableApplier::ChangeLevels(LiveTable& live, const DurableWrite& write,
                                        std::span<const int64_t> publish_times_us) {
  levels_.Clear(live);
  keys_.assign(write.upserts.keys.begin(), write.upserts.keys.end());
  keys_.insert(keys_.end(), write.deletes.begin(), write.deletes.end());
  SortUnique(keys_);
  const ApplyEpoch epoch = live.epochs().Begin();
  levels_.Raise(live, keys_, epoch);
  if (live.shared() != nullptr) live.shared()->BeginChange(keys_, epoch, write.positions);
  absl::Status written = ReachFaultPoint("update.change.before_l3");
  if (written.ok()) written = WriteL3(live.l3(), write, publish_times_us);
  if (written.ok()) written = ReachFaultPoint("update.change.before_l2");
  WriteL2(live, write, written.ok());
  if (written.ok()) written = ReachFaultPoint("update.change.before_publish");
  live.epochs().Publish(epoch);
  if (!written.ok()) {
    refresh_.Note(live, keys_);
  } else if (freshness_ != nullptr && !live.l2().empty()) {
    freshness_->l2.Add(publish_times_us);
  }
  return written;
}

absl::Status TableApplier::WriteL3(DurableTable& l3, const DurableWrite& write,
                                   std::span<const int64_t> publish_times_us) {
  HPS_RETURN_IF_ERROR(l3.Write(write));
  if (freshness_ != nullptr) freshness_->l3.Add(publish_times_us);
  return absl::OkStatus();
}

// From the last part to the first: a part shows the new rows only after those below it.
void TableApplier::WriteL2(LiveTable& live, const DurableWrite& write, bool written) {
  for (size_t i = live.l2().size(); i > 0; --i) {
    L2Part& part = live.l2()[i - 1];
    // Since BeginChange, this node takes from a shared part no row of these keys that lacks the
    // change.
    if (part.shared() != nullptr && written) part.shared()->EndChange(write);
    if (part.health().needs_clearing()) continue;
    if (!WritePart(part.table(), write, written).ok()) levels_.QuarantineL2(part);
  }
}

// If level 3 failed, lookups may see the old rows or the new ones there. Level 2 must not show the
// old ones after the new ones, so it loses the keys.
absl::Status TableApplier::WritePart(LossyTable& part, const DurableWrite& write,
                                     bool written) const {
  if (!written) return part.Erase(keys_).status();
  if (!write.upserts.keys.empty()) HPS_RETURN_IF_ERROR(part.Update(write.upserts).status());
  return write.deletes.empty() ? absl::OkStatus() : part.Erase(write.deletes).status();
}

TableApplier::Counts TableApplier::counts() const {
  return {.changes = changes_.load(std::memory_order_relaxed),
          .rows_upserted = rows_upserted_.load(std::memory_order_relaxed),
          .rows_deleted = rows_deleted_.load(std::memory_order_relaxed),
          .changes_failed = changes_failed_.load(std::memory_order_relaxed),
          .rows_refreshed = refresh_.rows_refreshed()};
}

}  // namespace hps
