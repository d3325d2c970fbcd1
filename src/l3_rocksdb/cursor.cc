#include "l3_rocksdb/cursor.h"

#include <algorithm>
#include <cstring>
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

// The changes of a table, as of the construction.
class ChangeCursor final : public PageChangeCursor {
 public:
  explicit ChangeCursor(FamilyPin pin)
      : pin_(std::move(pin)),
        it_(NewStoreIterator(pin_.database().db(), pin_.family().handle, ScanOptions())),
        table_(pin_.family().table),
        row_bytes_(table_.spec.row_bytes()),
        keys_(kChangesAtOnce),
        deleted_(kChangesAtOnce),
        versions_(kChangesAtOnce),
        rows_(kChangesAtOnce * row_bytes_) {}

  absl::StatusOr<Changes> Next() override;

 private:
  absl::Status Take(size_t i);

  const FamilyPin pin_;
  const std::unique_ptr<rocksdb::Iterator> it_;  // destroyed before the pin
  const TableRecord& table_;
  const size_t row_bytes_;
  bool begun_ = false;
  std::vector<Key> keys_;
  std::vector<uint8_t> deleted_;
  std::vector<Version> versions_;
  std::vector<std::byte> rows_;
};

absl::StatusOr<PageChangeCursor::Changes> ChangeCursor::Next() {
  if (!std::exchange(begun_, true)) it_->SeekToFirst();
  size_t count = 0;
  for (; count < kChangesAtOnce && it_->Valid(); it_->Next()) HPS_RETURN_IF_ERROR(Take(count++));
  if (!it_->Valid()) {
    HPS_RETURN_IF_ERROR(
        FromRocksStatus(it_->status(), absl::StrCat("table '", table_.spec.name, "': scanning")));
  }
  return Changes{std::span(keys_).first(count), std::span(deleted_).first(count),
                 HostRows{rows_.data(), count, row_bytes_, row_bytes_},
                 std::span(versions_).first(count)};
}

absl::Status ChangeCursor::Take(size_t i) {
  if (it_->key().size() != kKeyBytes) {
    return absl::DataLossError(absl::StrCat("table '", table_.spec.name, "': a key of ",
                                            it_->key().size(), " bytes, expected ", kKeyBytes));
  }
  const Key key = DecodeKey(it_->key().data());
  const std::string_view value(it_->value().data(), it_->value().size());
  const RowState state = CheckRow(table_.incarnation, key, value, row_bytes_);
  if (state == RowState::kDamaged) {
    return absl::DataLossError(
        absl::StrCat("table '", table_.spec.name, "': the row of key ", key, " is damaged"));
  }
  keys_[i] = key;
  deleted_[i] = state == RowState::kDeleted ? 1 : 0;
  if (state != RowState::kDeleted) std::memcpy(&rows_[i * row_bytes_], value.data(), row_bytes_);
  versions_[i] = RowVersion(value);
  return absl::OkStatus();
}

// The rows of page files, with the changes in RocksDB over them.
class MergedCursor final : public RowCursor {
 public:
  MergedCursor(FamilyPin pin, std::unique_ptr<RowCursor> base, size_t row_bytes)
      : changes_(std::move(pin)), merged_(std::move(base), changes_, row_bytes) {}

  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                              std::span<Version> versions) override;

 private:
  ChangeCursor changes_;
  MergedRows merged_;
};

absl::StatusOr<size_t> MergedCursor::Next(std::span<Key> keys, HostRows rows,
                                          std::span<Version> versions) {
  const size_t row_count_max = std::min(keys.size(), rows.row_count);
  size_t row_count = 0;
  while (row_count < row_count_max) {
    HPS_ASSIGN_OR_RETURN(const MergedRows::Step step, merged_.Next(row_count_max - row_count));
    if (step.at_end) break;
    std::ranges::copy(step.run.keys, &keys[row_count]);
    if (!versions.empty()) std::ranges::copy(step.run.versions, &versions[row_count]);
    for (size_t i = 0; i < step.run.keys.size(); ++i, ++row_count)
      std::memcpy(rows.row(row_count), step.run.rows.row(i), step.run.rows.row_bytes);
  }
  return row_count;
}

}  // namespace

std::unique_ptr<PageChangeCursor> MakeChangeCursor(FamilyPin pin) {
  return std::make_unique<ChangeCursor>(std::move(pin));
}

absl::StatusOr<std::unique_ptr<RowCursor>> MakeCursor(FamilyPin pin) {
  const PageTable& pages = *pin.family().pages->table;
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<RowCursor> base, pages.Scan());
  return std::make_unique<MergedCursor>(std::move(pin), std::move(base), pages.row_bytes());
}

}  // namespace hps
