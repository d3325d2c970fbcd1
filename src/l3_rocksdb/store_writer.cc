#include "l3_rocksdb/store_writer.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/logging.h"
#include "base/macros.h"
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

StoreWriter::StoreWriter(StoreDb& store, FamilyTable& families)
    : store_(store), families_(families) {}

StoreWriter::~StoreWriter() = default;

absl::Status StoreWriter::StartSyncing() {
  if (store_.options().config.sync != SyncMode::kInterval) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(
      syncer_, LogSyncer::Create([this] { return Sync(); }, store_.options().config.sync_interval));
  return absl::OkStatus();
}

void StoreWriter::StopSyncing() { syncer_.reset(); }

absl::Status StoreWriter::FailedWrite(const rocksdb::Status& status) const {
  absl::Status failed =
      FromRocksStatus(status, absl::StrCat("store '", store_.path(), "': writing"));
  if (absl::IsDataLoss(failed) || absl::IsAborted(failed))
    return absl::UnavailableError(failed.message());
  return failed;
}

bool StoreWriter::WalIsFlushed() const {
  return !store_.wal_shield()->pending() &&
         store_.wal_shield()->sync_failures() == sync_failures_recovered_;
}

bool StoreWriter::healthy() const {
  return WalIsFlushed() && !store_.background_errors().any_pending();
}

absl::Status StoreWriter::Recover() {
  const uint64_t attempts_seen = recovery_attempts_;
  // Released after the lock, because releasing may write.
  const std::vector<FamilyPin> pins = families_.PinAll();
  MutexLock lock(recovery_mutex_);
  // An attempt on a failing disk can take a second. Threads that waited for it use its result.
  if (recovery_attempts_ != attempts_seen && !last_recovery_.ok()) return last_recovery_;
  last_recovery_ = TryToRecover(pins);
  ++recovery_attempts_;
  return last_recovery_;
}

absl::Status StoreWriter::TryToRecover(const std::vector<FamilyPin>& pins) {
  const uint64_t sync_failures = store_.wal_shield()->sync_failures();
  const BackgroundErrors::Pending pending = store_.background_errors().pending();
  if (pending.is_final) return FailedWrite(pending.error);
  const rocksdb::Status wal_flushed = store_.wal_shield()->Flush();
  if (!wal_flushed.ok()) return FailedWrite(wal_flushed);
  const bool sync_failed = sync_failures != sync_failures_recovered_;
  if (!sync_failed && pending.error.ok()) return absl::OkStatus();
  // The rows of a failed flush are still in memory and in the WAL, and RocksDB does not retry the
  // flush. After a failed sync the WAL is not reliable, so its rows are flushed to table files.
  // The default family, with the stream positions, comes last: a position must not become durable
  // before its rows.
  std::vector<rocksdb::ColumnFamilyHandle*> families = families_.HandlesOf(pins);
  families.push_back(store_.db().DefaultColumnFamily());
  const rocksdb::Status flushed = Flush(families);
  if (!flushed.ok()) return FailedWrite(flushed);
  // RocksDB disables file deletions after a failed write of the MANIFEST. WalErrorShield defers the
  // deletions that are unsafe.
  store_.db().EnableFileDeletions(true).PermitUncheckedError();
  LogWarning(absl::StrCat("store '", store_.path(), "': recovered, writes continue after ",
                          sync_failed ? "a failed sync of the WAL" : pending.error.ToString()));
  sync_failures_recovered_ = sync_failures;
  store_.background_errors().NoteRecovered(pending.count);
  return absl::OkStatus();
}

rocksdb::Status StoreWriter::Flush(const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  const Deadline deadline = DeadlineAfter(RealClock(), kFlushTimeout);
  const uint64_t errors_before = store_.background_errors().pending().count;
  const rocksdb::Status requested = RequestFlushesThoughStopped(families);
  if (!requested.ok()) return requested;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    for (;;) {
      const uint64_t changes = store_.background_errors().change_count();
      if (UnflushedOf(store_.db(), family) == 0) break;
      const BackgroundErrors::Pending pending = store_.background_errors().pending();
      if (!pending.error.ok() && (pending.is_final || pending.count != errors_before))
        return pending.error;
      if (!store_.background_errors().WaitForChange(changes, deadline))
        return rocksdb::Status::Busy("flush timed out");
    }
  }
  return rocksdb::Status::OK();
}

rocksdb::Status StoreWriter::RequestFlushes(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  rocksdb::FlushOptions options;
  options.wait = false;
  options.allow_write_stall = true;
  rocksdb::Status status;
  for (size_t i = 0; i < families.size() && status.ok(); ++i) {
    const MemtableSwitchLock::SharedGuard switching(memtable_switch_lock_);
    status = store_.db().Flush(options, families[i]);
  }
  return status;
}

