// A store in a directory of its own, and files of tables to import into it. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "hps/config.h"
#include "hps/store.h"

namespace hps {

inline constexpr uint32_t kTestDim = 4;

class StoreFilesTest : public ::testing::Test {
 protected:
  explicit StoreFilesTest(uint64_t l2_bytes_max) {
    directory_ = (std::filesystem::temp_directory_path() / "hps_store_XXXXXX").string();
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    config_.store.path = directory_ + "/store";
    config_.l2.bytes_max = l2_bytes_max;
    config_.l2.huge_pages = false;
  }
  ~StoreFilesTest() override { std::filesystem::remove_all(directory_); }

  static std::vector<Key> Iota(size_t n, Key first = 0) {
    std::vector<Key> keys(n);
    std::iota(keys.begin(), keys.end(), first);
    return keys;
  }
  template <typename T>
  static void WriteVector(const std::string& path, const std::vector<T>& values) {
    std::vector<char> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  }

  // Files of several tables of one model, with the keys 0 to n - 1; every element is `value`.
  ImportRequest ModelFiles(const std::string& model, const std::vector<std::string>& tables,
                           size_t n, float value, uint32_t dim = kTestDim) {
    const std::string path = directory_ + "/files" + std::to_string(++files_);
    for (const std::string& table : tables) {
      std::filesystem::create_directories(path + "/" + table);
      WriteVector(path + "/" + table + "/key", Iota(n));
      WriteVector(path + "/" + table + "/emb_vector", std::vector<float>(n * dim, value));
    }
    return {.name = model, .from = path};
  }
  // The same for one table, MODEL/TABLE.
  ImportRequest Files(const std::string& table, size_t n, float value, uint32_t dim = kTestDim) {
    const std::string name = table.substr(table.find('/') + 1);
    const ImportRequest files = ModelFiles(table, {name}, n, value, dim);
    return {.name = table, .from = files.from + "/" + name, .dim = dim};
  }
  void Import(const ImportRequest& request) {
    const auto report = ImportTables(config_, request);
    ASSERT_TRUE(report.ok()) << report.status();
  }

  std::string directory_;
  Config config_;

 private:
  int files_ = 0;
};

}  // namespace hps
