#include "import/formats/hugectr_dump.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "testing/test_directory.h"

namespace hps {
namespace {

void Append(std::string& bytes, const void* value, size_t size) {
  bytes.append(static_cast<const char*>(value), size);
}

std::string Header(uint32_t version, uint32_t key_bytes, uint32_t row_bytes) {
  std::string bytes("bin\0", 4);
  for (const uint32_t word : {version, key_bytes, row_bytes}) Append(bytes, &word, sizeof(word));
  return bytes;
}

template <typename FileKey>
std::string Dump(const std::vector<FileKey>& keys, uint32_t dim) {
  std::string bytes = Header(1, sizeof(FileKey), dim * sizeof(float));
  for (size_t row = 0; row < keys.size(); ++row) {
    Append(bytes, &keys[row], sizeof(FileKey));
    for (uint32_t i = 0; i < dim; ++i) {
      const auto element = static_cast<float>(row * 1000 + i);
      Append(bytes, &element, sizeof(element));
    }
  }
  return bytes;
}

class HugectrDumpTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TableReader>> Open(const std::string& bytes,
                                                    std::optional<uint32_t> dim = {}) {
    return OpenHugectrDump(directory_.Write("t.bin", bytes), dim);
  }
  void ExpectError(const std::string& bytes, const std::string& part,
                   std::optional<uint32_t> dim = {}) {
    const absl::Status status = Open(bytes, dim).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(directory_.Path("t.bin")), std::string::npos) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }

  const TestDirectory directory_;
};

TEST_F(HugectrDumpTest, ReadsKeysAndRowsFromAnyRowOn) {
  std::vector<int64_t> keys = {std::numeric_limits<int64_t>::min(), -1, 0, 255, 256};
  for (int64_t key = 1000; key < 30'000; ++key) keys.push_back(key);
  const auto reader = Open(Dump(keys, 5), 5);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->shape(), (TableShape{keys.size(), 5, Dtype::kFloat32}));
  EXPECT_EQ((*reader)->data_bytes(), keys.size() * 28);
  for (const size_t first : {size_t{0}, size_t{3}, keys.size() - 1, keys.size()}) {
    std::vector<Key> found(keys.size() - first);
    std::vector<float> rows(found.size() * 5);
    ASSERT_TRUE((*reader)->ReadKeys(first, found).ok());
    ASSERT_TRUE((*reader)->ReadRows(first, std::as_writable_bytes(std::span(rows))).ok());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], keys[first + i]);
      ASSERT_EQ(rows[i * 5 + 4], static_cast<float>((first + i) * 1000 + 4));
    }
  }
}

TEST_F(HugectrDumpTest, NarrowKeysAreUnsigned) {
  const auto reader = Open(Dump<uint32_t>({7, 0xffffffff}, 1));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Key> keys(2);
  ASSERT_TRUE((*reader)->ReadKeys(0, keys).ok());
  EXPECT_EQ(keys, (std::vector<Key>{7, 0xffffffff}));
}

TEST_F(HugectrDumpTest, AnEmptyTableMayNeedItsDim) {
  ExpectError(Header(1, 8, 0), "its dim must be given");
  const auto reader = Open(Header(1, 8, 0), 7);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->shape(), (TableShape{0, 7, Dtype::kFloat32}));
  EXPECT_EQ((*Open(Header(1, 8, 12)))->shape(), (TableShape{0, 3, Dtype::kFloat32}));
}

TEST_F(HugectrDumpTest, InvalidDumpsAreRefused) {
  const std::string dump = Dump<int64_t>({1, 2, 3}, 2);
  for (size_t size = 0; size < 16; ++size)
    ExpectError(dump.substr(0, size), absl::StrCat("found ", size, " bytes"));
  for (size_t size = 17; size < dump.size(); ++size) {
    if ((size - 16) % 16 != 0) ExpectError(dump.substr(0, size), "after the last complete record");
  }
  ExpectError("sst" + dump.substr(3), "expected a HugeCTR dump");
  ExpectError(Header(2, 8, 8), "expected version 1, found 2");
  ExpectError(Header(1, 2, 8), "expected keys of 8 or 4 bytes, found 2");
  ExpectError(Header(1, 8, 6), "float32, found 6 bytes");
  ExpectError(Header(1, 8, 0xfffffffc), "float32, found");
  ExpectError(Header(1, 8, 0) + "12345678", "expected no record");
  ExpectError(dump, "expected dim 3, found 2", 3);
}

}  // namespace
}  // namespace hps
