#include "l3_rocksdb/files/wal_error_shield.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "l3_rocksdb/test_disk.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

using rocksdb::FSWritableFile;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class WalErrorShieldTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return directory_.path() + "/" + name; }

  std::unique_ptr<FSWritableFile> Create(const std::string& name) {
    std::unique_ptr<FSWritableFile> file;
    EXPECT_TRUE(shield_.NewWritableFile(PathOf(name), rocksdb::FileOptions(), &file, nullptr).ok());
    return file;
  }
  static IOStatus Append(FSWritableFile& file, const std::string& text) {
    return file.Append(text, IOOptions(), nullptr);
  }
  std::string ContentOf(const std::string& name) const {
    std::ifstream stream(PathOf(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void Heal() { disk_->fails_appends = disk_->fails_flushes = disk_->fails_syncs = false; }

  TestDirectory directory_;
  const std::shared_ptr<TestDisk> disk_ = std::make_shared<TestDisk>();
  WalErrorShield shield_{disk_};
};

TEST_F(WalErrorShieldTest, BuffersAFailedAppendAndFlushesItInPlace) {
  const auto log = Create("000001.log");
  ASSERT_TRUE(Append(*log, "one,").ok());
  EXPECT_FALSE(shield_.pending());
  disk_->fails_appends = true;  // leaves the first half of the text in the file
  EXPECT_TRUE(Append(*log, "second,").ok());
  EXPECT_TRUE(Append(*log, "three,").ok());
  EXPECT_TRUE(shield_.pending());
  Heal();
  EXPECT_TRUE(Append(*log, "4,").ok());  // must not be written before what is pending
  EXPECT_TRUE(shield_.pending());
  ASSERT_TRUE(shield_.Flush().ok());
  EXPECT_FALSE(shield_.pending());
  EXPECT_EQ(ContentOf("000001.log"), "one,second,three,4,");
  EXPECT_TRUE(Append(*log, "five").ok());
  EXPECT_EQ(ContentOf("000001.log"), "one,second,three,4,five");
  EXPECT_TRUE(log->Close(IOOptions(), nullptr).ok());
}

TEST_F(WalErrorShieldTest, StaysPendingUntilTheDiskWorks) {
  const auto log = Create("000001.log");
  disk_->fails_appends = true;
  ASSERT_TRUE(Append(*log, "text").ok());
  for (int i = 0; i < 3; ++i) {
    const IOStatus status = shield_.Flush();
    EXPECT_TRUE(status.IsIOError()) << status.ToString();
    EXPECT_TRUE(shield_.pending());
  }
  Heal();
  EXPECT_TRUE(shield_.Flush().ok());
  EXPECT_EQ(ContentOf("000001.log"), "text");
}

TEST_F(WalErrorShieldTest, AFailedFlushIsPending) {
  const auto log = Create("000001.log");
  ASSERT_TRUE(Append(*log, "text").ok());
  disk_->fails_flushes = true;
  EXPECT_TRUE(log->Flush(IOOptions(), nullptr).ok());
  EXPECT_TRUE(shield_.pending());
  EXPECT_FALSE(shield_.Flush().ok());
  Heal();
  EXPECT_TRUE(shield_.Flush().ok());
  EXPECT_FALSE(shield_.pending());
}

TEST_F(WalErrorShieldTest, WritesNoManifestWhileALogIsIncomplete) {
  const auto log = Create("000001.log");
  const auto manifest = Create("MANIFEST-000002");
  const auto table = Create("000003.sst");
  disk_->fails_only = ".log";
  disk_->fails_appends = true;
  ASSERT_TRUE(Append(*log, "log").ok());
  const IOStatus status = Append(*manifest, "manifest");
  EXPECT_TRUE(status.IsIOError()) << status.ToString();
  EXPECT_EQ(ContentOf("MANIFEST-000002"), "");
  EXPECT_TRUE(Append(*table, "table").ok());
  EXPECT_EQ(ContentOf("000003.sst"), "table");
  Heal();
  EXPECT_TRUE(Append(*manifest, "manifest").ok());
  EXPECT_EQ(ContentOf("MANIFEST-000002"), "manifest");
  EXPECT_EQ(ContentOf("000001.log"), "log");  // the WAL was written first
  EXPECT_FALSE(shield_.pending());
}

TEST_F(WalErrorShieldTest, SyncsTheLogsThatHaveSomethingNew) {
  const auto first = Create("000001.log");
  const auto second = Create("000002.log");
  const auto empty = Create("000003.log");
  ASSERT_TRUE(Append(*first, "text").ok());
  ASSERT_TRUE(Append(*second, "text").ok());
  ASSERT_TRUE(shield_.SyncLogs().ok());
  EXPECT_EQ(disk_->sync_count, 2u);
  ASSERT_TRUE(shield_.SyncLogs().ok());
  EXPECT_EQ(disk_->sync_count, 2u);
  ASSERT_TRUE(Append(*second, "text").ok());
  ASSERT_TRUE(shield_.SyncLogs().ok());
  EXPECT_EQ(disk_->sync_count, 3u);
  EXPECT_EQ(shield_.sync_failures(), 0u);
}

TEST_F(WalErrorShieldTest, ReportsAFailedSyncAndKeepsItPending) {
  const auto log = Create("000001.log");
  ASSERT_TRUE(Append(*log, "text").ok());
  disk_->fails_syncs = true;
  const IOStatus status = shield_.SyncLogs();
  EXPECT_TRUE(status.IsIOError()) << status.ToString();
  EXPECT_TRUE(shield_.pending());
  EXPECT_EQ(shield_.sync_failures(), 1u);
  EXPECT_TRUE(log->Sync(IOOptions(), nullptr).ok());  // RocksDB's own sync: sees no error
  EXPECT_EQ(shield_.sync_failures(), 2u);
  EXPECT_FALSE(shield_.Flush().ok());
  Heal();
  EXPECT_TRUE(shield_.Flush().ok());
  EXPECT_FALSE(shield_.pending());
  EXPECT_EQ(disk_->sync_count, 1u);
  EXPECT_EQ(shield_.sync_failures(), 2u);  // Flush does not reset the count
}

TEST_F(WalErrorShieldTest, KeepsTheFileOfAClosedLogUntilItIsComplete) {
  auto log = Create("000001.log");
  disk_->fails_appends = true;
  ASSERT_TRUE(Append(*log, "text").ok());
  EXPECT_TRUE(log->Close(IOOptions(), nullptr).ok());
  log.reset();
  EXPECT_FALSE(shield_.Flush().ok());
  Heal();
  EXPECT_TRUE(shield_.Flush().ok());
  EXPECT_EQ(ContentOf("000001.log"), "text");
}

TEST_F(WalErrorShieldTest, ADeletedLogHasNothingPending) {
  const auto log = Create("000001.log");
  disk_->fails_appends = true;
  ASSERT_TRUE(Append(*log, "text").ok());
  ASSERT_FALSE(shield_.Flush().ok());
  ASSERT_TRUE(shield_.DeleteFile(PathOf("000001.log"), IOOptions(), nullptr).ok());
  EXPECT_TRUE(shield_.Flush().ok());
  EXPECT_FALSE(shield_.pending());
}

// RocksDB would recover by itself from an error that is marked retryable.
TEST_F(WalErrorShieldTest, PassesOtherErrorsWithoutRecoveryFlags) {
  const auto table = Create("000001.sst");
  ASSERT_TRUE(Append(*table, "text").ok());
  disk_->fails_appends = disk_->fails_flushes = disk_->fails_syncs = true;
  disk_->reads_left = 0;
  disk_->error.SetRetryable(true);
  disk_->error.SetDataLoss(true);
  disk_->error.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFile);
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  ASSERT_TRUE(
      shield_.NewRandomAccessFile(PathOf("000001.sst"), rocksdb::FileOptions(), &file, nullptr)
          .ok());
  rocksdb::Slice result;
  char scratch[4];
  const IOStatus statuses[] = {Append(*table, "more"), table->Flush(IOOptions(), nullptr),
                               table->Sync(IOOptions(), nullptr),
                               file->Read(0, 4, IOOptions(), &result, scratch, nullptr)};
  for (const IOStatus& status : statuses) {
    EXPECT_TRUE(status.IsIOError()) << status.ToString();
    EXPECT_FALSE(status.GetRetryable()) << status.ToString();
    EXPECT_FALSE(status.GetDataLoss()) << status.ToString();
    EXPECT_EQ(status.GetScope(), IOStatus::IOErrorScope::kIOErrorScopeFileSystem);
  }
  EXPECT_FALSE(shield_.pending());  // errors of these files leave nothing pending
  EXPECT_TRUE(WalErrorShield::Downgrade(IOStatus::NoSpace("no room")).IsNoSpace());
  EXPECT_TRUE(WalErrorShield::Downgrade(IOStatus::Corruption("damage")).IsCorruption());
  EXPECT_TRUE(WalErrorShield::Downgrade(IOStatus::OK()).ok());
}

// A failed change of the MANIFEST may still be on the disk and name files that RocksDB deletes
// because of the failure.
TEST_F(WalErrorShieldTest, DeletesNoFileThatAnUnconfirmedManifestMayName) {
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(PathOf(name));
  };
  const auto remove = [&](const std::string& name) {
    EXPECT_TRUE(shield_.DeleteFile(PathOf(name), IOOptions(), nullptr).ok());
    return !exists(name);
  };
  std::unique_ptr<rocksdb::FSDirectory> directory;
  ASSERT_TRUE(shield_.NewDirectory(directory_.path(), IOOptions(), &directory, nullptr).ok());
  const auto name_manifest = [&] {
    const rocksdb::DirFsyncOptions renamed(PathOf("CURRENT"));
    return directory->FsyncWithDirOptions(IOOptions(), nullptr, renamed);
  };
  const auto manifest = Create("MANIFEST-000001");
  for (const char* name : {"000002.sst", "000003.sst", "000004.sst", "000005.log"}) Create(name);
  EXPECT_FALSE(remove("000002.sst"));  // a new MANIFEST is unconfirmed until CURRENT names it
  ASSERT_TRUE(name_manifest().ok());
  EXPECT_FALSE(exists("000002.sst"));
  EXPECT_TRUE(remove("000003.sst"));
  disk_->fails_syncs = true;
  EXPECT_FALSE(manifest->Sync(IOOptions(), nullptr).ok());
  Heal();
  EXPECT_FALSE(remove("000004.sst"));
  EXPECT_FALSE(remove("MANIFEST-000001"));
  EXPECT_TRUE(remove("000005.log"));
  const auto other_manifest = Create("MANIFEST-000006");
  const rocksdb::DirFsyncOptions another(PathOf("IDENTITY"));
  ASSERT_TRUE(directory->FsyncWithDirOptions(IOOptions(), nullptr, another).ok());
  EXPECT_TRUE(exists("000004.sst"));
  ASSERT_TRUE(name_manifest().ok());
  EXPECT_FALSE(exists("000004.sst"));
  EXPECT_FALSE(exists("MANIFEST-000001"));
  EXPECT_TRUE(exists("MANIFEST-000006"));
}

// RocksDB keeps half of a column family if it cannot open the family's directory.
TEST_F(WalErrorShieldTest, AlwaysGivesADirectoryAndFailsItsSync) {
  std::unique_ptr<rocksdb::FSDirectory> directory;
  const std::string path = PathOf("not/there");
  ASSERT_TRUE(shield_.CreateDirIfMissing(path, IOOptions(), nullptr).ok());
  ASSERT_TRUE(shield_.NewDirectory(path, IOOptions(), &directory, nullptr).ok());
  EXPECT_FALSE(directory->Fsync(IOOptions(), nullptr).ok());
  ASSERT_TRUE(std::filesystem::create_directories(path));
  EXPECT_TRUE(directory->Fsync(IOOptions(), nullptr).ok());
  EXPECT_TRUE(directory->Close(IOOptions(), nullptr).ok());
}

}  // namespace
}  // namespace hps
