#include "l3_rocksdb/hugectr_store.h"

#include <rocksdb/db.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "l3_rocksdb/files/info_log.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr std::string_view kFamilyPrefix = "hps_et.";
// The reader remembers the position of every kAnchorRows-th row, so that reading can begin there.
constexpr uint64_t kAnchorRows = 4096;
constexpr size_t kScanAheadBytes = 2 << 20;

rocksdb::ReadOptions WholeTableOptions() {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.readahead_size = kScanAheadBytes;
  return options;
}

// An open database with its column families, which must be closed before it.
class ForeignDatabase {
 public:
  ForeignDatabase(std::unique_ptr<rocksdb::DB> db,
                  std::vector<rocksdb::ColumnFamilyHandle*> families)
      : db_(std::move(db)), families_(std::move(families)) {}
  ~ForeignDatabase() {
    for (rocksdb::ColumnFamilyHandle* family : families_) {
      db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
    }
  }
  ForeignDatabase(const ForeignDatabase&) = delete;
  ForeignDatabase& operator=(const ForeignDatabase&) = delete;

  std::span<rocksdb::ColumnFamilyHandle* const> families() const { return families_; }
  std::unique_ptr<rocksdb::Iterator> Scan(rocksdb::ColumnFamilyHandle* family) const {
    return std::unique_ptr<rocksdb::Iterator>(db_->NewIterator(WholeTableOptions(), family));
  }

 private:
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;
};

class HugectrTable final : public ForeignTable {
 public:
  HugectrTable(std::shared_ptr<ForeignDatabase> db, rocksdb::ColumnFamilyHandle* family,
               std::string what)
      : db_(std::move(db)), family_(family), what_(std::move(what)) {}

  // Counts the rows, and checks that all keys and rows have the same sizes as the first.
  absl::Status Count() {
    const std::unique_ptr<rocksdb::Iterator> it = db_->Scan(family_);
    for (it->SeekToFirst(); it->Valid(); it->Next(), ++row_count_) {
      if (row_count_ == 0) {
        key_bytes_ = it->key().size();
        row_bytes_ = it->value().size();
        HPS_RETURN_IF_ERROR(CheckHugectrSizes(what_, key_bytes_, row_bytes_));
      }
      if (it->key().size() != key_bytes_ || it->value().size() != row_bytes_) {
        return absl::InvalidArgumentError(
            absl::StrCat(what_, ": expected keys of ", key_bytes_, " and rows of ", row_bytes_,
                         " bytes as in the first record, found ", it->key().size(), " and ",
                         it->value().size(), " in record ", row_count_));
      }
      if (row_count_ % kAnchorRows != 0) continue;
      std::memcpy(anchors_.emplace_back().data(), it->key().data(), key_bytes_);
    }
    return FromReadStatus(it->status(), what_);
  }

  uint64_t row_count() const override { return row_count_; }
  size_t key_bytes() const override { return key_bytes_; }
  size_t row_bytes() const override { return row_bytes_; }
  bool keys_repeat() const override { return false; }

  absl::Status Read(uint64_t first_row, std::span<Key> keys,
                    std::span<std::byte> rows) const override {
    const size_t count = keys.empty() && row_bytes_ > 0 ? rows.size() / row_bytes_ : keys.size();
    if (count == 0) return absl::OkStatus();
    HPS_CHECK(first_row <= row_count_ && count <= row_count_ - first_row);
    const std::unique_ptr<rocksdb::Iterator> it = db_->Scan(family_);
    it->Seek({anchors_[first_row / kAnchorRows].data(), key_bytes_});
    for (uint64_t skipped = first_row % kAnchorRows; skipped > 0 && it->Valid(); --skipped) {
      it->Next();
    }
    for (size_t i = 0; i < count; ++i, it->Next()) {
      if (!it->Valid() || it->value().size() != row_bytes_) {
        HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), what_));
        return absl::DataLossError(
            absl::StrCat(what_, ": expected ", row_count_, " records, found ", first_row + i));
      }
      if (!keys.empty()) keys[i] = HugectrKey({it->key().data(), it->key().size()});
      if (!rows.empty()) std::memcpy(&rows[i * row_bytes_], it->value().data(), row_bytes_);
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<ForeignDatabase> db_;
  rocksdb::ColumnFamilyHandle* const family_;
  const std::string what_;  // prefix of messages
  uint64_t row_count_ = 0;
  size_t key_bytes_ = sizeof(Key);
  size_t row_bytes_ = 0;
  std::vector<std::array<char, sizeof(Key)>> anchors_;  // keys of the rows 0, kAnchorRows, ...
};

