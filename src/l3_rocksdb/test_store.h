// A store in a directory of its own that goes when the object goes: in memory where there is such a
// place, because a store syncs its files often, and a disk that others use makes each wait. For
// tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "l3_rocksdb/rocks_store.h"
#include "tier/stamped_rows.h"

namespace hps {

class TestDirectory {
 public:
  TestDirectory() {
    std::error_code error;
    const std::filesystem::path memory = "/dev/shm";
    const std::filesystem::path place = std::filesystem::is_directory(memory, error)
                                            ? memory
                                            : std::filesystem::temp_directory_path();
    path_ = (place / "hps-test-XXXXXX").string();
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
