// Imports in the making: see BulkImport in tier/durable_tier.h for the contract.
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
  // Into `database`, or, when that is null, into the store that `options` names, which is opened
  // (or found to be a server's) by Commit.
  static absl::StatusOr<std::unique_ptr<BulkImport>> Begin(std::shared_ptr<Database> database,
                                                           const RocksStoreOptions& options,
                                                           std::span<const TableSpec> specs);
  ~RocksImport() override;

  absl::Status Add(size_t table, uint32_t part, std::span<const Key> keys, HostRows rows) override;
  absl::Status FinishPart(size_t table, uint32_t part) override;
  absl::StatusOr<Result> Commit() override;

 private:
  // A part of a table by their numbers.
  using Place = std::pair<size_t, uint32_t>;

  RocksImport(std::shared_ptr<Database> database, const RocksStoreOptions& options);

  absl::StatusOr<PartWriter*> WriterOf(const Place& place);
  absl::Status Failed(const absl::Status& status);
  absl::Status FinishFiles();
  absl::StatusOr<Result> CommitTo(Database& database);
  absl::StatusOr<Result> LeaveToServer();

  const std::shared_ptr<Database> database_;  // null for an import beside a store
  const RocksStoreOptions options_;
  const RocksOptions rocks_options_;
  const SpaceGuard space_;
  StagingDirectory directory_;
  StagedImport import_;
  bool kept_ = false;  // the directory is somebody else's now
  Mutex mutex_;
  std::map<Place, std::unique_ptr<PartWriter>> writers_ HPS_GUARDED_BY(mutex_);  // being filled
  std::map<Place, WrittenPart> written_ HPS_GUARDED_BY(mutex_);
  absl::Status failure_ HPS_GUARDED_BY(mutex_);  // the first one; what is incomplete never switches
};

}  // namespace hps