class HugectrStore final : public ForeignStore {
 public:
  HugectrStore(std::string path, std::shared_ptr<ForeignDatabase> db,
               std::map<std::string, rocksdb::ColumnFamilyHandle*> families)
      : path_(std::move(path)), db_(std::move(db)), families_(std::move(families)) {
    for (const auto& [table, family] : families_) tables_.push_back(table);
  }

  const std::vector<std::string>& tables() const override { return tables_; }

  absl::StatusOr<std::unique_ptr<ForeignTable>> OpenTable(const std::string& name) override {
    const auto family = families_.find(name);
    if (family == families_.end()) {
      return absl::NotFoundError(absl::StrCat(
          path_, ": no table '", name, "'; the directory has: ", absl::StrJoin(tables_, ", ")));
    }
    auto table = std::make_unique<HugectrTable>(db_, family->second,
                                                absl::StrCat(path_, ", table '", name, "'"));
    HPS_RETURN_IF_ERROR(table->Count());
    return table;
  }

 private:
  const std::string path_;
  const std::shared_ptr<ForeignDatabase> db_;
  const std::map<std::string, rocksdb::ColumnFamilyHandle*> families_;  // by table
  std::vector<std::string> tables_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ForeignStore>> OpenHugectrStore(const std::string& path) {
  std::error_code error;
  const bool is_there = std::filesystem::exists(std::filesystem::path(path) / "CURRENT", error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("can't read the directory ", path, ": ", error.message()));
  }
  if (!is_there) {
    if (!std::filesystem::exists(path, error)) {
      return absl::NotFoundError(absl::StrCat("no such directory: ", path));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a RocksDB directory of HugeCTR, found no file CURRENT"));
  }
  rocksdb::DBOptions options;
  options.info_log = std::make_shared<InfoLog>();  // otherwise RocksDB writes a file LOG
  options.max_open_files = -1;  // keeps files readable that a running program deletes
  options.max_file_opening_threads = 1;
  std::vector<std::string> names;
  HPS_RETURN_IF_ERROR(FromReadStatus(rocksdb::DB::ListColumnFamilies(options, path, &names), path));
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const std::string& name : names) {
    descriptors.emplace_back(name, rocksdb::ColumnFamilyOptions());
  }
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  HPS_RETURN_IF_ERROR(FromReadStatus(
      rocksdb::DB::OpenForReadOnly(options, path, descriptors, &handles, &opened), path));
  auto db =
      std::make_shared<ForeignDatabase>(std::unique_ptr<rocksdb::DB>(opened), std::move(handles));
  std::map<std::string, rocksdb::ColumnFamilyHandle*> families;
  for (rocksdb::ColumnFamilyHandle* const handle : db->families()) {
    const std::string& family = handle->GetName();
    if (auto table = TableOfHugectrTag(family)) {
      families[*table] = handle;
    } else if (family.starts_with(kFamilyPrefix)) {  // an import must not omit a table
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": column family '", family, "' is not named hps_et.MODEL.TABLE"));
    }
  }
  if (families.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected column families named hps_et.MODEL.TABLE, found: ",
                     absl::StrJoin(names, ", ")));
  }
  return std::make_unique<HugectrStore>(path, std::move(db), std::move(families));
}

}  // namespace hps
