#include "l3_pages/import/page_import.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "l3_pages/import/incarnation_draw.h"

namespace hps {
namespace {

std::string FileName(size_t table, uint32_t part) {
  return absl::StrCat("t", table, "-p", part, ".rows");
}

}  // namespace

PageImport::PageImport(std::unique_ptr<ImportTarget> target, std::span<const TableSpec> specs)
    : target_(std::move(target)) {
  import_.directory = target_->directory();
  for (const TableSpec& spec : specs)
    import_.tables.push_back({.spec = spec, .incarnation = DrawIncarnation()});
}

absl::StatusOr<PageFileWriter*> PageImport::WriterOf(const Place& place) {
  MutexLock lock(mutex_);
  HPS_CHECK(!written_.contains(place));
  const auto found = writers_.find(place);
  if (found != writers_.end()) return found->second.get();
  const StagedTable& table = import_.tables[place.first];
  HPS_ASSIGN_OR_RETURN(
      std::unique_ptr<PageFileWriter> writer,
      PageFileWriter::Create(import_.directory + "/" + FileName(place.first, place.second),
                             table.incarnation, table.spec.row_bytes()));
  return writers_.emplace(place, std::move(writer)).first->second.get();
}

absl::Status PageImport::Failed(const absl::Status& status) {
  if (status.ok()) return status;
  MutexLock lock(mutex_);
  failure_.Update(status);
  return status;
}

absl::Status PageImport::Add(size_t table, uint32_t part, std::span<const Key> keys,
                             HostRows rows) {
  HPS_CHECK(table < import_.tables.size());
  if (keys.empty()) return absl::OkStatus();
  const size_t row_bytes = import_.tables[table].spec.row_bytes();
  HPS_CHECK(rows.row_count >= keys.size() && rows.row_bytes == row_bytes);
  // The files belong to the import and are removed if it fails.
  const absl::Status room =
      target_->CheckRoomFor(keys.size() * (sizeof(Key) + sizeof(Version) + row_bytes));
  if (!room.ok()) return Failed(room);
  const absl::StatusOr<PageFileWriter*> writer = WriterOf({table, part});
  return Failed(writer.ok() ? (*writer)->Add(keys, rows) : writer.status());
}

absl::Status PageImport::FinishPart(size_t table, uint32_t part) {
  std::unique_ptr<PageFileWriter> writer;
  {
    MutexLock lock(mutex_);
    const auto found = writers_.find({table, part});
    if (found == writers_.end()) return absl::OkStatus();
    writer = std::move(found->second);
    writers_.erase(found);
  }
  // Without the lock, because this waits for the disk, and all parts of a table end at the same
  // time.
  const absl::StatusOr<PageFileDescription> file = writer->Finish();
  HPS_RETURN_IF_ERROR(Failed(file.status()));
  MutexLock lock(mutex_);
  written_[{table, part}] = {file->row_count, file->first_key, file->last_key};
  return absl::OkStatus();
}

// An id that was used before is found before the rows are read.
absl::Status PageImport::SetImportId(const std::string& id) {
  HPS_RETURN_IF_ERROR(ValidateImportId(id));
  import_.import_id = id;
  return target_->CheckImportId(import_.specs(), id);
}

absl::Status PageImport::SetNetwork(const std::string& model, const ModelNetwork& network) {
  HPS_RETURN_IF_ERROR(target_->CheckRoomFor(network.onnx.size()));
  HPS_RETURN_IF_ERROR(target_->WriteNetwork(network.onnx));
  import_.network = {.model = model, .digest = network.digest, .inputs = network.inputs};
  return absl::OkStatus();
}

absl::Status PageImport::FinishFiles() {
  std::vector<Place> unfinished;
  {
    MutexLock lock(mutex_);
    HPS_RETURN_IF_ERROR(failure_);
    for (const auto& [place, writer] : writers_) unfinished.push_back(place);
  }
  for (const Place& place : unfinished) HPS_RETURN_IF_ERROR(FinishPart(place.first, place.second));
  MutexLock lock(mutex_);
  HPS_RETURN_IF_ERROR(failure_);
  for (const auto& [place, file] : written_) {
    StagedTable& table = import_.tables[place.first];
    if (!table.files.empty() && table.files.back().record.last_key >= file.first_key) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table '", table.spec.name, "': part ", place.second, " begins with key ", file.first_key,
          ", the previous part ends with ", table.files.back().record.last_key));
    }
    table.row_count += file.row_count;
    table.files.push_back({FileName(place.first, place.second), file});
  }
  return absl::OkStatus();
}

absl::StatusOr<BulkImport::Result> PageImport::Commit() {
  HPS_CHECK(!std::exchange(committed_, true));
  HPS_FAULT_POINT("l3.import.before_finish");
  HPS_RETURN_IF_ERROR(FinishFiles());
  HPS_FAULT_POINT("l3.import.after_finish");
  return target_->Commit(std::move(import_));
}

}  // namespace hps
