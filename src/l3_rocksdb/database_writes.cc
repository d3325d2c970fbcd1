// Writes of a database, and its recovery after disk errors. background_errors.h and
// wal_error_shield.h describe the errors that are hidden from RocksDB.
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/log_syncer.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

// A flush of a memtable takes one or two seconds. So do the compactions that end a stall; they take
// longer on a busy disk. A slower disk counts as failed.
constexpr Duration kFlushTimeout = std::chrono::seconds(60);
constexpr Duration kStallTimeout = std::chrono::seconds(60);
constexpr int kStoppedTriesMax = 10;

uint64_t UnflushedOf(rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family) {
  uint64_t unflushed = 0;
  database.GetIntProperty(family, rocksdb::DB::Properties::kNumImmutableMemTable, &unflushed);
  return unflushed;
}

rocksdb::Status SetBuffersMax(rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family,
                              uint64_t buffers_max) {
  return database.SetOptions(family, {{"max_write_buffer_number", absl::StrCat(buffers_max)}});
}

}  // namespace

absl::Status Database::FailedWrite(const rocksdb::Status& status) const {
  absl::Status failed = FromRocksStatus(status, absl::StrCat("store '", path(), "': writing"));
  if (absl::IsDataLoss(failed) || absl::IsAborted(failed))
    return absl::UnavailableError(failed.message());
  return failed;
}

bool Database::WalIsFlushed() const {
  return !wal_shield_->pending() && wal_shield_->sync_failures() == sync_failures_recovered_;
}

bool Database::healthy() const { return WalIsFlushed() && !background_errors_->any_pending(); }

// Ok if the WAL is complete and no background error is pending; tries to recover first.
absl::Status Database::EnsureHealthy() { return healthy() ? absl::OkStatus() : Recover(); }

// Ok if no bytes or syncs of the WAL are pending; tries to recover first.
absl::Status Database::FlushWal() { return WalIsFlushed() ? absl::OkStatus() : Recover(); }

absl::Status Database::Recover() {
  const uint64_t attempts_seen = recovery_attempts_;
  const std::vector<Pin> pins = PinAll();  // released after the lock, because releasing may write
  MutexLock lock(recovery_mutex_);
  // An attempt on a failing disk can take a second. Threads that waited for it use its result.
  if (recovery_attempts_ != attempts_seen && !last_recovery_.ok()) return last_recovery_;
  last_recovery_ = TryToRecover(pins);
  ++recovery_attempts_;
  return last_recovery_;
}

absl::Status Database::TryToRecover(const std::vector<Pin>& pins) {
  const uint64_t sync_failures = wal_shield_->sync_failures();
  const BackgroundErrors::Pending pending = background_errors_->pending();
  if (pending.is_final) return FailedWrite(pending.error);
  const rocksdb::Status wal_flushed = wal_shield_->Flush();
  if (!wal_flushed.ok()) return FailedWrite(wal_flushed);
  const bool sync_failed = sync_failures != sync_failures_recovered_;
  if (!sync_failed && pending.error.ok()) return absl::OkStatus();
  // The rows of a failed flush are still in memory and in the WAL, and RocksDB does not retry the
  // flush. After a failed sync the WAL is not reliable, so its rows are flushed to table files.
  const rocksdb::Status flushed = FlushFamilies(HandlesOf(pins));
  if (!flushed.ok()) return FailedWrite(flushed);
  // RocksDB disables file deletions after a failed write of the MANIFEST. WalErrorShield defers the
  // deletions that are unsafe.
  db_->EnableFileDeletions(true).PermitUncheckedError();
  LogWarning(absl::StrCat("store '", path(), "': recovered, writes continue after ",
                          sync_failed ? "a failed sync of the WAL" : pending.error.ToString()));
  sync_failures_recovered_ = sync_failures;
  background_errors_->NoteRecovered(pending.count);
  return absl::OkStatus();
}

std::vector<Database::Pin> Database::PinAll(FamilyKind kind) {
  std::vector<Pin> pins;
  const std::shared_ptr<Database> self = weak_from_this().lock();
  if (self == nullptr) return pins;  // being destroyed
  MutexLock lock(mutex_);
  for (const auto& [id, family] : families_) {
    if (kind == FamilyKind::kNetwork && !family->table.spec.name.empty()) continue;
    ++family->pins;
    pins.push_back(Pin(self, family.get()));
  }
  return pins;
}

// All families that may hold unflushed rows. The default family, with the stream positions, comes
// last: a position must not become durable before its rows.
std::vector<rocksdb::ColumnFamilyHandle*> Database::HandlesOf(const std::vector<Pin>& pins) {
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  for (const Pin& pin : pins) handles.push_back(pin.family().handle);
  if (weak_from_this().expired()) {  // being created or destroyed: no other thread drops families
    MutexLock lock(mutex_);
    for (const auto& [id, family] : families_) handles.push_back(family->handle);
  }
  handles.push_back(db_->DefaultColumnFamily());
  return handles;
}

