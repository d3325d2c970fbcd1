#include "l3_rocksdb/cursor.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr size_t kReadAheadBytes = size_t{2} << 20;
constexpr size_t kChangesAtOnce = 256;

rocksdb::ReadOptions ScanOptions() {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;  // a scan must not evict the blocks of lookups
  read_options.readahead_size = kReadAheadBytes;
  return read_options;
}

// The changes of a table, in ascending order of their keys, as of the construction.
class RecordCursor {
 public:
  explicit RecordCursor(FamilyPin pin)
      : pin_(std::move(pin)),
        it_(NewStoreIterator(pin_.database().db(), pin_.family().handle, ScanOptions())) {}

  struct Change {
    Key key = 0;
    bool deleted = false;
  };
  // Null at the end. Writes the row unless it is a deletion.
  absl::StatusOr<std::optional<Change>> Next(std::byte* row, Version* version);

  const Family& family() const { return pin_.family(); }

 private:
  absl::Status Take(Change& change, std::byte* row, Version* version);

  FamilyPin pin_;
  const std::unique_ptr<rocksdb::Iterator> it_;  // destroyed before the pin
  bool begun_ = false;
};

absl::StatusOr<std::optional<RecordCursor::Change>> RecordCursor::Next(std::byte* row,
                                                                       Version* version) {
  if (!std::exchange(begun_, true)) it_->SeekToFirst();
  if (!it_->Valid()) {
    HPS_RETURN_IF_ERROR(FromRocksStatus(
        it_->status(), absl::StrCat("table '", family().table.spec.name, "': scanning")));
    return std::optional<Change>();
  }
  Change change;
  HPS_RETURN_IF_ERROR(Take(change, row, version));
  it_->Next();
  return std::optional<Change>(change);
}

absl::Status RecordCursor::Take(Change& change, std::byte* row, Version* version) {
  const TableRecord& table = family().table;
  if (it_->key().size() != kKeyBytes) {
    return absl::DataLossError(absl::StrCat("table '", table.spec.name, "': a key of ",
                                            it_->key().size(), " bytes, expected ", kKeyBytes));
  }
  change.key = DecodeKey(it_->key().data());
  const std::string_view value(it_->value().data(), it_->value().size());
  const size_t row_bytes = table.spec.row_bytes();
  const RowState state = CheckRow(table.incarnation, change.key, value, row_bytes);
  if (state == RowState::kDamaged) {
    return absl::DataLossError(
        absl::StrCat("table '", table.spec.name, "': the row of key ", change.key, " is damaged"));
  }
  change.deleted = state == RowState::kDeleted;
  if (!change.deleted) std::memcpy(row, value.data(), row_bytes);
  *version = RowVersion(value);
  return absl::OkStatus();
}

// The rows of page files, with the changes in RocksDB over them.
class LayeredCursor final : public RowCursor {
 public:
  LayeredCursor(FamilyPin pin, std::unique_ptr<RowCursor> base)
      : changes_(std::move(pin)),
        row_bytes_(changes_.family().table.spec.row_bytes()),
        base_(std::move(base)),
        base_keys_(kBaseRows),
        base_versions_(kBaseRows),
        base_rows_(kBaseRows * row_bytes_),
        change_row_(row_bytes_) {}

  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                              std::span<Version> versions) override;

 private:
  static constexpr size_t kBaseRows = 256;

  absl::Status Fill();
  bool BaseIsNext() const {
    return base_next_ < base_end_ &&
           (!change_.has_value() || base_keys_[base_next_] < change_->key);
  }

  RecordCursor changes_;
  const size_t row_bytes_;
  const std::unique_ptr<RowCursor> base_;
  std::vector<Key> base_keys_;
  std::vector<Version> base_versions_;
  std::vector<std::byte> base_rows_;
  size_t base_next_ = 0;
  size_t base_end_ = 0;
  std::vector<std::byte> change_row_;
  Version change_version_ = 0;
  std::optional<RecordCursor::Change> change_{};  // the next one
  bool begun_ = false;
};

