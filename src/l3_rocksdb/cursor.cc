#include "l3_rocksdb/cursor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr size_t kReadAheadBytes = size_t{2} << 20;

rocksdb::ReadOptions ScanOptions() {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;  // a scan must not evict the blocks of lookups
  read_options.readahead_size = kReadAheadBytes;
  return read_options;
}

class RocksCursor final : public RowCursor {
 public:
  explicit RocksCursor(Database::Pin pin)
      : pin_(std::move(pin)),
        it_(NewStoreIterator(pin_.database().db(), pin_.family().handle, ScanOptions())) {
    it_->SeekToFirst();
  }

  absl::StatusOr<size_t> Next(std::span<Key> keys, HostRows rows,
                              std::span<Version> versions) override;

 private:
  absl::Status TakeRow(Key& key, std::byte* row, Version* version);
  absl::Status CheckNoLostRange() const;

  Database::Pin pin_;
  const std::unique_ptr<rocksdb::Iterator> it_;  // destroyed before the pin
};

absl::StatusOr<size_t> RocksCursor::Next(std::span<Key> keys, HostRows rows,
                                         std::span<Version> versions) {
  const size_t row_count_max = std::min(keys.size(), rows.row_count);
  size_t row_count = 0;
  for (; row_count < row_count_max && it_->Valid(); ++row_count, it_->Next()) {
    HPS_RETURN_IF_ERROR(CheckNoLostRange());
    HPS_RETURN_IF_ERROR(TakeRow(keys[row_count], rows.row(row_count),
                                versions.empty() ? nullptr : &versions[row_count]));
  }
  HPS_RETURN_IF_ERROR(FromRocksStatus(
      it_->status(), absl::StrCat("table '", pin_.family().table.spec.name, "': scanning")));
  if (row_count == 0) HPS_RETURN_IF_ERROR(CheckNoLostRange());
  return row_count;
}

// Errors: DATA_LOSS if the scan has reached the first lost range. The scan does not pass it.
absl::Status RocksCursor::CheckNoLostRange() const {
  const Family& family = pin_.family();
  if (family.lost_ranges.empty()) return absl::OkStatus();
  const LostRange& lost = family.lost_ranges.front();
  if (it_->Valid() && it_->key().size() == kKeyBytes && DecodeKey(it_->key().data()) < lost.first)
    return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("table '", family.table.spec.name, "': rows in the key range ", lost.first,
                   " to ", lost.last, " were lost by earlier damage; import the table again"));
}

absl::Status RocksCursor::TakeRow(Key& key, std::byte* row, Version* version) {
  const TableRecord& table = pin_.family().table;
  if (it_->key().size() != kKeyBytes) {
    return absl::DataLossError(absl::StrCat("table '", table.spec.name, "': a key of ",
                                            it_->key().size(), " bytes, expected ", kKeyBytes));
  }
  key = DecodeKey(it_->key().data());
  const std::string_view value(it_->value().data(), it_->value().size());
  const size_t row_bytes = table.spec.row_bytes();
  const RowState state = CheckRow(table.incarnation, key, value, row_bytes);
  if (state != RowState::kIntact) {
    return absl::DataLossError(absl::StrCat(
        "table '", table.spec.name, "': the row of key ", key,
        state == RowState::kMarkedLost ? " was lost by earlier damage; import the table again"
                                       : " is damaged"));
  }
  std::memcpy(row, value.data(), row_bytes);
  if (version != nullptr) *version = RowVersion(value);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<RowCursor> MakeCursor(Database::Pin pin) {
  return std::make_unique<RocksCursor>(std::move(pin));
}

}  // namespace hps
