// Random operations on a store and on plain maps, which must agree.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>

#include "l3_rocksdb/test_store.h"
#include "testing/trials.h"

namespace hps {
namespace {

constexpr size_t kRowBytes = 16;
constexpr uint64_t kTableCount = 3;
constexpr uint64_t kKeySpace = 5000;
const uint64_t kKeyOperations = Trials(1'000'000);

class ModelRunner {
 public:
  ModelRunner(uint64_t seed, RocksStoreOptions options)
      : random_(seed), options_(std::move(options)) {
    options_.config.path = directory_.path() + "/store";
    Reopen();
  }
  uint64_t merges() const { return merges_ + store_->Statistics().merges; }

  // Returns the number of key operations.
  uint64_t Step() {
    const uint64_t table = random_() % kTableCount;
    switch (random_() % 256) {
      case 0:
        return Import();
      case 1:
        Drop(table);
        return 1;
      case 2:
        Reopen();
        return 1;
      case 3:
        return Scan(table);
      default:
        return random_() % 3 == 0 ? Write(table) : Fetch(table);
    }
  }

 private:
  using Rows = std::map<Key, Version>;

  static std::string Name(uint64_t table) { return "m/t" + std::to_string(table); }
  Key DrawKey() {
    return static_cast<Key>(random_() % kKeySpace) - static_cast<Key>(kKeySpace / 2);
  }

  void Reopen() {
    tables_.clear();
    if (store_ != nullptr) merges_ += store_->Statistics().merges;
    store_.reset();
    auto store = OpenRocksStore(options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    OpenTables();
  }
  void OpenTables() {
    tables_.clear();
    for (const auto& [table, rows] : model_) {
      auto opened = store_->OpenTable(Name(table));
      ASSERT_TRUE(opened.ok()) << opened.status();
      tables_[table] = *std::move(opened);
    }
    ASSERT_EQ(store_->Tables()->size(), model_.size());
  }
  uint64_t Import() {
    std::vector<TableSpec> specs;
    for (uint64_t table = 0; table < kTableCount; ++table) {
      TableSpec spec;
      spec.name = Name(table);
      spec.dim = kRowBytes / 4;
      specs.push_back(spec);
    }
    auto import = store_->BeginImport(specs);
    EXPECT_TRUE(import.ok()) << import.status();
    std::map<uint64_t, Rows> rows;
    uint64_t count = 0;
    for (uint64_t table = 0; table < kTableCount; ++table) {
      const uint64_t row_count = random_() % 1500;
      for (uint64_t i = 0; i < row_count; ++i) rows[table][DrawKey()] = 0;
      rows[table];
      std::vector<Key> keys;
      for (const auto& [key, version] : rows[table]) keys.push_back(key);
      StampedRows stamped(table, kRowBytes, keys);
      EXPECT_TRUE((*import)->Add(table, 0, stamped.keys(), stamped.rows()).ok());
      count += keys.size();
    }
    if (random_() % 4 == 0) return count;  // the import is destroyed
    EXPECT_TRUE((*import)->Commit().ok());
    model_ = std::move(rows);
    OpenTables();
    return count;
  }
  void Drop(uint64_t table) {
    const absl::Status dropped = store_->Drop(Name(table));
    EXPECT_EQ(dropped.ok(), model_.contains(table)) << dropped;
    model_.erase(table);
    tables_.erase(table);
  }
  uint64_t Write(uint64_t table) {
    if (!model_.contains(table)) return 1;
    std::map<Key, bool> change;  // true = upsert
    const uint64_t count = random_() % 60;
    for (uint64_t i = 0; i < count; ++i) change[DrawKey()] = random_() % 4 != 0;
    std::vector<Key> upserts;
    std::vector<Key> deletes;
    for (const auto& [key, upsert] : change) (upsert ? upserts : deletes).push_back(key);
    ++version_;
    StampedRows rows(table, kRowBytes, upserts, version_);
    const std::vector<StreamPosition> positions = {{static_cast<uint32_t>(table), 1, version_}};
    const absl::Status written = tables_[table]->Write({rows.batch(), deletes, positions});
    EXPECT_TRUE(written.ok()) << written;
    for (const Key key : upserts) model_[table][key] = version_;
    for (const Key key : deletes) model_[table].erase(key);
    EXPECT_EQ(*tables_[table]->Positions(), positions);
    return change.size() + 1;
  }
  uint64_t Fetch(uint64_t table) {
    if (!model_.contains(table)) return 1;
    std::vector<Key> keys(random_() % 600);
    for (Key& key : keys) key = DrawKey();
    if (random_() % 2 == 0) std::sort(keys.begin(), keys.end());
    const FetchedRows fetched(*tables_[table], keys);
    EXPECT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto known = model_[table].find(keys[i]);
      const bool present = known != model_[table].end();
      EXPECT_EQ(fetched.outcomes[i], present ? FetchOutcome::kHit : FetchOutcome::kAbsent);
      if (!present || fetched.outcomes[i] != FetchOutcome::kHit) continue;
      EXPECT_EQ(fetched.versions[i], known->second);
      EXPECT_TRUE(StampedRow::Matches(table, keys[i], known->second, fetched.row(i)));
    }
    return keys.size() + 1;
  }
  uint64_t Scan(uint64_t table) {
    if (!model_.contains(table)) return 1;
    auto cursor = tables_[table]->Scan();
    EXPECT_TRUE(cursor.ok()) << cursor.status();
    std::vector<Key> keys(2 * kKeySpace);
    std::vector<Version> versions(keys.size());
    std::vector<std::byte> bytes(keys.size() * kRowBytes);
    const auto count =
        (*cursor)->Next(keys, {bytes.data(), keys.size(), kRowBytes, kRowBytes}, versions);
    EXPECT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(*count, model_[table].size());
    size_t i = 0;
    for (const auto& [key, version] : model_[table]) {
      EXPECT_EQ(keys[i], key);
      EXPECT_EQ(versions[i], version);
      ++i;
    }
    return *count + 1;
  }

  std::mt19937_64 random_;
  RocksStoreOptions options_;
  uint64_t merges_ = 0;  // of the stores that were closed
  TestDirectory directory_;
  std::map<uint64_t, Rows> model_;
  std::unique_ptr<DurableStore> store_;
  std::map<uint64_t, std::unique_ptr<DurableTable>> tables_;
  Version version_ = 0;
};

// Runs random operations on a store, more than `key_operations` until there were as many merges.
uint64_t RunModel(const RocksStoreOptions& options, uint64_t key_operations = kKeyOperations,
                  uint64_t merges_min = 0) {
  ModelRunner runner(TestSeed(), options);
  uint64_t done = 0;
  const auto is_enough = [&] { return done >= key_operations && runner.merges() >= merges_min; };
  while (!is_enough() && done < 100 * key_operations && !testing::Test::HasFailure())
    done += runner.Step();
  return runner.merges();
}

TEST(RocksStoreModelTest, AgreesWithPlainMaps) { RunModel(TestOptions("")); }

// While changes are merged into new page files, all the time.
TEST(RocksStoreModelTest, MergesAgreeWithPlainMaps) {
  RocksStoreOptions options = TestOptions("");
  options.role = OwnerRole::kServer;
  options.merge_keys_min = 1;
  options.config.merge_share = 0.02;
  EXPECT_GE(RunModel(options, kKeyOperations / 4, 10), 10u);
}

}  // namespace
}  // namespace hps
