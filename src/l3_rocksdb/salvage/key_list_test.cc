#include "l3_rocksdb/salvage/key_list.h"

#include <gtest/gtest.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/store_iterator.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr Key kChunks = 8;

// Lists of several imports in table files on the lowest level, as imports leave them.
class KeyListTest : public testing::Test {
 protected:
  KeyListTest() {
    options_.create_if_missing = true;
    options_.compression = rocksdb::kNoCompression;
    Open();
  }

  void Open() {
    database_.reset();
    rocksdb::DB* opened = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(options_, directory_.path() + "/db", &opened).ok());
    database_.reset(opened);
  }

  rocksdb::ColumnFamilyHandle* family() { return database_->DefaultColumnFamily(); }

  // One chunk takes about one block.
  static std::vector<Key> Keys(Key chunk) {
    std::vector<Key> keys;
    for (Key i = 0; i < Key{kKeyListChunkKeys}; ++i)
      keys.push_back(chunk * Key{kKeyListChunkKeys} + i);
    return keys;
  }

  // One file with the lists of `incarnations`.
  void AddFile(std::span<const Incarnation> incarnations) {
    const std::string path = directory_.path() + "/added.sst";
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options_);
    ASSERT_TRUE(writer.Open(path).ok());
    for (const Incarnation incarnation : incarnations) {
      for (Key chunk = 0; chunk < kChunks; ++chunk) {
        const KeyListRecord record = EncodeKeyList(incarnation, Keys(chunk));
        ASSERT_TRUE(writer.Put(record.key, record.value).ok());
      }
    }
    ASSERT_TRUE(writer.Finish().ok());
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = true;
    ASSERT_TRUE(database_->IngestExternalFile({path}, ingest).ok());
  }

  // Flips a bit in the first block of the file that begins with the list of `incarnation`.
  void DamageFirstBlock(Incarnation incarnation) {
    Damage(incarnation, [](const std::string&) { return 100; });
  }
  void DamageLastBlock(Incarnation incarnation) {
    Damage(incarnation, [this](const std::string& path) {
      rocksdb::SstFileReader reader(options_);
      EXPECT_TRUE(reader.Open(path).ok());
      return static_cast<std::streamoff>(reader.GetTableProperties()->data_size) - 100;
    });
  }

  void Damage(Incarnation incarnation,
              const std::function<std::streamoff(const std::string&)>& byte_of) {
    std::vector<rocksdb::LiveFileMetaData> files;
    database_->GetLiveFilesMetaData(&files);
    size_t damaged = 0;
    for (const rocksdb::LiveFileMetaData& file : files) {
      if (LoadBigEndian64(file.smallestkey.data()) != incarnation) continue;
      std::fstream stream(file.db_path + file.name,
                          std::ios::in | std::ios::out | std::ios::binary);
      const std::streamoff byte = byte_of(file.db_path + file.name);
      stream.seekg(byte);
      const int value = stream.get() ^ 4;
      stream.seekp(byte);
      stream.put(static_cast<char>(value));
      ASSERT_TRUE(stream.good());
      ++damaged;
    }
    ASSERT_EQ(damaged, 1u);
    Open();  // no block of the file is cached
  }

  // True if the last chunk of a list exists; it is far from the damage.
  bool HasEndOf(Incarnation incarnation) {
    std::string value;
    const rocksdb::Status got =
        database_->Get({}, EncodeKeyList(incarnation, Keys(kChunks - 1)).key, &value);
    EXPECT_TRUE(got.ok() || got.IsNotFound()) << got.ToString();
    return got.ok();
  }

  const TestDirectory directory_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> database_;
};

TEST_F(KeyListTest, ReadsAndCountsAList) {
  AddFile(std::vector<Incarnation>{1, 2, 3});
  EXPECT_EQ(*CountKeyList(*database_, family(), 2), uint64_t{kChunks} * kKeyListChunkKeys);
  std::vector<Key> keys;
  ASSERT_TRUE(ReadKeyList(*database_, family(), 2, {.first = 4000, .last = 8500}, keys).ok());
  ASSERT_EQ(keys.size(), 4501u);
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(keys[i], static_cast<Key>(4000 + i));
  keys.clear();
  ASSERT_TRUE(
      ReadKeyList(*database_, family(), 2, {.first = 4000, .last = 8500, .keys_max = 3}, keys)
          .ok());
  EXPECT_EQ(keys, (std::vector<Key>{4000, 4001, 4002}));
  EXPECT_EQ(*CountKeyList(*database_, family(), 9), 0u);
}

