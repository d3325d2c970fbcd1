#include "tests/faults/planned_events.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/macros.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

constexpr uint64_t kGeneration = uint64_t{1} << 48;

// Rows to write to one table, all of one event.
struct PlannedRows {
  std::vector<Key> keys;
  std::vector<std::byte> bytes;

  void Stamp(size_t table, uint64_t event) {
    bytes.resize(keys.size() * kPlannedRowBytes);
    for (size_t i = 0; i < keys.size(); ++i) {
      StampedRow::Write(table, keys[i], event,
                        std::span(bytes).subspan(i * kPlannedRowBytes, kPlannedRowBytes));
    }
  }
  HostRows rows() {
    return {.data = bytes.data(),
            .row_count = keys.size(),
            .row_bytes = kPlannedRowBytes,
            .stride_bytes = kPlannedRowBytes};
  }
};

struct PlannedWrite {
  size_t table = 0;
  std::vector<Key> upserts;
  std::vector<Key> deletes;
  StreamPosition position;
};

std::mt19937_64 RandomOf(const EventPlan& plan, uint64_t event, uint64_t use) {
  return std::mt19937_64(HashKey(static_cast<Key>(event * 8 + use), plan.seed));
}

// `count` different keys of a table, in random order.
std::vector<Key> ChooseKeys(std::mt19937_64& random, size_t count) {
  std::vector<size_t> indices(kPlannedKeyCount);
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::vector<Key> keys;
  for (size_t i = 0; i < count; ++i) {
    std::swap(indices[i], indices[i + random() % (kPlannedKeyCount - i)]);
    keys.push_back(PlannedKey(indices[i]));
  }
  return keys;
}

std::vector<Key> ImportedKeys(const EventPlan& plan, uint64_t event, size_t table) {
  std::mt19937_64 random = RandomOf(plan, event, table);
  std::vector<Key> keys = ChooseKeys(random, kPlannedKeyCount / 4 + random() % 256);
  std::sort(keys.begin(), keys.end());
  return keys;
}

PlannedWrite WriteOf(const EventPlan& plan, uint64_t event) {
  std::mt19937_64 random = RandomOf(plan, event, kPlannedTableCount);
  PlannedWrite write;
  write.table = random() % kPlannedTableCount;
  // Some batches span several blocks of the log.
  const size_t upserts = event % 16 == 0 ? 400 : 1 + random() % 32;
  const size_t deletes = random() % 5;
  std::vector<Key> keys = ChooseKeys(random, upserts + deletes);
  write.deletes.assign(keys.begin() + static_cast<ptrdiff_t>(upserts), keys.end());
  keys.resize(upserts);
  write.upserts = std::move(keys);
  write.position = {.partition = static_cast<uint32_t>(random() % 3), .offset = event + 1};
  return write;
}

absl::Status DoImport(DurableStore& store, const EventPlan& plan, uint64_t event) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<BulkImport> import, store.BeginImport(PlannedSpecs()));
  HPS_ASSIGN_OR_RETURN(const BulkImport::Result result, FillAndCommit(*import, plan, event));
  if (result.staged) return absl::InternalError("the import was staged, but no server is there");
  return absl::OkStatus();
}

absl::Status DoWrite(DurableStore& store, const EventPlan& plan, uint64_t event) {
  const PlannedWrite write = WriteOf(plan, event);
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableTable> table,
                       store.OpenTable(kPlannedTables[write.table]));
  PlannedRows rows{.keys = write.upserts};
  rows.Stamp(write.table, event);
  const std::vector<Version> versions(rows.keys.size(), kGeneration | event);
  return table->Write({.upserts = {.keys = rows.keys, .rows = rows.rows(), .versions = versions},
                       .deletes = write.deletes,
                       .positions = {&write.position, 1}});
}

absl::Status Differs(size_t table, Key key, std::string_view what) {
  return absl::InternalError(
      absl::StrCat(kPlannedTables[table], ", key ", key, ": ", std::string(what)));
}

}  // namespace

std::vector<TableSpec> PlannedSpecs() {
  std::vector<TableSpec> specs;
  for (const char* name : kPlannedTables) specs.push_back({.name = name, .dim = kPlannedDim});
  return specs;
}

absl::StatusOr<BulkImport::Result> FillAndCommit(BulkImport& import, const EventPlan& plan,
                                                 uint64_t event) {
  for (size_t table = 0; table < kPlannedTableCount; ++table) {
    PlannedRows rows{.keys = ImportedKeys(plan, event, table)};
    rows.Stamp(table, event);
    HPS_RETURN_IF_ERROR(import.Add(table, 0, rows.keys, rows.rows()));
  }
  return import.Commit();
}

Key PlannedKey(size_t index) {
  switch (index) {
    case 0:
      return std::numeric_limits<Key>::min();
    case 1:
      return std::numeric_limits<Key>::max();
    case 2:
      return -1;
    default:
      // Some dense keys, some all over the range.
      return index % 2 == 0 ? static_cast<Key>(index) : static_cast<Key>(HashKey(Key(index), 77));
  }
}

