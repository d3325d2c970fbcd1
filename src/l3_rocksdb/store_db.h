// RocksDB over the files of one store: the writer's lock, the file system that stands between the
// two, and the room on the disk. What the records in it mean is not known here.
//
// Thread-safe once it is open; TakeHandle and TakeHandles are for the thread that opens the store.
#pragma once

#include <rocksdb/db.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l3_rocksdb/files/background_errors.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/files/reader_file_system.h"
#include "l3_rocksdb/files/space_guard.h"
#include "l3_rocksdb/files/space_reserve.h"
#include "l3_rocksdb/files/wal_error_shield.h"
#include "l3_rocksdb/rocks_options.h"

namespace hps {

class StoreDb {
 public:
  // A writer changes its files a few times per second. Opening them takes milliseconds.
  static constexpr Duration kReaderTimeout = std::chrono::seconds(10);

  // With `damaged`, opens what can be read of a store, and compacts nothing. `former`: an earlier
  // state of a read-only store, whose caches and open files are shared; or null. Errors: those of
  // OpenRocksStore that are not of the catalog or of page files.
  static absl::StatusOr<std::unique_ptr<StoreDb>> Open(const RocksStoreOptions& options,
                                                       bool damaged, const StoreDb* former);
  // Closes RocksDB. REQUIRES: all handles that were taken or made are destroyed.
  ~StoreDb();

  rocksdb::DB& db() const { return *db_; }
  const RocksStoreOptions& options() const { return options_; }
  const RocksOptions& rocks_options() const { return rocks_options_; }
  const std::string& path() const { return options_.config.path; }
  rocksdb::Env* env() const { return reader_env_ != nullptr ? reader_env_.get() : EnvOf(options_); }
  bool read_only() const { return options_.mode == OpenMode::kReadOnly; }
  bool damaged() const { return damaged_; }
  // Null unless read-only.
  const ReaderFileSystem* reader_files() const { return reader_files_.get(); }
  // Null when read-only.
  WalErrorShield* wal_shield() const { return wal_shield_.get(); }
  BackgroundErrors& background_errors() const { return *background_errors_; }
  const SpaceGuard& space() const { return space_; }
  SpaceReserve& reserve() { return reserve_; }

  // The handle of a column family that was there at the opening, once; null if there is none.
  rocksdb::ColumnFamilyHandle* TakeHandle(const std::string& family);
  // Those that are left.
  std::vector<rocksdb::ColumnFamilyHandle*> TakeHandles();

  // The error with the path of the store.
  absl::Status InStore(const absl::Status& error) const;
  // Logs an error that leaves the store as it was or is tried again; nothing if it is OK.
  void LogIfFailed(const absl::Status& status) const;

 private:
  StoreDb(const RocksStoreOptions& options, bool damaged, const RocksOptions& rocks_options);
  absl::Status OpenFiles(const StoreDb* former);
  absl::Status OpenReaderFiles(const StoreDb* former);
  absl::Status Lock();
  absl::Status CheckStoreFormat() const;
  absl::Status StartThreads() const;
  absl::StatusOr<rocksdb::Status> OpenRocks(const std::vector<std::string>& families);
  rocksdb::DBOptions DbOptions() const;

  const RocksStoreOptions options_;
  const bool damaged_;  // opened by verify or repair: the caller handles damage
  const RocksOptions rocks_options_;
  const SpaceGuard space_;
  SpaceReserve reserve_;
  std::unique_ptr<OwnerLock> lock_;  // null when read-only
  // Both null when read-only.
  std::shared_ptr<WalErrorShield> wal_shield_;
  std::unique_ptr<rocksdb::Env> file_system_env_;
  // Both null unless read-only.
  std::shared_ptr<ReaderFileSystem> reader_files_;
  std::unique_ptr<rocksdb::Env> reader_env_;
  const std::shared_ptr<BackgroundErrors> background_errors_;
  std::unique_ptr<rocksdb::DB> db_;
  std::map<std::string, rocksdb::ColumnFamilyHandle*> handles_;  // not taken so far
};

}  // namespace hps
