// A store in a directory of its own, for tests. The object's destructor removes the directory.
#pragma once

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_rows.h"
#include "testing/test_directory.h"

namespace hps {

// Small budgets, and no lower limit of free disk space.
inline RocksStoreOptions TestOptions(const std::string& path) {
  RocksStoreOptions options;
  options.config.path = path;
  options.config.cache_bytes = 8 << 20;
  options.config.write_buffer_bytes = 4 << 20;
  options.config.sync = SyncMode::kNever;
  options.config.free_bytes_min = 0;
  options.mode = OpenMode::kCreate;
  return options;
}

// The database of the closed store at `path`, opened for writing without hps.
class RawDatabase {
 public:
  explicit RawDatabase(const std::string& path) {
    std::vector<std::string> names;
    EXPECT_TRUE(rocksdb::DB::ListColumnFamilies({}, path, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.push_back({name, {}});
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open({}, path, families, &handles_, &opened);
    EXPECT_TRUE(status.ok()) << status.ToString();
    db_.reset(opened);
  }
  RawDatabase(const RawDatabase&) = delete;
  RawDatabase& operator=(const RawDatabase&) = delete;
  ~RawDatabase() {
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  }

  rocksdb::DB& db() { return *db_; }
  // Null if the database does not have the family.
  rocksdb::ColumnFamilyHandle* FindFamily(const std::string& name) const {
    for (rocksdb::ColumnFamilyHandle* handle : handles_)
      if (handle->GetName() == name) return handle;
    return nullptr;
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

inline void FlipBit(const std::string& file, uint64_t byte, int bit = 2) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int value = stream.get() ^ (1 << bit);
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(value));
  ASSERT_TRUE(stream.flush()) << file;
}

// The paths of the page files of the store at `path`.
inline std::vector<std::string> PageFilesOf(const std::string& path) {
  std::vector<std::string> paths;
  const std::string directory = PagesDirectory(path);
  if (!std::filesystem::exists(directory)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    paths.push_back(entry.path().string());
  return paths;
}

}  // namespace hps