// Does not use RocksDB's own wait, which never ends if the flush fails.
rocksdb::Status Database::FlushFamilies(const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  const Deadline deadline = DeadlineAfter(RealClock(), kFlushTimeout);
  const uint64_t errors_before = background_errors_->pending().count;
  const rocksdb::Status requested = RequestFlushesThoughStopped(families);
  if (!requested.ok()) return requested;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    for (;;) {
      const uint64_t changes = background_errors_->change_count();
      if (UnflushedOf(*db_, family) == 0) break;
      const BackgroundErrors::Pending pending = background_errors_->pending();
      if (!pending.error.ok() && (pending.is_final || pending.count != errors_before))
        return pending.error;
      if (!background_errors_->WaitForChange(changes, deadline))
        return rocksdb::Status::Busy("flush timed out");
    }
  }
  return rocksdb::Status::OK();
}

rocksdb::Status Database::RequestFlushes(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  rocksdb::FlushOptions options;
  options.wait = false;
  options.allow_write_stall = true;
  rocksdb::Status status;
  for (size_t i = 0; i < families.size() && status.ok(); ++i) {
    const MemtableSwitchLock::SharedGuard switching(memtable_switch_lock_);
    status = db_->Flush(options, families[i]);
  }
  return status;
}

// If failed flushes have left a family with its maximum number of memtables, RocksDB stops until
// they are flushed, but also refuses to flush while it is stopped. So this function raises the
// maximum for the request. A flush that fails meanwhile adds a memtable, so several tries may be
// needed.
rocksdb::Status Database::RequestFlushesThoughStopped(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  rocksdb::Status requested = RequestFlushes(families);
  for (int i = 0; i < kStoppedTriesMax && requested.IsTryAgain(); ++i)
    requested = RequestFlushesWithRoom(families);
  return requested;
}

rocksdb::Status Database::RequestFlushesWithRoom(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  const int buffers_max = rocks_options_.rows().max_write_buffer_number;
  std::vector<rocksdb::ColumnFamilyHandle*> raised;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    const uint64_t flushing = UnflushedOf(*db_, family) + 1;  // with the active memtable
    if (flushing < static_cast<uint64_t>(buffers_max)) continue;
    const rocksdb::Status set = SetBuffersMax(*db_, family, flushing + 1);
    if (!set.ok()) return set;
    raised.push_back(family);
  }
  rocksdb::Status requested = RequestFlushes(families);
  for (rocksdb::ColumnFamilyHandle* family : raised) {
    const rocksdb::Status set = SetBuffersMax(*db_, family, static_cast<uint64_t>(buffers_max));
    if (requested.ok()) requested = set;
  }
  return requested;
}

rocksdb::Status Database::WriteToRocks(rocksdb::WriteBatch& batch) {
  const MemtableSwitchLock::SharedGuard switching(memtable_switch_lock_);
  return db_->Write(rocksdb::WriteOptions(), &batch);
}

absl::Status Database::Write(rocksdb::WriteBatch& batch, bool durable) {
  HPS_RETURN_IF_ERROR(CheckRoomFor(batch.GetDataSize()));
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  return Commit(batch, durable);
}

// Writes without checking space and health. The caller has checked them, or must not be refused.
absl::Status Database::Commit(rocksdb::WriteBatch& batch, bool durable) {
  const rocksdb::Status written = WriteToRocks(batch);
  if (written.IsIncomplete()) {
    HPS_RETURN_IF_ERROR(WriteAfterStall(batch));
  } else if (!written.ok()) {
    return FailedWrite(written);
  }
  if (durable || options_.config.sync == SyncMode::kAlways) return Sync();
  if (syncer_ != nullptr) syncer_->NoteWrite();
  return FlushWal();
}

// After a disk error, RocksDB returns from a write stall instead of waiting for its end.
absl::Status Database::WriteAfterStall(rocksdb::WriteBatch& batch) {
  const Deadline deadline = DeadlineAfter(RealClock(), kStallTimeout);
  for (;;) {
    const uint64_t changes = background_errors_->change_count();
    HPS_RETURN_IF_ERROR(EnsureHealthy());
    const rocksdb::Status written = WriteToRocks(batch);
    if (written.ok()) return absl::OkStatus();
    if (!written.IsIncomplete() || !background_errors_->WaitForChange(changes, deadline))
      return FailedWrite(written);
  }
}

absl::Status Database::ListLiveFiles(std::vector<rocksdb::LiveFileStorageInfo>* files) {
  rocksdb::LiveFilesStorageInfoOptions options;
  options.wal_size_for_flush = UINT64_MAX;  // no flush: the log has the rows of the memtables
  // Writes and flushes hold it shared: none is half in the log while the files are listed.
  const MemtableSwitchLock::ExclusiveGuard no_writes(memtable_switch_lock_);
  if (!WalIsFlushed()) {
    return absl::UnavailableError(absl::StrCat("store '", path(), "': the log is not complete"));
  }
  return FromRocksStatus(db_->GetLiveFilesStorageInfo(options, files),
                         absl::StrCat("store '", path(), "': listing its files"));
}

absl::Status Database::Sync() {
  if (read_only()) return absl::FailedPreconditionError("the store is open read-only");
  // FlushWal recovers or reports a failed sync.
  static_cast<void>(wal_shield_->SyncLogs());
  return FlushWal();
}

}  // namespace hps