absl::Status DoEvent(DurableStore& store, const EventPlan& plan, uint64_t event) {
  if (plan.IsDrop(event)) return store.Drop(kPlannedTables[1]);
  return plan.IsImport(event) ? DoImport(store, plan, event) : DoWrite(store, plan, event);
}

void PlannedState::AdvanceTo(uint64_t event) {
  HPS_CHECK(event >= events_);
  while (events_ < event) Apply(events_ + 1);
}

void PlannedState::Apply(uint64_t event) {
  events_ = event;
  if (plan_.IsDrop(event)) {
    tables_[1] = {};
    return;
  }
  if (plan_.IsImport(event)) {
    for (size_t table = 0; table < kPlannedTableCount; ++table) {
      tables_[table] = {.exists = true};
      for (Key key : ImportedKeys(plan_, event, table))
        tables_[table].rows[key] = {.event = event, .version = 0};
    }
    return;
  }
  const PlannedWrite write = WriteOf(plan_, event);
  Table& table = tables_[write.table];
  for (Key key : write.upserts) table.rows[key] = {.event = event, .version = kGeneration | event};
  for (Key key : write.deletes) table.rows.erase(key);
  table.positions[write.position.partition] = write.position;
}

bool PlannedState::IsRight(size_t table, Key key, Version version,
                           std::span<const std::byte> row) const {
  const auto expected = tables_[table].rows.find(key);
  return expected != tables_[table].rows.end() && version == expected->second.version &&
         StampedRow::Matches(table, key, expected->second.event, row);
}

absl::Status PlannedState::Compare(DurableStore& store) const {
  for (size_t number = 0; number < kPlannedTableCount; ++number) {
    absl::StatusOr<std::unique_ptr<DurableTable>> table = store.OpenTable(kPlannedTables[number]);
    if (!tables_[number].exists && absl::IsNotFound(table.status())) continue;
    HPS_RETURN_IF_ERROR(table.status());
    if (!tables_[number].exists)
      return absl::InternalError(absl::StrCat(kPlannedTables[number], " should not exist"));
    HPS_RETURN_IF_ERROR(CompareFetch(**table, number));
    HPS_RETURN_IF_ERROR(CompareScan(**table, number));
    std::vector<StreamPosition> expected;
    for (const auto& [partition, position] : tables_[number].positions)
      expected.push_back(position);
    HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> positions, (*table)->Positions());
    if (positions != expected)
      return absl::InternalError(absl::StrCat(kPlannedTables[number], ": other positions"));
  }
  return absl::OkStatus();
}

absl::Status PlannedState::CompareFetch(DurableTable& table, size_t number) const {
  PlannedRows rows;
  for (size_t i = 0; i < kPlannedKeyCount; ++i) rows.keys.push_back(PlannedKey(i));
  rows.bytes.resize(kPlannedKeyCount * kPlannedRowBytes);
  std::vector<FetchOutcome> outcomes(kPlannedKeyCount);
  std::vector<Version> versions(kPlannedKeyCount);
  HPS_RETURN_IF_ERROR(
      table
          .Fetch(
              {.keys = rows.keys, .rows = rows.rows(), .outcomes = outcomes, .versions = versions},
              kNoDeadline)
          .status());
  for (size_t i = 0; i < kPlannedKeyCount; ++i) {
    const Key key = rows.keys[i];
    const auto row = std::span(rows.bytes).subspan(i * kPlannedRowBytes, kPlannedRowBytes);
    if (Has(number, key)) {
      if (outcomes[i] != FetchOutcome::kHit) return Differs(number, key, "not found");
      if (!IsRight(number, key, versions[i], row)) return Differs(number, key, "another row");
    } else if (outcomes[i] != FetchOutcome::kAbsent) {
      return Differs(number, key, "should be absent");
    }
  }
  return absl::OkStatus();
}

absl::Status PlannedState::CompareScan(DurableTable& table, size_t number) const {
  constexpr size_t kPieceKeys = 100;
  PlannedRows piece{.keys = std::vector<Key>(kPieceKeys)};
  piece.bytes.resize(kPieceKeys * kPlannedRowBytes);
  std::vector<Version> versions(kPieceKeys);
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.Scan());
  auto expected = tables_[number].rows.begin();
  for (;;) {
    HPS_ASSIGN_OR_RETURN(const size_t count, cursor->Next(piece.keys, piece.rows(), versions));
    for (size_t i = 0; i < count; ++i, ++expected) {
      if (expected == tables_[number].rows.end() || expected->first != piece.keys[i])
        return Differs(number, piece.keys[i], "scanned out of turn");
      const auto row = std::span(piece.bytes).subspan(i * kPlannedRowBytes, kPlannedRowBytes);
      if (!IsRight(number, piece.keys[i], versions[i], row))
        return Differs(number, piece.keys[i], "another row scanned");
    }
    if (count == 0) break;
  }
  if (expected == tables_[number].rows.end()) return absl::OkStatus();
  return Differs(number, expected->first, "not scanned");
}

}  // namespace hps