// If failed flushes have left a family with its maximum number of memtables, RocksDB stops until
// they are flushed, but also refuses to flush while it is stopped. So this function raises the
// maximum for the request. A flush that fails meanwhile adds a memtable, so several tries may be
// needed.
rocksdb::Status StoreWriter::RequestFlushesThoughStopped(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  rocksdb::Status requested = RequestFlushes(families);
  for (int i = 0; i < kStoppedTriesMax && requested.IsTryAgain(); ++i)
    requested = RequestFlushesWithRoom(families);
  return requested;
}

rocksdb::Status StoreWriter::RequestFlushesWithRoom(
    const std::vector<rocksdb::ColumnFamilyHandle*>& families) {
  const int buffers_max = store_.rocks_options().rows().max_write_buffer_number;
  std::vector<rocksdb::ColumnFamilyHandle*> raised;
  for (rocksdb::ColumnFamilyHandle* family : families) {
    const uint64_t flushing = UnflushedOf(store_.db(), family) + 1;  // with the active memtable
    if (flushing < static_cast<uint64_t>(buffers_max)) continue;
    const rocksdb::Status set = SetBuffersMax(store_.db(), family, flushing + 1);
    if (!set.ok()) return set;
    raised.push_back(family);
  }
  rocksdb::Status requested = RequestFlushes(families);
  for (rocksdb::ColumnFamilyHandle* family : raised) {
    const rocksdb::Status set =
        SetBuffersMax(store_.db(), family, static_cast<uint64_t>(buffers_max));
    if (requested.ok()) requested = set;
  }
  return requested;
}

rocksdb::Status StoreWriter::WriteToRocks(rocksdb::WriteBatch& batch) {
  const MemtableSwitchLock::SharedGuard switching(memtable_switch_lock_);
  return store_.db().Write(rocksdb::WriteOptions(), &batch);
}

absl::Status StoreWriter::Write(rocksdb::WriteBatch& batch, bool durable) {
  HPS_RETURN_IF_ERROR(store_.space().CheckRoomFor(batch.GetDataSize()));
  HPS_RETURN_IF_ERROR(EnsureHealthy());
  return Commit(batch, durable);
}

absl::Status StoreWriter::Commit(rocksdb::WriteBatch& batch, bool durable) {
  const rocksdb::Status written = WriteToRocks(batch);
  if (written.IsIncomplete()) {
    HPS_RETURN_IF_ERROR(WriteAfterStall(batch));
  } else if (!written.ok()) {
    return FailedWrite(written);
  }
  if (durable || store_.options().config.sync == SyncMode::kAlways) return Sync();
  if (syncer_ != nullptr) syncer_->NoteWrite();
  return FlushWal();
}

// After a disk error, RocksDB returns from a write stall instead of waiting for its end.
absl::Status StoreWriter::WriteAfterStall(rocksdb::WriteBatch& batch) {
  const Deadline deadline = DeadlineAfter(RealClock(), kStallTimeout);
  for (;;) {
    const uint64_t changes = store_.background_errors().change_count();
    HPS_RETURN_IF_ERROR(EnsureHealthy());
    const rocksdb::Status written = WriteToRocks(batch);
    if (written.ok()) return absl::OkStatus();
    if (!written.IsIncomplete() || !store_.background_errors().WaitForChange(changes, deadline))
      return FailedWrite(written);
  }
}

absl::Status StoreWriter::ListLiveFiles(std::vector<rocksdb::LiveFileStorageInfo>* files) {
  rocksdb::LiveFilesStorageInfoOptions options;
  options.wal_size_for_flush = UINT64_MAX;  // no flush: the log has the rows of the memtables
  // Writes and flushes hold it shared: none is half in the log while the files are listed.
  const MemtableSwitchLock::ExclusiveGuard no_writes(memtable_switch_lock_);
  if (!WalIsFlushed()) {
    return absl::UnavailableError(
        absl::StrCat("store '", store_.path(), "': the log is not complete"));
  }
  return FromRocksStatus(store_.db().GetLiveFilesStorageInfo(options, files),
                         absl::StrCat("store '", store_.path(), "': listing its files"));
}

void StoreWriter::DestroyHandle(rocksdb::ColumnFamilyHandle* handle) {
  const MemtableSwitchLock::ExclusiveGuard freeing(memtable_switch_lock_);
  store_.db().DestroyColumnFamilyHandle(handle);
}

absl::Status StoreWriter::Sync() {
  if (store_.read_only()) return absl::FailedPreconditionError("the store is open read-only");
  // FlushWal recovers or reports a failed sync.
  static_cast<void>(store_.wal_shield()->SyncLogs());
  return FlushWal();
}

}  // namespace hps
