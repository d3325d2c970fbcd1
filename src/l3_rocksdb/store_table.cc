#include "l3_rocksdb/store_table.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "l3_rocksdb/cursor.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/sorted_fetch.h"

namespace hps {
namespace {

// Key, tag and lengths of one entry of a write batch, rounded up.
constexpr size_t kBatchEntryBytes = 32;

}  // namespace

void StoreTableSource::MoveTo(FamilyPin newer) {
  auto pin = std::make_shared<const FamilyPin>(std::move(newer));
  MutexLock lock(mutex_);
  std::swap(pin_, pin);
}

RocksTable::RocksTable(std::shared_ptr<StoreTableSource> source)
    : source_(std::move(source)),
      spec_(source_->pin()->family().table.spec),
      incarnation_(source_->pin()->family().table.incarnation) {}

absl::StatusOr<FetchCounts> RocksTable::Fetch(const FetchBatch& batch, Deadline deadline) {
  return FetchRows(*source_->pin(), batch, deadline);
}

absl::Status RocksTable::CheckWrite(const FamilyPin& pin, const DurableWrite& write) const {
  const RowBatch& upserts = write.upserts;
  HPS_CHECK(upserts.absent.empty());
  HPS_CHECK(upserts.keys.empty() || upserts.rows.row_bytes == spec().row_bytes());
  HPS_CHECK(upserts.versions.empty() || upserts.versions.size() == upserts.keys.size());
  HPS_CHECK(write.delete_versions.empty() || write.delete_versions.size() == write.deletes.size());
  if (pin.database().read_only()) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", spec().name, "': the store is open read-only"));
  }
  if (!pin.family().current) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table '", spec().name, "': incarnation ", incarnation(), " has been replaced or dropped"));
  }
  for (const StreamPosition& position : write.positions) {
    if (position.partition >= kPositionsMax) {
      return absl::InvalidArgumentError(absl::StrCat("table '", spec().name, "': partition ",
                                                     position.partition, ", expected at most ",
                                                     kPositionsMax - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status RocksTable::Write(const DurableWrite& write) {
  for (;;) {
    const std::shared_ptr<const FamilyPin> pin = source_->pin();
    MutexLock lock(pin->family().write_mutex);
    // A merge that switches holds the lock until the source has moved.
    if (!pin->family().merge.is_done) return WriteTo(*pin, write);
  }
}

absl::Status RocksTable::WriteTo(const FamilyPin& pin, const DurableWrite& write) const {
  HPS_RETURN_IF_ERROR(CheckWrite(pin, write));
  Family& family = pin.family();
  // A merge that runs: its family gets all changes since its beginning.
  Family* const successor = family.merge.successor;
  const size_t copies = successor == nullptr ? 1 : 2;
  const size_t entry_bytes = copies * (spec_.row_bytes() + kRowTailBytes + kBatchEntryBytes);
  rocksdb::WriteBatch batch;
  try {  // the batch may be as large as the caller's rows
    batch = rocksdb::WriteBatch(write.upserts.keys.size() * entry_bytes +
                                copies * write.deletes.size() * kBatchEntryBytes);
    PutRows(family, write, batch);
    if (successor != nullptr) PutRows(*successor, write, batch);
    PutRecords(family, write, batch);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory for a batch of rows");
  }
  const bool rows_change = !write.upserts.keys.empty() || !write.deletes.empty();
  const auto add_keys = [&write](Family& to) {
    to.changed_keys.Add(write.upserts.keys);
    to.changed_keys.Add(write.deletes);
  };
  add_keys(family);  // before the rows are visible
  if (successor != nullptr) {
    add_keys(*successor);
    if (rows_change) successor->changed = true;  // also if the write fails: it may be visible
  }
  HPS_FAULT_POINT("l3.write.before_commit");
  const bool has_stream_state = write.records_lost != 0 || !write.unordered_hashes.empty();
  HPS_RETURN_IF_ERROR(has_stream_state ? pin.database().catalog().WriteWithStreamState(
                                             spec_.name, incarnation(), write, batch)
                                       : pin.database().writer().Write(batch, false));
  if (rows_change) family.changed = true;
  pin.database().merge_queue().NoteChanges(family);
  HPS_FAULT_POINT("l3.write.after_commit");
  return absl::OkStatus();
}

void RocksTable::PutRows(const Family& family, const DurableWrite& write,
                         rocksdb::WriteBatch& batch) const {
  std::array<char, kKeyBytes> key_bytes;
  const rocksdb::Slice key_slice(key_bytes.data(), key_bytes.size());
  std::string value(spec_.row_bytes() + kRowTailBytes, '\0');
  for (size_t i = 0; i < write.upserts.keys.size(); ++i) {
    const Key key = write.upserts.keys[i];
    EncodeKey(key, key_bytes.data());
    std::memcpy(value.data(), write.upserts.rows.row(i), spec_.row_bytes());
    FinishRow(incarnation(), key, write.upserts.versions.empty() ? 0 : write.upserts.versions[i],
              spec_.row_bytes(), value.data() + spec_.row_bytes());
    batch.Put(family.handle, key_slice, value);
  }
  for (size_t i = 0; i < write.deletes.size(); ++i) {
    PutDeletion(family.handle, write.deletes[i],
                write.delete_versions.empty() ? 0 : write.delete_versions[i], batch);
  }
}

void RocksTable::PutRecords(const Family& family, const DurableWrite& write,
                            rocksdb::WriteBatch& batch) const {
  for (const StreamPosition& position : write.positions)
    PutPosition(batch, incarnation(), position);
  const bool rows_change = !write.upserts.keys.empty() || !write.deletes.empty();
  if (rows_change && !family.changed) PutChanged(batch, incarnation());
}

// The page file keeps its row, so a deletion is a record.
void RocksTable::PutDeletion(rocksdb::ColumnFamilyHandle* handle, Key key, Version version,
                             rocksdb::WriteBatch& batch) const {
  std::array<char, kKeyBytes> key_bytes;
  std::array<char, kDeletionBytes> value{};
  EncodeKey(key, key_bytes.data());
  FinishRow(incarnation(), key, version, 1, value.data() + 1);
  batch.Put(handle, rocksdb::Slice(key_bytes.data(), key_bytes.size()),
            rocksdb::Slice(value.data(), value.size()));
}

absl::StatusOr<std::vector<StreamPosition>> RocksTable::Positions() const {
  HPS_ASSIGN_OR_RETURN(IncarnationRecords records,
                       ReadIncarnation(source_->pin()->database().db(), incarnation()));
  return std::move(records.positions);
}

std::vector<uint16_t> RocksTable::UnorderedHashes() const {
  return source_->pin()->database().catalog().UnorderedHashes(spec_.name, incarnation_);
}

absl::StatusOr<std::unique_ptr<RowCursor>> RocksTable::Scan() const {
  return MakeCursor(source_->Share());
}

TableInfo RocksTable::Info() const {
  const std::shared_ptr<const FamilyPin> pin = source_->pin();
  return InfoOf(pin->database(), pin->family());
}

bool RocksTable::IsCurrent() const {
  const std::shared_ptr<const FamilyPin> pin = source_->pin();
  return (pin->family().current || pin->family().merge.is_done) && !source_->outdated();
}

TableInfo InfoOf(Database& database, const Family& family) {
  TableInfo info;
  info.spec = family.table.spec;
  info.incarnation = family.table.incarnation;
  info.row_count = family.table.row_count;
  info.import_id = family.table.import_id;
  info.update_records_lost = database.catalog().RecordsLost(info.spec.name, info.incarnation);
  if (family.changed) {
    uint64_t estimate = 0;
    if (database.db().GetIntProperty(family.handle, rocksdb::DB::Properties::kEstimateNumKeys,
                                     &estimate)) {
      // It is unknown how many of the changes add a row.
      info.row_count = std::max(family.table.row_count, estimate);
    }
  }
  uint64_t file_bytes = 0;
  uint64_t memory_bytes = 0;
  database.db().GetIntProperty(family.handle, rocksdb::DB::Properties::kLiveSstFilesSize,
                               &file_bytes);
  if (family.changed) {
    database.db().GetIntProperty(family.handle, rocksdb::DB::Properties::kCurSizeAllMemTables,
                                 &memory_bytes);
  }
  info.bytes = file_bytes + memory_bytes;
  info.bytes += family.pages->table->file_bytes();
  const absl::StatusOr<IncarnationRecords> records =
      ReadIncarnation(database.db(), info.incarnation);
  if (!records.ok()) {
    LogError(absl::StrCat("table '", info.spec.name, "': ", records.status().ToString()));
    return info;
  }
  info.positions = records->positions;
  return info;
}

}  // namespace hps
