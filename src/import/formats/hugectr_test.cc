#include "import/formats/hugectr.h"

#include <gtest/gtest.h>

#include <limits>

#include "import/formats/test_files.h"

namespace hps {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Creates files of the given sizes; a negative size creates no file.
class HugectrTest : public testing::Test {
 protected:
  absl::Status Open(int64_t key_bytes, int64_t row_bytes, std::optional<uint32_t> dim = {}) {
    std::filesystem::remove_all(directory_.Path("t"));
    std::filesystem::create_directory(directory_.Path("t"));
    if (key_bytes >= 0) WriteFile("t/key", key_bytes);
    if (row_bytes >= 0) WriteFile("t/emb_vector", row_bytes);
    auto reader = OpenHugectrTable(directory_.Path("t"), dim);
    if (reader.ok()) shape_ = (*reader)->shape();
    return reader.status();
  }
  void WriteFile(const std::string& name, int64_t bytes) {
    directory_.Write(name, "");
    std::filesystem::resize_file(directory_.Path(name), static_cast<uintmax_t>(bytes));
  }
  void ExpectError(const absl::Status& status, const std::string& file, const std::string& text) {
    EXPECT_EQ(status.code(), kInvalid);
    EXPECT_NE(status.message().find(directory_.Path("t/" + file)), std::string::npos) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }

  const TestDirectory directory_;
  TableShape shape_;
};

TEST_F(HugectrTest, DimFollowsFromTheSizes) {
  ASSERT_EQ(Open(3 * 8, 3 * 5 * 4), absl::OkStatus());
  EXPECT_EQ(shape_.row_count, 3U);
  EXPECT_EQ(shape_.dim, 5U);
  EXPECT_EQ(shape_.dtype, Dtype::kFloat32);
  EXPECT_EQ(Open(3 * 8, 3 * 5 * 4, 5), absl::OkStatus());
}

TEST_F(HugectrTest, AnEmptyTableNeedsItsDim) {
  ASSERT_EQ(Open(0, 0, 7), absl::OkStatus());
  EXPECT_EQ(shape_.row_count, 0U);
  EXPECT_EQ(shape_.dim, 7U);
  ExpectError(Open(0, 0), "emb_vector", "its dim must be given");
  ExpectError(Open(0, 4), "emb_vector", "expected 0 bytes");
  ExpectError(Open(0, 4, 1), "emb_vector", "found 4");
}

TEST_F(HugectrTest, SizesThatAreNoTable) {
  ExpectError(Open(7, 8), "key", "expected a multiple of 8 bytes, found 7");
  ExpectError(Open(24, 59), "emb_vector", "found 59");  // truncated
  ExpectError(Open(24, 61), "emb_vector", "found 61");  // oversized
  ExpectError(Open(24, 6), "emb_vector", "found 6");    // not a multiple of a float
  ExpectError(Open(24, 0), "emb_vector", "found 0");    // dim 0
  ExpectError(Open(24, 56, 5), "emb_vector", "3 rows of dim 5 = 60 bytes, found 56");
  ExpectError(Open(24, 60, 4), "emb_vector", "3 rows of dim 4 = 48 bytes, found 60");
  ExpectError(Open(24, 60, 0), "emb_vector", "3 rows of dim 0 = 0 bytes, found 60");
  ExpectError(Open(8, int64_t{16385} * 4), "emb_vector", "16384");  // over the limit
  ExpectError(Open(8, int64_t{1} << 40), "emb_vector", "found 1099511627776");
}

TEST_F(HugectrTest, MissingFilesAndDirectoriesInTheirPlace) {
  EXPECT_EQ(Open(-1, 8).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Open(8, -1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenHugectrTable(directory_.Path("missing"), {}).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_EQ(Open(8, -1).code(), absl::StatusCode::kNotFound);
  std::filesystem::create_directory(directory_.Path("t/emb_vector"));
  ExpectError(OpenHugectrTable(directory_.Path("t"), {}).status(), "emb_vector", "a directory");
}

}  // namespace
}  // namespace hps
