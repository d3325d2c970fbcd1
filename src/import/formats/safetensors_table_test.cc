#include "import/formats/safetensors_table.h"

#include <gtest/gtest.h>

#include "import/formats/test_files.h"

namespace hps {
namespace {

class SafetensorsTableTest : public testing::Test {
 protected:
  absl::Status Open(const std::string& entries, const std::string& data,
                    const std::optional<std::string>& tensor = {}) {
    const std::string path = directory_.Write("x", SafetensorsBytes("{" + entries + "}", data));
    auto reader = OpenSafetensorsTable(path, tensor);
    reader_ = reader.ok() ? *std::move(reader) : nullptr;
    return reader.ok() ? absl::OkStatus() : reader.status();
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(directory_.Path("x")), std::string::npos) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }
  static constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

  const TestDirectory directory_;
  std::unique_ptr<TableReader> reader_;
};

TEST_F(SafetensorsTableTest, KeysAndRows) {
  // Rows come first, because a file may order its tensors freely.
  ASSERT_EQ(
      Open(TensorJson("rows", "F32", "2,1", "0,8") + "," + TensorJson("keys", "I64", "2", "8,24"),
           BytesOf<float>({1, 2}) + BytesOf<int64_t>({7, -7})),
      absl::OkStatus());
  std::vector<Key> keys(2);
  std::vector<float> rows(2);
  ASSERT_TRUE(reader_->ReadKeys(0, keys).ok());
  ASSERT_TRUE(reader_->ReadRows(0, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(keys, (std::vector<Key>{7, -7}));
  EXPECT_EQ(rows, (std::vector<float>{1, 2}));
}

TEST_F(SafetensorsTableTest, OneTensorWhoseRowNumbersAreTheKeys) {
  const std::string entries = TensorJson("embedding.weight", "BF16", "3,2", "0,12");
  ASSERT_EQ(Open(entries, std::string(12, 'x'), "embedding.weight"), absl::OkStatus());
  EXPECT_EQ(reader_->shape().row_count, 3U);
  EXPECT_EQ(reader_->shape().dtype, Dtype::kBfloat16);
  std::vector<Key> keys(3);
  ASSERT_TRUE(reader_->ReadKeys(0, keys).ok());
  EXPECT_EQ(keys, (std::vector<Key>{0, 1, 2}));
  ExpectError(Open(entries, std::string(12, 'x'), "embeding.weight"), absl::StatusCode::kNotFound,
              "did you mean 'embedding.weight'?");
  ExpectError(Open(entries, std::string(12, 'x')), absl::StatusCode::kNotFound,
              "no tensor 'rows' among its 1");
}

TEST_F(SafetensorsTableTest, AllTypes) {
  const auto open = [&](const std::string& key_type, size_t key_bytes, const std::string& type,
                        size_t bytes) {
    const std::string middle = std::to_string(2 * key_bytes);
    const std::string end = std::to_string(2 * key_bytes + 2 * bytes);
    return Open(TensorJson("keys", key_type, "2", "0," + middle) + "," +
                    TensorJson("rows", type, "2,1", middle + "," + end),
                std::string(2 * key_bytes + 2 * bytes, 'x'));
  };
  EXPECT_EQ(open("I64", 8, "F32", 4), absl::OkStatus());
  EXPECT_EQ(open("U64", 8, "F16", 2), absl::OkStatus());
  EXPECT_EQ(reader_->shape().dtype, Dtype::kFloat16);
  EXPECT_EQ(open("I32", 4, "BF16", 2), absl::OkStatus());
  EXPECT_EQ(open("U32", 4, "F32", 4), absl::OkStatus());
  ExpectError(open("F32", 4, "F32", 4), kInvalid, "expected keys of I64");
  ExpectError(open("I64", 8, "F64", 8), kInvalid, "expected elements of F32");
  ExpectError(open("I64", 8, "I32", 4), kInvalid, "found 'I32' [2, 1]");
  ExpectError(open("I64", 8, "F8_E4M3", 1), kInvalid, "found 'F8_E4M3'");
}

TEST_F(SafetensorsTableTest, WrongRanksAndShapes) {
  const std::string data(24, 'x');
  ExpectError(
      Open(TensorJson("keys", "I64", "2", "0,16") + "," + TensorJson("rows", "F32", "2", "16,24"),
           data),
      kInvalid, "expected the shape [n, dim], found 'F32' [2]");
  ExpectError(
      Open(TensorJson("keys", "I64", "2", "0,16") + "," + TensorJson("rows", "F32", "1,2", "16,24"),
           data),
      kInvalid, "expected the shape [1], a key per row, found 'I64' [2]");
  ExpectError(Open(TensorJson("keys", "I64", "2,1", "0,16") + "," +
                       TensorJson("rows", "F32", "2,1", "16,24"),
                   data),
              kInvalid, "found 'I64' [2, 1]");
  ExpectError(Open(TensorJson("r", "F32", "6,0", "0,0"), "", "r"), kInvalid, "a dim of 1 to");
  ExpectError(Open(TensorJson("r", "F32", "0,70000", "0,0"), "", "r"), kInvalid, "70000");
  ASSERT_EQ(Open(TensorJson("r", "F32", "0,4", "0,0"), "", "r"), absl::OkStatus());
  EXPECT_EQ(reader_->shape().row_count, 0U);
}

TEST_F(SafetensorsTableTest, MissingFile) {
  EXPECT_EQ(OpenSafetensorsTable(directory_.Path("missing"), {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenSafetensorsTable(directory_.Path(), {}).status().code(), kInvalid);
}

}  // namespace
}  // namespace hps
