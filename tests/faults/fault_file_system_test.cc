// The faulty disk does what its plans say, and a RocksDB on it notices: each mechanism catches a
// planted defect.
#include "tests/faults/fault_file_system.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/table.h>

#include <filesystem>

#include "tests/faults/temporary_directory.h"

namespace hps {
namespace {

class FaultFileSystemTest : public testing::Test {
 protected:
  rocksdb::Options Options() {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.env = env_.get();
    options.paranoid_checks = true;
    rocksdb::BlockBasedTableOptions table;
    table.no_block_cache = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    return options;
  }
  rocksdb::Status Open() {
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(Options(), directory_.path("db"), &db);
    db_.reset(db);
    return status;
  }
  rocksdb::Status Put(int i, bool sync = false) {
    rocksdb::WriteOptions options;
    options.sync = sync;
    return db_->Put(options, "key" + std::to_string(i), std::string(1000, 'a'));
  }
  rocksdb::Status Get(int i) {
    std::string value;
    return db_->Get({}, "key" + std::to_string(i), &value);
  }

  TemporaryDirectory directory_;
  std::shared_ptr<FaultFileSystem> disk_ = std::make_shared<FaultFileSystem>();
  std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
  std::unique_ptr<rocksdb::DB> db_;
};

TEST_F(FaultFileSystemTest, IsTransparentWithoutAPlan) {
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Put(1, true).ok());
  db_.reset();
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Get(1).ok());
  EXPECT_EQ(disk_->failures(), 0u);
}

TEST_F(FaultFileSystemTest, FailsTheNthCallOnce) {
  ASSERT_TRUE(Open().ok());
  // A put is an append and a flush.
  disk_->Fail({.nth = 2, .calls = kFileAppend, .path_contains = ".log"});
  EXPECT_TRUE(Put(1).ok());
  EXPECT_TRUE(Put(2).IsIOError());
  EXPECT_EQ(disk_->failures(), 1u);
  EXPECT_GE(disk_->matching_calls(), 3u);
}

TEST_F(FaultFileSystemTest, FailsStickilyUntilHealed) {
  disk_->Fail({.sticky = true, .calls = kFileOpen | kFileCreate});
  EXPECT_FALSE(Open().ok());
  EXPECT_FALSE(Open().ok());
  disk_->Heal();
  EXPECT_TRUE(Open().ok());
}

TEST_F(FaultFileSystemTest, RunsOutOfSpaceAndGetsItBack) {
  ASSERT_TRUE(Open().ok());
  disk_->SetFreeBytes(2500);
  EXPECT_TRUE(Put(1).ok());
  EXPECT_TRUE(Put(2).ok());
  const rocksdb::Status full = Put(3);
  EXPECT_TRUE(full.IsNoSpace()) << full.ToString();
  EXPECT_EQ(disk_->out_of_space_count(), 1u);
  uint64_t free_bytes = 1;
  ASSERT_TRUE(disk_->GetFreeSpace(directory_.path("db"), {}, &free_bytes, nullptr).ok());
  EXPECT_EQ(free_bytes, 0u);
  EXPECT_TRUE(Get(1).ok());
}

TEST_F(FaultFileSystemTest, DeletionGivesSpaceBack) {
  disk_->SetFreeBytes(100);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  const std::string path = directory_.path("file");
  ASSERT_TRUE(disk_->NewWritableFile(path, {}, &file, nullptr).ok());
  EXPECT_TRUE(file->Append("0123456789", {}, nullptr).ok());
  EXPECT_TRUE(file->Close({}, nullptr).ok());
  uint64_t free_bytes = 0;
  ASSERT_TRUE(disk_->GetFreeSpace(path, {}, &free_bytes, nullptr).ok());
  EXPECT_EQ(free_bytes, 90u);
  ASSERT_TRUE(disk_->DeleteFile(path, {}, nullptr).ok());
  ASSERT_TRUE(disk_->GetFreeSpace(path, {}, &free_bytes, nullptr).ok());
  EXPECT_EQ(free_bytes, 100u);
}

TEST_F(FaultFileSystemTest, APowerCutTakesWhatWasNotSynced) {
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Put(1, true).ok());
  ASSERT_TRUE(Put(2, false).ok());
  disk_->CutPower();
  EXPECT_FALSE(Put(3).ok());
  db_.reset();
  ASSERT_TRUE(disk_->DropUnsynced().ok());
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Get(1).ok());
  EXPECT_TRUE(Get(2).IsNotFound());
  EXPECT_TRUE(Get(3).IsNotFound());
}

TEST_F(FaultFileSystemTest, AFileWithoutItsDirectorysSyncIsGoneAfterAPowerCut) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  for (const char* name : {"lost", "kept"}) {
    ASSERT_TRUE(disk_->NewWritableFile(directory_.path(name), {}, &file, nullptr).ok());
    ASSERT_TRUE(file->Append("0123456789", {}, nullptr).ok());
    ASSERT_TRUE(file->Sync({}, nullptr).ok());
    ASSERT_TRUE(file->Append("unsynced", {}, nullptr).ok());
    ASSERT_TRUE(file->Close({}, nullptr).ok());
    std::unique_ptr<rocksdb::FSDirectory> directory;
    if (std::string(name) == "lost") continue;
    ASSERT_TRUE(disk_->NewDirectory(directory_.path(""), {}, &directory, nullptr).ok());
    ASSERT_TRUE(disk_->DeleteFile(directory_.path("lost"), {}, nullptr).ok());
    ASSERT_TRUE(directory->Fsync({}, nullptr).ok());
  }
  ASSERT_TRUE(disk_->NewWritableFile(directory_.path("lost"), {}, &file, nullptr).ok());
  ASSERT_TRUE(file->Sync({}, nullptr).ok());
  file.reset();
  disk_->CutPower();
  ASSERT_TRUE(disk_->DropUnsynced().ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.path("lost")));
  EXPECT_EQ(std::filesystem::file_size(directory_.path("kept")), 10u);
}

TEST_F(FaultFileSystemTest, FlippedReadsAreFoundByChecksums) {
  ASSERT_TRUE(Open().ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(i).ok());
  ASSERT_TRUE(db_->Flush({}).ok());
  EXPECT_TRUE(Get(50).ok());
  disk_->FlipReads({.path_contains = ".sst"});
  EXPECT_TRUE(Get(50).IsCorruption());
  EXPECT_GT(disk_->flips(), 0u);
  disk_->Heal();
  EXPECT_TRUE(Get(50).ok());
}

}  // namespace
}  // namespace hps
