#include "import/formats/npy_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/file.h"
#include "base/limits.h"
#include "import/formats/npy.h"
#include "import/formats/test_files.h"

namespace hps {
namespace {

template <typename T>
std::string WriteArray(const TestDirectory& directory, const char* descr,
                       const std::vector<T>& values, std::vector<uint64_t> shape = {}) {
  if (shape.empty()) shape = {values.size()};
  const std::string path = directory.Path("keys.npy");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << FormatNpyHeader(descr, shape);
  for (const T& value : values) {
    std::array<char, sizeof(T)> bytes{};
    std::memcpy(bytes.data(), &value, sizeof(T));
    file.write(bytes.data(), bytes.size());
  }
  return path;
}

TEST(NpyFilesTest, ReadsKeysOfEveryType) {
  const TestDirectory directory;
  constexpr Key kMin = std::numeric_limits<Key>::min();
  constexpr Key kMax = std::numeric_limits<Key>::max();
  EXPECT_EQ(*ReadNpyKeys(WriteArray<int64_t>(directory, "<i8", {0, -1, kMin, kMax})),
            (std::vector<Key>{0, -1, kMin, kMax}));
  EXPECT_EQ(*ReadNpyKeys(WriteArray<uint64_t>(directory, "<u8", {1, UINT64_MAX})),
            (std::vector<Key>{1, -1}));
  EXPECT_EQ(*ReadNpyKeys(WriteArray<int32_t>(directory, "<i4", {-7, INT32_MAX})),
            (std::vector<Key>{-7, INT32_MAX}));
  EXPECT_EQ(*ReadNpyKeys(WriteArray<uint32_t>(directory, "<u4", {UINT32_MAX})),
            (std::vector<Key>{UINT32_MAX}));
  EXPECT_TRUE(ReadNpyKeys(WriteArray<int64_t>(directory, "<i8", {}))->empty());
}

TEST(NpyFilesTest, RefusesFilesWithoutKeys) {
  const TestDirectory directory;
  const auto code = [](const std::string& path) { return ReadNpyKeys(path).status().code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(directory.Path("none.npy")), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(directory.Path("")), kInvalid);
  EXPECT_EQ(code(WriteArray<float>(directory, "<f4", {1})), kInvalid);
  EXPECT_EQ(code(WriteArray<int64_t>(directory, "<i8", {1, 2}, {1, 2})), kInvalid);
  EXPECT_EQ(code(WriteArray<int64_t>(directory, "<i8", {1, 2}, {3})), kInvalid);
  EXPECT_EQ(code(WriteArray<int64_t>(directory, "<i8", {1}, {uint64_t{1} << 61})), kInvalid);
}

// Catches: allocating as many bytes as a sparse file claims to have.
TEST(NpyFilesTest, RefusesMoreKeysThanAreReadAtOnce) {
  const TestDirectory directory;
  const uint64_t count = kKeysPerFileMax + 1;
  const std::string header = NpyBytes("<i8", "(" + std::to_string(count) + ",)", "");
  const std::string path = directory.Write("sparse.npy", header);
  std::filesystem::resize_file(path, header.size() + count * sizeof(Key));
  const absl::Status status = ReadNpyKeys(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("found 67108865"), std::string::npos) << status;
}

TEST(NpyFilesTest, WritesRowsUnderTheNameWhenComplete) {
  const TestDirectory directory;
  const std::string path = directory.Path("rows.npy");
  auto writer = NpyRowWriter::Create(path, 2, 3);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->Append(std::array<float, 3>{1, 2, 3}).ok());
  ASSERT_TRUE(writer->Append(std::array<float, 3>{4, 5, 6}).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const auto file = File::OpenForReading(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto header = ReadNpyHeader(*file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->descr, "<f4");
  EXPECT_EQ(header->shape, (std::vector<uint64_t>{2, 3}));
  std::array<float, 6> rows{};
  ASSERT_TRUE(file->ReadAt(header->data_offset, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(rows, (std::array<float, 6>{1, 2, 3, 4, 5, 6}));
}

TEST(NpyFilesTest, AnUncommittedWriterLeavesNothing) {
  const TestDirectory directory;
  {
    auto writer = NpyRowWriter::Create(directory.Path("rows.npy"), 2, 3);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Append(std::array<float, 3>{1, 2, 3}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.Path("")));
}

// Catches: a privileged writer that replaces /dev/null by a file.
TEST(NpyFilesTest, AWriterReplacesOnlyFiles) {
  const TestDirectory directory;
  const std::string pipe = directory.Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, directory.Path()}) {
    const absl::Status status = NpyRowWriter::Create(path, 1, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::is_regular_file(path));
  }
}

// Catches: a link to rows that is replaced by a file.
TEST(NpyFilesTest, AWriterFollowsLinks) {
  const TestDirectory directory;
  std::filesystem::create_symlink(directory.Write("rows.npy", "old"), directory.Path("link"));
  auto writer = NpyRowWriter::Create(directory.Path("link"), 1, 1);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(std::array<float, 1>{1}).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
  EXPECT_NE(directory.Read("rows.npy"), "old");
}

TEST(NpyFilesTest, AWriterRefusesInvalidTargets) {
  const TestDirectory directory;
  EXPECT_EQ(NpyRowWriter::Create(directory.Path("none/rows.npy"), 1, 1).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(NpyRowWriter::Create(directory.Path("rows.npy"), uint64_t{1} << 62, 8).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
