#include "l3_rocksdb/store_iterator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "l3_rocksdb/test_store.h"
#include "testing/trials.h"

namespace hps {
namespace {

// Iterators agree with a map while the family is written to, flushed and compacted.
TEST(StoreIteratorTest, AgreesWithAMap) {
  std::mt19937_64 random(TestSeed());
  const TestDirectory directory;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.target_file_size_base = 4 << 10;
  options.max_bytes_for_level_base = 16 << 10;
  options.level0_file_num_compaction_trigger = 2;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, directory.path() + "/db", &opened).ok());
  const std::unique_ptr<rocksdb::DB> database(opened);
  std::map<std::string, std::string> map;
  const auto draw = [&] { return std::to_string(random() % 5000); };
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = draw();
      if (random() % 3 == 0) {
        map.erase(key);
        ASSERT_TRUE(database->Delete({}, key).ok());
      } else {
        map[key] = std::to_string(random());
        ASSERT_TRUE(database->Put({}, key, map[key]).ok());
      }
    }
    const auto it = NewStoreIterator(*database, database->DefaultColumnFamily());
    const std::string start = draw();
    it->SeekForPrev(start);
    auto expected = map.upper_bound(start);
    ASSERT_EQ(it->Valid(), expected != map.begin()) << it->status().ToString();
    if (it->Valid()) {
      ASSERT_EQ(it->key(), std::prev(expected)->first);
      --expected;
    } else {
      it->Seek(start);
    }
    // Later changes are not visible.
    ASSERT_TRUE(database->Put({}, "5x", "later").ok());
    ASSERT_TRUE(database->Flush({}).ok());
    for (; it->Valid(); it->Next(), ++expected) {
      ASSERT_NE(expected, map.end());
      ASSERT_EQ(it->key(), expected->first);
      ASSERT_EQ(it->value(), expected->second);
    }
    ASSERT_TRUE(it->status().ok()) << it->status().ToString();
    ASSERT_EQ(expected, map.end());
    ASSERT_TRUE(database->Delete({}, "5x").ok());
  }
  uint64_t files = 0;
  std::vector<rocksdb::LiveFileMetaData> live;
  database->GetLiveFilesMetaData(&live);
  for (const rocksdb::LiveFileMetaData& file : live) files += file.level > 0 ? 1 : 0;
  EXPECT_GT(files, 4u);
}

}  // namespace
}  // namespace hps
