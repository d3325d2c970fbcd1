// A store in a directory of its own that goes when the object goes. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_rows.h"

namespace hps {

class TestDirectory {
 public:
  TestDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "hps-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Small budgets, and no disk is too full for a test.
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

}  // namespace hps
