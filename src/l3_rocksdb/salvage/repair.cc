#include "l3_rocksdb/salvage/repair.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/import/import_commit.h"
#include "l3_rocksdb/import/incarnation_draw.h"
#include "l3_rocksdb/import/part_writer.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/row_progress.h"
#include "l3_rocksdb/salvage/row_walk.h"

namespace hps {
namespace {

// Copies one table to a staged table with a new incarnation.
class TableCopy final : public RowVisitor {
 public:
  TableCopy(const Database::Pin& pin, StagedTable& target, PartWriter& writer,
            RowProgress& progress)
      : pin_(pin),
        target_(target),
        writer_(writer),
        progress_(progress),
        lost_ranges_(pin.family().lost_ranges) {}

  absl::Status OnRow(Key key, std::string_view value) override {
    return Put(key, value.substr(0, value.size() - kRowTailBytes), RowVersion(value));
  }
  absl::Status OnLostRow(Key key, const std::string&) override {
    ++lost_count_;
    return Put(key, {}, 0);
  }
  absl::Status OnGap(Key first, Key last, const std::string&) override {
    // Rows written after the import are in no key list.
    if (pin_.family().changed) lost_ranges_.push_back({first, last});
    return absl::OkStatus();
  }
  absl::Status OnDamagedList(Key first, Key last) override {
    lost_ranges_.push_back({first, last});
    return absl::OkStatus();
  }

  uint64_t lost_count() const { return lost_count_; }
  // Includes the ranges of earlier repairs. The ranges do not overlap.
  std::vector<LostRange> TakeLostRanges();

 private:
  absl::Status Put(Key key, std::string_view row, Version version) {
    value_.assign(row);
    value_.resize(row.size() + kRowTailBytes);
    FinishRow(target_.incarnation, key, version, row.size(), value_.data() + row.size());
    progress_.AddRow();
    return writer_.AddValue(key, value_);
  }

  const Database::Pin& pin_;
  StagedTable& target_;
  PartWriter& writer_;
  RowProgress& progress_;
  std::vector<LostRange> lost_ranges_;
  std::string value_;
  uint64_t lost_count_ = 0;
};

// The catalog holds one range per first key, so overlapping ranges are merged.
std::vector<LostRange> TableCopy::TakeLostRanges() {
  std::sort(lost_ranges_.begin(), lost_ranges_.end(),
            [](const LostRange& a, const LostRange& b) { return a.first < b.first; });
  std::vector<LostRange> merged;
  for (const LostRange& range : lost_ranges_) {
    if (merged.empty() || range.first > merged.back().last) {
      merged.push_back(range);
    } else {
      merged.back().last = std::max(merged.back().last, range.last);
    }
  }
  return merged;
}

class Repair {
 public:
  Repair(Database& database, const ProgressFunction& progress, uint64_t row_count)
      : database_(database), progress_(progress, "copying rows", row_count) {}
  absl::StatusOr<uint64_t> Run(const std::set<std::string>& names);

 private:
  absl::Status CopyTable(const std::string& name, StagedTable& target, size_t number);
  absl::Status CopyRecords(const Family& family, TableCopy& copy, Incarnation incarnation);

  Database& database_;
  RowProgress progress_;
  std::string directory_;
  rocksdb::WriteBatch batch_;
  uint64_t lost_count_ = 0;
};

absl::Status Repair::CopyTable(const std::string& name, StagedTable& target, size_t number) {
  HPS_ASSIGN_OR_RETURN(const Database::Pin pin, database_.PinTable(name));
  target.spec = pin.family().table.spec;
  target.incarnation = DrawIncarnation();
  PartWriter writer(database_.rocks_options(), target, directory_, absl::StrCat("t", number));
  TableCopy copy(pin, target, writer, progress_);
  HPS_RETURN_IF_ERROR(WalkRows(pin, copy));
  HPS_ASSIGN_OR_RETURN(WrittenPart written, writer.Finish());
  target.row_count = written.row_count;
  target.row_files = std::move(written.row_files);
  target.key_files = std::move(written.key_files);
  lost_count_ += copy.lost_count();
  return CopyRecords(pin.family(), copy, target.incarnation);
}

absl::Status Repair::CopyRecords(const Family& family, TableCopy& copy, Incarnation incarnation) {
  HPS_ASSIGN_OR_RETURN(const IncarnationRecords records,
                       ReadIncarnation(database_.db(), family.table.incarnation));
  // The new key list names every readable key, so only ranges mark the table as changed.
  for (const StreamPosition& position : records.positions)
    PutPosition(batch_, incarnation, position);
  for (const LostRange& range : copy.TakeLostRanges()) PutLostRange(batch_, incarnation, range);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Repair::Run(const std::set<std::string>& names) {
  HPS_ASSIGN_OR_RETURN(const StagingDirectory directory,
                       MakeStagingDirectory(database_.env(), database_.path()));
  directory_ = directory.path;
  StagedImport import;
  import.directory = directory.path;
  import.is_copy = true;
  absl::Status repaired = absl::OkStatus();
  for (const std::string& name : names) {
    StagedTable target;
    repaired = CopyTable(name, target, import.tables.size());
    if (!repaired.ok()) break;
    import.tables.push_back(std::move(target));
  }
  if (repaired.ok()) repaired = SyncDirectory(database_.env(), directory.path);
  if (repaired.ok()) repaired = CommitImport(database_, import, batch_).status();
  // The next writer removes what remains.
  const absl::Status removed = RemoveTree(database_.env(), directory.path);
  if (!removed.ok())
    LogWarning(absl::StrCat("the files of a repair were not removed: ", removed.ToString()));
  HPS_RETURN_IF_ERROR(repaired);
  return lost_count_;
}

}  // namespace

absl::StatusOr<uint64_t> RepairTables(const RocksStoreOptions& options,
                                      const std::set<std::string>& names,
                                      const std::set<std::string>& models,
                                      const ProgressFunction& progress) {
  RocksStoreOptions writer = options;
  writer.mode = OpenMode::kReadWrite;
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<Database> database, Database::OpenDamaged(writer));
  for (const std::string& model : models) {
    MutexLock lock(database->change_mutex());
    HPS_RETURN_IF_ERROR(database->DropNetwork(model));
  }
  if (names.empty()) return uint64_t{0};
  uint64_t row_count = 0;
  const CatalogContents catalog = database->catalog();
  for (const auto& [name, table] : catalog.tables)
    row_count += names.contains(name) ? table.row_count : 0;
  return Repair(*database, progress, row_count).Run(names);
}

}  // namespace hps
