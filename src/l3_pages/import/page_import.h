// An import into page files: the implementation of BulkImport, whose contract is in
// tier/durable_tier.h. Each part of a table becomes one page file in a staging directory. What a
// store has to do with the directory is behind ImportTarget.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "l3_pages/import/staged_import.h"
#include "l3_pages/page_file_writer.h"
#include "tier/durable_tier.h"

namespace hps {

// The store that an import is for. Has the staging directory of one import; its destructor removes
// the directory, unless Commit has left it to another process.
class ImportTarget {
 public:
  virtual ~ImportTarget() = default;

  // The staging directory.
  virtual const std::string& directory() const = 0;
  // Thread-safe. Errors: RESOURCE_EXHAUSTED if the disk has no room for so many bytes.
  virtual absl::Status CheckRoomFor(uint64_t bytes) const = 0;
  // Errors: those of BulkImport::SetImportId.
  virtual absl::Status CheckImportId(std::span<const TableSpec> specs, const std::string& id) = 0;
  // Writes the bytes of a dense network to the directory. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE.
  virtual absl::Status WriteNetwork(std::string_view onnx) = 0;
  // REQUIRES: the files are complete and durable; called once. Errors: those of BulkImport::Commit.
  virtual absl::StatusOr<BulkImport::Result> Commit(StagedImport import) = 0;
};

class PageImport final : public BulkImport {
 public:
  PageImport(std::unique_ptr<ImportTarget> target, std::span<const TableSpec> specs);

  absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys, HostRows rows) override;
  absl::Status FinishPart(size_t table, uint32_t part) override;
  void SetUpdateStart(const UpdateStart& start) override { import_.update_start = start; }
  absl::Status SetImportId(const std::string& id) override;
  absl::Status SetNetwork(const std::string& model, const ModelNetwork& network) override;
  absl::StatusOr<Result> Commit() override;

 private:
  // The number of a table and of a part of it.
  using Place = std::pair<size_t, uint32_t>;

  absl::StatusOr<PageFileWriter*> WriterOf(const Place& place);
  absl::Status Failed(const absl::Status& status);
  absl::Status FinishFiles();

  const std::unique_ptr<ImportTarget> target_;
  StagedImport import_;
  bool committed_ = false;
  Mutex mutex_;
  // The unfinished parts; removed before the directory is.
  std::map<Place, std::unique_ptr<PageFileWriter>> writers_ HPS_GUARDED_BY(mutex_);
  std::map<Place, PageFileRecord> written_ HPS_GUARDED_BY(mutex_);
  absl::Status failure_ HPS_GUARDED_BY(mutex_);  // the first; prevents the switch
};

}  // namespace hps
