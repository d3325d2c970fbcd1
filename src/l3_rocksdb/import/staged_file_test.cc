#include "l3_rocksdb/import/staged_file.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "l3_rocksdb/test_disk.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr int kRowCount = 20'000;

std::string KeyAt(int i) {
  char key[16];
  std::snprintf(key, sizeof key, "key%07d", i);
  return key;
}

// A file system that returns the same, already open file for every path.
class OneFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  OneFileSystem(const std::shared_ptr<rocksdb::FileSystem>& target,
                std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : FileSystemWrapper(target), file_(std::move(file)) {}

  const char* Name() const override { return "OneFileSystem"; }
  rocksdb::IOStatus NewRandomAccessFile(const std::string&, const rocksdb::FileOptions&,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext*) override {
    *file = std::move(file_);
    return rocksdb::IOStatus::OK();
  }

 private:
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
};

class StagedFileTest : public ::testing::Test {
 protected:
  StagedFileTest() { Write(kRowCount); }

  // About a hundred bytes per row.
  void Write(int row_count) {
    rocksdb::Options options;
    options.compression = rocksdb::kNoCompression;
    rocksdb::SstFileWriter writer{rocksdb::EnvOptions(), options};
    EXPECT_TRUE(writer.Open(path_).ok());
    for (int i = 0; i < row_count; ++i)
      EXPECT_TRUE(writer.Put(KeyAt(i), std::string(100, static_cast<char>(i))).ok());
    EXPECT_TRUE(writer.Finish().ok());
  }

  rocksdb::IOStatus Open() { return OpenStagedFile(disk_, path_, rocksdb::FileOptions(), &file_); }

  TestDirectory directory_;
  const std::string path_ = directory_.path() + "/rows.sst";
  const std::shared_ptr<TestDisk> disk_ = std::make_shared<TestDisk>();
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
};

// Reads the staged file as an ingestion does, while the disk fails all reads.
class Ingestion {
 public:
  Ingestion(const std::shared_ptr<TestDisk>& disk, const std::string& path,
            std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : env_(rocksdb::NewCompositeEnv(std::make_shared<OneFileSystem>(disk, std::move(file)))) {
    disk->reads_left = 0;
    rocksdb::Options options;
    options.env = env_.get();
    reader_ = std::make_unique<rocksdb::SstFileReader>(options);
    const rocksdb::Status opened = reader_->Open(path);
    EXPECT_TRUE(opened.ok()) << opened.ToString();
    it_.reset(reader_->NewIterator(rocksdb::ReadOptions()));
  }

  void ExpectEnds(const std::string& first_key, const std::string& last_key) {
    it_->SeekToFirst();
    ASSERT_TRUE(it_->Valid()) << it_->status().ToString();
    EXPECT_EQ(it_->key(), first_key);
    it_->SeekToLast();
    ASSERT_TRUE(it_->Valid()) << it_->status().ToString();
    EXPECT_EQ(it_->key(), last_key);
  }
  rocksdb::Iterator& it() { return *it_; }

 private:
  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::SstFileReader> reader_;
  std::unique_ptr<rocksdb::Iterator> it_;
};

TEST_F(StagedFileTest, AnswersFromMemoryWhatTheIngestionReads) {
  ASSERT_TRUE(Open().ok());
  Ingestion ingestion(disk_, path_, std::move(file_));
  ingestion.ExpectEnds(KeyAt(0), KeyAt(kRowCount - 1));
  // Other parts of the file are not in memory, so the error of the disk is returned.
  rocksdb::Iterator& it = ingestion.it();
  it.Seek(KeyAt(kRowCount / 2));
  EXPECT_FALSE(it.Valid());
  EXPECT_TRUE(it.status().IsIOError()) << it.status().ToString();
}

// Small files, which one read of the tail covers completely.
TEST_F(StagedFileTest, AnswersFromMemoryForSmallFiles) {
  for (const int row_count : {1, 31, 32, 33, 1000}) {
    disk_->reads_left = UINT64_MAX;
    Write(row_count);
    ASSERT_TRUE(Open().ok());
    Ingestion ingestion(disk_, path_, std::move(file_));
    ingestion.ExpectEnds(KeyAt(0), KeyAt(row_count - 1));
  }
}

TEST_F(StagedFileTest, ReadsAsTheFileBelow) {
  ASSERT_TRUE(Open().ok());
  std::ifstream stream(path_, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  const uint64_t end = whole.size();
  std::string scratch(end, '\0');
  for (const uint64_t size : {uint64_t{1}, uint64_t{31}, uint64_t{4096}, end}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, end / 2, end - size}) {
      const size_t expected = std::min(size, end - offset);
      rocksdb::Slice result;
      ASSERT_TRUE(
          file_->Read(offset, size, rocksdb::IOOptions(), &result, scratch.data(), nullptr).ok());
      EXPECT_TRUE(result == rocksdb::Slice(whole.data() + offset, expected))
          << size << " bytes at " << offset;
    }
  }
}

TEST_F(StagedFileTest, IsRefusedWhicheverReadFails) {
  uint64_t failed_count = 0;
  for (disk_->reads_left = 0; !Open().ok(); disk_->reads_left = ++failed_count) {
    EXPECT_EQ(file_, nullptr);
    ASSERT_LT(failed_count, 100u);
  }
  EXPECT_NE(file_, nullptr);
  EXPECT_EQ(failed_count, 2u);  // the tail with the last block, and the first block
}

TEST_F(StagedFileTest, IsRefusedWithTheErrorOfTheDisk) {
  disk_->reads_left = 0;
  const rocksdb::IOStatus status = Open();
  EXPECT_TRUE(status.IsIOError()) << status.ToString();
  EXPECT_NE(status.ToString().find("a planned fault"), std::string::npos) << status.ToString();
}

TEST_F(StagedFileTest, IsRefusedWhenItIsNoTable) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_TRUE(Open().IsCorruption());
  std::filesystem::resize_file(path_, 0);
  EXPECT_TRUE(Open().IsCorruption());
  std::filesystem::remove(path_);
  EXPECT_FALSE(Open().ok());
  EXPECT_EQ(file_, nullptr);
}

TEST_F(StagedFileTest, IsRefusedWhenItsFirstBlockIsDamaged) {
  {
    std::fstream stream(path_, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(100);
    stream.put('\x5a');
  }
  const rocksdb::IOStatus status = Open();
  EXPECT_TRUE(status.IsCorruption()) << status.ToString();
  EXPECT_EQ(file_, nullptr);
}

}  // namespace
}  // namespace hps
