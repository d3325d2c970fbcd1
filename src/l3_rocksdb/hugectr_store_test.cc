#include "l3_rocksdb/hugectr_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(const void* value, size_t size) {
  return {static_cast<const char*>(value), size};
}

// Row `key` of `dim` elements: key, key + 1, ...
std::string Row(int64_t key, uint32_t dim) {
  std::string row;
  for (uint32_t i = 0; i < dim; ++i) {
    const auto element = static_cast<float>(key + i);
    row += Bytes(&element, sizeof(element));
  }
  return row;
}

class HugectrStoreTest : public testing::Test {
 protected:
  HugectrStoreTest() {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    EXPECT_TRUE(rocksdb::DB::Open(options, path_, &db).ok());
    db_.reset(db);
  }
  void Close() {
    for (auto& [name, family] : families_) {
      EXPECT_TRUE(db_->DestroyColumnFamilyHandle(family).ok());
    }
    families_.clear();
    EXPECT_TRUE(db_->Close().ok());
    db_.reset();
  }
  ~HugectrStoreTest() override {
    if (db_ != nullptr) Close();
  }
  void Put(const std::string& family, const std::string& key, const std::string& value) {
    if (!families_.contains(family)) {
      EXPECT_TRUE(db_->CreateColumnFamily({}, family, &families_[family]).ok());
    }
    EXPECT_TRUE(db_->Put({}, families_[family], key, value).ok());
  }
  template <typename StoredKey>
  void PutRow(const std::string& family, StoredKey key, uint32_t dim) {
    Put(family, Bytes(&key, sizeof(key)), Row(static_cast<int64_t>(key), dim));
  }
  // The names and contents of all files.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }

  const TestDirectory directory_;
  const std::string path_ = directory_.Path("rocksdb");
  std::unique_ptr<rocksdb::DB> db_;
  std::map<std::string, rocksdb::ColumnFamilyHandle*> families_;
};

TEST_F(HugectrStoreTest, ReadsTablesFromAnyRowOnAndChangesNothing) {
  std::set<int64_t> stored;
  for (int64_t key = -5000; key < 5000; ++key) {
    stored.insert(key * 7);
    PutRow("hps_et.wdl.wide-1", key * 7, 3);
  }
  PutRow<uint32_t>("hps_et.wdl.deep", 0xfffffff0, 1);
  Put("other", "x", "y");
  Close();
  const auto before = Files();

  const auto store = OpenHugectrStore(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT((*store)->tables(), ElementsAre("wdl/deep", "wdl/wide-1"));
  const auto wide = (*store)->OpenTable("wdl/wide-1");
  ASSERT_TRUE(wide.ok()) << wide.status();
  ASSERT_EQ((*wide)->row_count(), stored.size());
  EXPECT_EQ((*wide)->row_bytes(), 12u);
  std::vector<Key> all(stored.size());
  std::vector<std::byte> rows(all.size() * 12);
  ASSERT_TRUE((*wide)->Read(0, all, rows).ok());
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()), stored);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(Bytes(&rows[i * 12], 12), Row(all[i], 3));
  }
  for (const uint64_t first : {0, 1, 4095, 4096, 4097, 9999}) {
    std::vector<Key> keys(std::min<uint64_t>(5000, all.size() - first));
    ASSERT_TRUE((*wide)->Read(first, keys, {}).ok());
    EXPECT_TRUE(std::equal(keys.begin(), keys.end(), all.begin() + static_cast<int64_t>(first)));
    std::vector<std::byte> row(12);
    ASSERT_TRUE((*wide)->Read(first, {}, row).ok());
    EXPECT_EQ(Bytes(row.data(), 12), Row(all[first], 3));
  }
  const auto deep = (*store)->OpenTable("wdl/deep");
  ASSERT_TRUE(deep.ok()) << deep.status();
  std::vector<Key> key(1);
  ASSERT_TRUE((*deep)->Read(0, key, {}).ok());
  EXPECT_EQ(key[0], 0xfffffff0) << "keys of 4 bytes are unsigned";
  EXPECT_EQ(Files(), before);
}

TEST_F(HugectrStoreTest, ReadsWhileAProgramHasItOpen) {
  PutRow<int64_t>("hps_et.m.t", 5, 2);  // only in the WAL
  const auto store = OpenHugectrStore(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto table = (*store)->OpenTable("m/t");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->row_count(), 1u);
  PutRow<int64_t>("hps_et.m.t", 6, 2);
  EXPECT_EQ((*table)->row_count(), 1u);
}

TEST_F(HugectrStoreTest, SaysWhatIsWrong) {
  EXPECT_EQ(OpenHugectrStore(directory_.Path("nothing")).status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status no_database = OpenHugectrStore(directory_.path()).status();
  EXPECT_EQ(no_database.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_database.message()), HasSubstr("CURRENT"));
  const absl::Status no_family = OpenHugectrStore(path_).status();
  EXPECT_EQ(no_family.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_family.message()), HasSubstr("found: default"));

  Put("hps_et.m.t.u", std::string(8, 'k'), "row!");
  const absl::Status unnamed = OpenHugectrStore(path_).status();
  EXPECT_EQ(unnamed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unnamed.message()), HasSubstr("'hps_et.m.t.u' is not named"));
  ASSERT_TRUE(db_->DropColumnFamily(families_["hps_et.m.t.u"]).ok());

  PutRow<int64_t>("hps_et.m.mixed", 1, 2);
  PutRow<int64_t>("hps_et.m.mixed", 2, 3);
  PutRow<int64_t>("hps_et.m.keys", 1, 2);
  PutRow<uint32_t>("hps_et.m.keys", 2, 2);
  PutRow<uint16_t>("hps_et.m.narrow", 2, 2);
  Put("hps_et.m.odd", std::string(8, 'k'), "rowrow");
  const auto store = OpenHugectrStore(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  for (const auto& [table, part] : std::map<std::string, std::string>{
           {"m/mixed", "rows of 8 bytes as in the first record, found 8 and 12 in record 1"},
           {"m/keys", "in record 1"},
           {"m/narrow", "expected keys of 8 or 4 bytes, found 2"},
           {"m/odd", "found 6 bytes"}}) {
    const absl::Status status = (*store)->OpenTable(table).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << table;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
  const absl::Status unknown = (*store)->OpenTable("m/none").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("m/keys, m/mixed, m/narrow, m/odd"));
}

TEST_F(HugectrStoreTest, ADamagedFileIsDataLoss) {
  for (int64_t key = 0; key < 1000; ++key) PutRow("hps_et.m.t", key, 4);
  ASSERT_TRUE(db_->Flush({}, families_["hps_et.m.t"]).ok());
  Close();
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(2000);
    file.write("damage", 6);
  }
  const auto store = OpenHugectrStore(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->OpenTable("m/t").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hps