// Loads what comes next of both, where nothing is loaded.
absl::Status LayeredCursor::Fill() {
  if (!begun_) {
    HPS_ASSIGN_OR_RETURN(change_, changes_.Next(change_row_.data(), &change_version_));
    begun_ = true;
  }
  if (base_next_ < base_end_) return absl::OkStatus();
  base_next_ = 0;
  base_end_ = 0;
  HPS_ASSIGN_OR_RETURN(
      base_end_, base_->Next(base_keys_, {base_rows_.data(), kBaseRows, row_bytes_, row_bytes_},
                             base_versions_));
  return absl::OkStatus();
}

absl::StatusOr<size_t> LayeredCursor::Next(std::span<Key> keys, HostRows rows,
                                           std::span<Version> versions) {
  const size_t row_count_max = std::min(keys.size(), rows.row_count);
  size_t row_count = 0;
  while (row_count < row_count_max) {
    HPS_RETURN_IF_ERROR(Fill());
    const std::byte* row = nullptr;
    Version version = 0;
    if (BaseIsNext()) {
      keys[row_count] = base_keys_[base_next_];
      row = base_rows_.data() + base_next_ * row_bytes_;
      version = base_versions_[base_next_++];
    } else if (change_.has_value()) {
      if (base_next_ < base_end_ && base_keys_[base_next_] == change_->key) ++base_next_;
      if (!change_->deleted) {
        keys[row_count] = change_->key;
        row = change_row_.data();
        version = change_version_;
      }
    } else {
      break;
    }
    if (row != nullptr) {
      std::memcpy(rows.row(row_count), row, row_bytes_);
      if (!versions.empty()) versions[row_count] = version;
      ++row_count;
    }
    if (row == nullptr || row == change_row_.data()) {
      HPS_ASSIGN_OR_RETURN(change_, changes_.Next(change_row_.data(), &change_version_));
    }
  }
  return row_count;
}

class ChangeCursor final : public PageChangeCursor {
 public:
  explicit ChangeCursor(FamilyPin pin)
      : cursor_(std::move(pin)),
        row_bytes_(cursor_.family().table.spec.row_bytes()),
        keys_(kChangesAtOnce),
        deleted_(kChangesAtOnce),
        versions_(kChangesAtOnce),
        rows_(kChangesAtOnce * row_bytes_) {}

  absl::StatusOr<Changes> Next() override;

 private:
  RecordCursor cursor_;
  const size_t row_bytes_;
  std::vector<Key> keys_;
  std::vector<uint8_t> deleted_;
  std::vector<Version> versions_;
  std::vector<std::byte> rows_;
};

absl::StatusOr<PageChangeCursor::Changes> ChangeCursor::Next() {
  size_t count = 0;
  for (; count < kChangesAtOnce; ++count) {
    HPS_ASSIGN_OR_RETURN(const std::optional<RecordCursor::Change> change,
                         cursor_.Next(&rows_[count * row_bytes_], &versions_[count]));
    if (!change.has_value()) break;
    keys_[count] = change->key;
    deleted_[count] = change->deleted ? 1 : 0;
  }
  return Changes{std::span(keys_).first(count), std::span(deleted_).first(count),
                 HostRows{rows_.data(), count, row_bytes_, row_bytes_},
                 std::span(versions_).first(count)};
}

}  // namespace

std::unique_ptr<PageChangeCursor> MakeChangeCursor(FamilyPin pin) {
  return std::make_unique<ChangeCursor>(std::move(pin));
}

absl::StatusOr<std::unique_ptr<RowCursor>> MakeCursor(FamilyPin pin) {
  const Family& family = pin.family();
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<RowCursor> base, family.pages->table->Scan());
  return std::make_unique<LayeredCursor>(std::move(pin), std::move(base));
}

}  // namespace hps