TEST_F(KeyListTest, ReportsADamagedList) {
  AddFile(std::vector<Incarnation>{1});
  AddFile(std::vector<Incarnation>{2});
  DamageFirstBlock(2);
  std::vector<Key> keys;
  EXPECT_TRUE(absl::IsDataLoss(CountKeyList(*database_, family(), 2).status()));
  EXPECT_TRUE(
      absl::IsDataLoss(ReadKeyList(*database_, family(), 2, {.first = 0, .last = 10}, keys)));
  EXPECT_EQ(*CountKeyList(*database_, family(), 1), uint64_t{kChunks} * kKeyListChunkKeys);
}

// Catches: a search before the first chunk of a list, which reads a neighbour's file.
TEST_F(KeyListTest, DamageInThePreviousListDoesNotAffectAList) {
  AddFile(std::vector<Incarnation>{1});
  AddFile(std::vector<Incarnation>{2});
  DamageLastBlock(1);
  const Key first = std::numeric_limits<Key>::min();
  std::vector<Key> keys;
  const absl::Status neighbour =
      ReadKeyList(*database_, family(), 1, {.first = first, .last = 40'000}, keys);
  EXPECT_TRUE(absl::IsDataLoss(neighbour)) << neighbour;
  keys.clear();
  const absl::Status read =
      ReadKeyList(*database_, family(), 2, {.first = first, .last = 10}, keys);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(keys.size(), 11u);
}

// Catches: a list taken for deleted because its first record is unreadable.
TEST_F(KeyListTest, DeletesAListWhoseBeginIsDamaged) {
  AddFile(std::vector<Incarnation>{3, 4});  // not deleted as a file, because another list is in it
  DamageFirstBlock(3);
  ASSERT_TRUE(HasEndOf(3));
  ASSERT_TRUE(DeleteKeyList(*database_, family(), 3).ok());
  EXPECT_FALSE(HasEndOf(3));
  EXPECT_EQ(*CountKeyList(*database_, family(), 4), uint64_t{kChunks} * kKeyListChunkKeys);
}

// Catches: lists after a damaged one that are never deleted, because a search took the damage for
// the end.
TEST_F(KeyListTest, DeletesAllOthersAroundDamage) {
  AddFile(std::vector<Incarnation>{1});
  AddFile(std::vector<Incarnation>{2});
  AddFile(std::vector<Incarnation>{3, 4, 5});
  AddFile(std::vector<Incarnation>{6, 7});
  AddFile(std::vector<Incarnation>{8});
  DamageFirstBlock(3);
  DamageFirstBlock(8);
  ASSERT_TRUE(DeleteOtherKeyLists(*database_, family(), std::vector<Incarnation>{7, 4}).ok());
  for (const Incarnation deleted : {1, 2, 3, 5, 6, 8}) EXPECT_FALSE(HasEndOf(deleted)) << deleted;
  for (const Incarnation kept : {4, 7})
    EXPECT_EQ(*CountKeyList(*database_, family(), kept), uint64_t{kChunks} * kKeyListChunkKeys);
  // A list that is already deleted is not deleted again at every open, damaged or not.
  for (const bool is_opened_again : {false, true}) {
    if (is_opened_again) Open();
    const uint64_t before = database_->GetLatestSequenceNumber();
    ASSERT_TRUE(DeleteOtherKeyLists(*database_, family(), std::vector<Incarnation>{7, 4}).ok());
    EXPECT_EQ(database_->GetLatestSequenceNumber(), before);
  }
}

// Catches: a list that was deleted by range and then read for another import. The store's iterators
// ignore range deletions.
TEST_F(KeyListTest, ADeletedListIsNotReadForAnotherImport) {
  AddFile(std::vector<Incarnation>{3, 4, 5});
  ASSERT_TRUE(DeleteKeyList(*database_, family(), 3).ok());
  ASSERT_TRUE(DeleteKeyList(*database_, family(), 5).ok());
  std::vector<Key> keys;
  ASSERT_TRUE(
      ReadKeyList(
          *database_, family(), 4,
          {.first = std::numeric_limits<Key>::min(), .last = std::numeric_limits<Key>::max()}, keys)
          .ok());
  EXPECT_EQ(keys.size(), size_t{kChunks} * kKeyListChunkKeys);
  ASSERT_TRUE(database_->CompactRange({}, nullptr, nullptr).ok());
  EXPECT_EQ(*CountKeyList(*database_, family(), 4), uint64_t{kChunks} * kKeyListChunkKeys);
  EXPECT_EQ(*CountKeyList(*database_, family(), 3), 0u);
}

}  // namespace
}  // namespace hps
