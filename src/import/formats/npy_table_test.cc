#include "import/formats/npy_table.h"

#include <gtest/gtest.h>

#include "import/formats/test_files.h"

namespace hps {
namespace {

class NpyTableTest : public testing::Test {
 protected:
  absl::Status Open(const std::string& keys, const std::string& rows,
                    std::optional<Dtype> dtype = {}) {
    directory_.Write("t/keys.npy", keys);
    directory_.Write("t/rows.npy", rows);
    auto reader = OpenNpyTable(directory_.Path("t"), dtype);
    reader_ = reader.ok() ? *std::move(reader) : nullptr;
    return reader.ok() ? absl::OkStatus() : reader.status();
  }
  void ExpectError(const absl::Status& status, const std::string& file, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(directory_.Path("t/" + file)), std::string::npos) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }

  const TestDirectory directory_;
  const std::string keys_ = NpyBytes("<i8", "(2,)", BytesOf<int64_t>({-5, 9}));
  const std::string rows_ = NpyBytes("<f4", "(2, 3)", BytesOf<float>({0, 1, 2, 3, 4, 5}));
  std::unique_ptr<TableReader> reader_;
};

TEST_F(NpyTableTest, ReadsKeysAndRows) {
  ASSERT_EQ(Open(keys_, rows_), absl::OkStatus());
  EXPECT_EQ(reader_->shape().row_count, 2U);
  EXPECT_EQ(reader_->shape().dim, 3U);
  std::vector<Key> keys(2);
  std::vector<float> rows(6);
  ASSERT_TRUE(reader_->ReadKeys(0, keys).ok());
  ASSERT_TRUE(reader_->ReadRows(0, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(keys, (std::vector<Key>{-5, 9}));
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST_F(NpyTableTest, TypesOfKeysAndRows) {
  EXPECT_EQ(Open(NpyBytes("<u8", "(2,)", BytesOf<uint64_t>({1, 2})), rows_), absl::OkStatus());
  EXPECT_EQ(Open(NpyBytes("<i4", "(2,)", BytesOf<int32_t>({1, 2})), rows_), absl::OkStatus());
  EXPECT_EQ(Open(NpyBytes("<u4", "(2,)", BytesOf<uint32_t>({1, 2})), rows_), absl::OkStatus());
  for (const char* descr : {">i8", "<f8", "<i2", "|b1"})
    ExpectError(Open(NpyBytes(descr, "(2,)", std::string(16, 'x')), rows_), "keys.npy", descr);
  EXPECT_EQ(Open(keys_, NpyBytes("<f2", "(2, 3)", std::string(12, 'x'))), absl::OkStatus());
  EXPECT_EQ(reader_->shape().dtype, Dtype::kFloat16);
  for (const char* descr : {">f4", "<f8", "<i4", "|u1"})
    ExpectError(Open(keys_, NpyBytes(descr, "(2, 3)", std::string(24, 'x'))), "rows.npy", descr);
  const std::string structured =
      "[('a', '<f4')]";  // NpyBytes adds quotes, so this is a plain string
  ExpectError(Open(keys_, NpyBytes(structured, "(2, 3)", std::string(24, 'x'))), "rows.npy",
              "expected");
}

TEST_F(NpyTableTest, BfloatBitPatternsOnlyOnRequest) {
  for (const char* descr : {"<u2", "|V2", "<V2"}) {
    const std::string rows = NpyBytes(descr, "(2, 3)", std::string(12, 'x'));
    EXPECT_EQ(Open(keys_, rows, Dtype::kBfloat16), absl::OkStatus());
    EXPECT_EQ(reader_->shape().dtype, Dtype::kBfloat16);
    ExpectError(Open(keys_, rows), "rows.npy", "--dtype bfloat16");
    ExpectError(Open(keys_, rows, Dtype::kFloat16), "rows.npy", "--dtype bfloat16");
  }
}

TEST_F(NpyTableTest, WrongRanksAndShapes) {
  const std::string two = BytesOf<int64_t>({1, 2});
  ExpectError(Open(NpyBytes("<i8", "(1, 2)", two), rows_), "keys.npy", "[1, 2]");
  ExpectError(Open(NpyBytes("<i8", "()", two.substr(8)), rows_), "keys.npy", "[]");
  ExpectError(Open(keys_, NpyBytes("<f4", "(6,)", std::string(24, 'x'))), "rows.npy", "[6]");
  ExpectError(Open(keys_, NpyBytes("<f4", "(1, 2, 3)", std::string(24, 'x'))), "rows.npy",
              "[1, 2, 3]");
  ExpectError(Open(keys_, NpyBytes("<f4", "(3, 2)", std::string(24, 'x'))), "rows.npy",
              "expected 2 rows");
  ExpectError(Open(keys_, NpyBytes("<f4", "(2, 0)", "")), "rows.npy", "a dim of 1 to");
  ExpectError(Open(NpyBytes("<i8", "(0,)", ""), NpyBytes("<f4", "(0, 99999)", "")), "rows.npy",
              "found 99999");
  ExpectError(Open(keys_, NpyBytes("<f4", "(2, 3)", std::string(24, 'x'), "True")), "rows.npy",
              "Fortran");
  ExpectError(Open(keys_, NpyBytes("<f4", "(2, 3)", std::string(23, 'x'))), "rows.npy", "found 23");
  ExpectError(Open(NpyBytes("<i8", "(2,)", std::string(17, 'x')), rows_), "keys.npy", "found 17");
}

TEST_F(NpyTableTest, AnEmptyTableKnowsItsDim) {
  ASSERT_EQ(Open(NpyBytes("<i8", "(0,)", ""), NpyBytes("<f4", "(0, 16)", "")), absl::OkStatus());
  EXPECT_EQ(reader_->shape().row_count, 0U);
  EXPECT_EQ(reader_->shape().dim, 16U);
}

TEST_F(NpyTableTest, MissingFiles) {
  directory_.Write("t/keys.npy", keys_);
  const auto reader = OpenNpyTable(directory_.Path("t"), {});
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(reader.status().message().find("t/rows.npy"), std::string::npos);
}

TEST_F(NpyTableTest, DefaultRows) {
  const std::string path =
      directory_.Write("default.npy", NpyBytes("<f4", "(3,)", BytesOf<float>({1, -2, 0.5})));
  const auto as_float = ReadNpyRow(path, 3, Dtype::kFloat32);
  ASSERT_TRUE(as_float.ok()) << as_float.status();
  EXPECT_EQ(AsText(*as_float), BytesOf<float>({1, -2, 0.5}));
  const auto as_half = ReadNpyRow(path, 3, Dtype::kFloat16);
  ASSERT_TRUE(as_half.ok()) << as_half.status();
  EXPECT_EQ(AsText(*as_half), BytesOf<uint16_t>({0x3c00, 0xc000, 0x3800}));
  const absl::Status wrong = ReadNpyRow(path, 4, Dtype::kFloat32).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find("shape [4], found [3]"), std::string::npos) << wrong;
  directory_.Write("half.npy", NpyBytes("<f2", "(1,)", BytesOf<uint16_t>({0x3c00})));
  EXPECT_EQ(AsText(*ReadNpyRow(directory_.Path("half.npy"), 1, Dtype::kFloat32)),
            BytesOf<float>({1}));
  EXPECT_EQ(ReadNpyRow(directory_.Path("half.npy"), 1, Dtype::kBfloat16).status().code(),
            absl::StatusCode::kInvalidArgument);
  directory_.Write("matrix.npy", NpyBytes("<f4", "(1, 3)", std::string(12, 'x')));
  EXPECT_EQ(ReadNpyRow(directory_.Path("matrix.npy"), 3, Dtype::kFloat32).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadNpyRow(directory_.Path("missing.npy"), 3, Dtype::kFloat32).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
