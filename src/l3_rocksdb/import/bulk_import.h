// Imports in progress: the implementation of BulkImport. The contract is in tier/durable_tier.h.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import/part_writer.h"
#include "l3_rocksdb/import/staging.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

class RocksImport final : public BulkImport {
 public:
  // Begins an import into `database`. If that is null, the import is for the store that `options`
  // names; Commit opens this store, or finds that a server holds it.
  static absl::StatusOr<std::unique_ptr<BulkImport>> Begin(std::shared_ptr<Database> database,
                                                           const RocksStoreOptions& options,
                                                           std::span<const TableSpec> specs);
  ~RocksImport() override;

  absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys, HostRows rows) override;
  absl::Status FinishPart(size_t table, uint32_t part) override;
  void SetUpdateStart(const UpdateStart& start) override { import_.update_start = start; }
  absl::Status SetImportId(const std::string& id) override;
  absl::Status SetNetwork(const std::string& model, const ModelNetwork& network) override;
  absl::StatusOr<Result> Commit() override;

 private:
  // The number of a table and of a part of it.
  using Place = std::pair<size_t, uint32_t>;

  RocksImport(std::shared_ptr<Database> database, const RocksStoreOptions& options);

  absl::StatusOr<PartWriter*> WriterOf(const Place& place);
  absl::Status Failed(const absl::Status& status);
  absl::Status FinishFiles();
  absl::StatusOr<Result> CommitTo(Database& database);
  absl::StatusOr<Result> LeaveToServer();

  const std::shared_ptr<Database> database_;  // null for an import that does not hold the store
  const RocksStoreOptions options_;
  const RocksOptions rocks_options_;
  const SpaceGuard space_;
  StagingDirectory directory_;
  StagedImport import_;
  bool kept_ = false;  // another process owns the directory now
  Mutex mutex_;
  std::map<Place, std::unique_ptr<PartWriter>> writers_ HPS_GUARDED_BY(mutex_);  // unfinished parts
  std::map<Place, WrittenPart> written_ HPS_GUARDED_BY(mutex_);
  absl::Status failure_ HPS_GUARDED_BY(mutex_);  // the first; prevents the switch
};

}  // namespace hps
