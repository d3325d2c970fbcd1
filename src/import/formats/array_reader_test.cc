#include "import/formats/array_reader.h"

#include <gtest/gtest.h>

#include <limits>

#include "import/formats/test_files.h"

namespace hps {
namespace {

absl::StatusOr<File> OpenBytes(const TestDirectory& directory, const std::string& name,
                               const std::string& bytes) {
  return File::OpenForReading(directory.Write(name, bytes));
}

// Three bytes precede the arrays, so that offsets matter and nothing is aligned.
template <typename T>
std::vector<Key> KeysThrough(KeyDtype dtype, const std::vector<T>& stored) {
  const TestDirectory directory;
  auto keys = OpenBytes(directory, "keys", "abc" + BytesOf(stored));
  auto rows = OpenBytes(directory, "rows", std::string(stored.size() * 4, 'x'));
  const ArrayReader reader({.row_count = stored.size(), .dim = 1},
                           KeyArray{.file = *std::move(keys), .offset = 3, .dtype = dtype},
                           RowArray{.file = *std::move(rows)});
  std::vector<Key> read(stored.size());
  EXPECT_EQ(reader.ReadKeys(0, read), absl::OkStatus());
  EXPECT_EQ(reader.data_bytes(), stored.size() * (sizeof(T) + 4));
  return read;
}

TEST(ArrayReaderTest, KeysOfEveryTypeBecome64Bits) {
  constexpr Key kMin = std::numeric_limits<Key>::min();
  EXPECT_EQ(KeysThrough<int64_t>(KeyDtype::kInt64, {-1, kMin, 7}), (std::vector<Key>{-1, kMin, 7}));
  EXPECT_EQ(KeysThrough<uint64_t>(KeyDtype::kUint64, {~0ULL, 1ULL << 63, 7}),
            (std::vector<Key>{-1, kMin, 7}));
  EXPECT_EQ(KeysThrough<int32_t>(KeyDtype::kInt32, {-1, INT32_MIN, 7}),
            (std::vector<Key>{-1, INT32_MIN, 7}));
  EXPECT_EQ(KeysThrough<uint32_t>(KeyDtype::kUint32, {~0U, 1U << 31, 7}),
            (std::vector<Key>{4294967295, 2147483648, 7}));
}

TEST(ArrayReaderTest, NarrowKeysAreReadInPiecesOfAnySize) {
  for (const size_t count : {0, 1, 31, 32, 33, 4095, 4096, 4097, 10000}) {
    std::vector<int32_t> stored(count);
    std::vector<Key> expected(count);
    for (size_t i = 0; i < count; ++i) {
      stored[i] = static_cast<int32_t>(i) * -3;
      expected[i] = stored[i];
    }
    EXPECT_EQ(KeysThrough<int32_t>(KeyDtype::kInt32, stored), expected);
  }
}

TEST(ArrayReaderTest, WithoutAKeyArrayRowNumbersAreTheKeys) {
  const TestDirectory directory;
  auto rows = OpenBytes(directory, "rows", BytesOf<float>({0, 1, 2, 3, 4, 5}));
  const ArrayReader reader({.row_count = 3, .dim = 2}, std::nullopt,
                           RowArray{.file = *std::move(rows)});
  std::vector<Key> keys(2);
  ASSERT_TRUE(reader.ReadKeys(1, keys).ok());
  EXPECT_EQ(keys, (std::vector<Key>{1, 2}));
  std::vector<float> row(2);
  ASSERT_TRUE(reader.ReadRows(2, std::as_writable_bytes(std::span(row))).ok());
  EXPECT_EQ(row, (std::vector<float>{4, 5}));
  EXPECT_EQ(reader.keys_path(), directory.Path("rows"));
  EXPECT_EQ(reader.data_bytes(), 24U);
}

TEST(ArrayReaderTest, ATruncatedFileIsDataLoss) {
  const TestDirectory directory;
  auto keys = OpenBytes(directory, "keys", BytesOf<Key>({1, 2, 3}));
  auto rows = OpenBytes(directory, "rows", BytesOf<float>({0, 1, 2}));
  const ArrayReader reader({.row_count = 3, .dim = 1}, KeyArray{.file = *std::move(keys)},
                           RowArray{.file = *std::move(rows)});
  std::filesystem::resize_file(directory.Path("keys"), 20);
  std::filesystem::resize_file(directory.Path("rows"), 3);
  std::vector<Key> read(3);
  const absl::Status status = reader.ReadKeys(0, read);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(
      status.message().find(directory.Path("keys") + ": expected 24 bytes at offset 0, found 20"),
      std::string::npos)
      << status;
  std::vector<float> row(1);
  EXPECT_EQ(reader.ReadRows(2, std::as_writable_bytes(std::span(row))).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hps
