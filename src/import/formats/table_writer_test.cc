#include "import/formats/table_writer.h"

#include <gtest/gtest.h>

#include "import/formats/npy.h"
#include "import/formats/test_files.h"

namespace hps {
namespace {

// Two rows of two floats with a stride of three.
class TableWriterTest : public testing::Test {
 protected:
  HostRows rows() {
    return {.data = std::as_writable_bytes(std::span(floats_)).data(),
            .row_count = 2,
            .row_bytes = 8,
            .stride_bytes = 12};
  }
  absl::StatusOr<std::unique_ptr<TableWriter>> Create(TableFormat format) {
    return TableWriter::Create(format, directory_.Path("out"), 2, Dtype::kFloat32);
  }

  const TestDirectory directory_;
  std::vector<float> floats_ = {1, 2, -1, 3, 4, -1};
  const std::vector<Key> keys_ = {-5, 9};
};

TEST_F(TableWriterTest, WritesHugectrBytes) {
  auto writer = Create(TableFormat::kHugectr);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Append(keys_, rows()), absl::OkStatus());
  EXPECT_FALSE(directory_.Has("out/key")) << "named before it is complete";
  ASSERT_EQ((*writer)->Finish(), absl::OkStatus());
  EXPECT_EQ((*writer)->row_count(), 2U);
  EXPECT_EQ((*writer)->bytes(), 32U);
  EXPECT_EQ(directory_.Read("out/key"), BytesOf<Key>({-5, 9}));
  EXPECT_EQ(directory_.Read("out/emb_vector"), BytesOf<float>({1, 2, 3, 4}));
}

TEST_F(TableWriterTest, WritesNpyBytes) {
  auto writer = Create(TableFormat::kNpy);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Append(keys_, rows()), absl::OkStatus());
  ASSERT_EQ((*writer)->Finish(), absl::OkStatus());
  const std::vector<uint64_t> shape = {2, 2};
  EXPECT_EQ(directory_.Read("out/keys.npy"),
            FormatNpyHeader("<i8", std::span(shape).first(1)) + BytesOf<Key>({-5, 9}));
  EXPECT_EQ(directory_.Read("out/rows.npy"),
            FormatNpyHeader("<f4", shape) + BytesOf<float>({1, 2, 3, 4}));
}

TEST_F(TableWriterTest, HalvesWidenForHugectrAndStayForNpy) {
  std::vector<uint16_t> halves = {0x3c00, 0xc000};
  const HostRows rows = {.data = std::as_writable_bytes(std::span(halves)).data(),
                         .row_count = 1,
                         .row_bytes = 4,
                         .stride_bytes = 4};
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const std::string name = std::string(DtypeName(dtype));
    for (const TableFormat format : {TableFormat::kHugectr, TableFormat::kNpy}) {
      const std::string path = directory_.Path(name + std::to_string(static_cast<int>(format)));
      auto writer = TableWriter::Create(format, path, 2, dtype);
      ASSERT_TRUE(writer.ok()) << writer.status();
      ASSERT_EQ((*writer)->Append(std::span(keys_).first(1), rows), absl::OkStatus());
      ASSERT_EQ((*writer)->Finish(), absl::OkStatus());
    }
  }
  EXPECT_EQ(directory_.Read("float161/emb_vector"), BytesOf<float>({1, -2}));
  EXPECT_EQ(directory_.Read("bfloat161/emb_vector"), BytesOf<float>({0.0078125F, -2}));
  EXPECT_NE(directory_.Read("float162/rows.npy").find("'<f2'"), std::string::npos);
  EXPECT_NE(directory_.Read("bfloat162/rows.npy").find("'<u2'"), std::string::npos);
}

TEST_F(TableWriterTest, RefusesADirectoryWithATable) {
  for (const char* name : {"key", "emb_vector", "keys.npy", "rows.npy"}) {
    directory_.Write(std::string("out/") + name, "mine");
    for (const TableFormat format : {TableFormat::kHugectr, TableFormat::kNpy})
      EXPECT_EQ(Create(format).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(directory_.Read(std::string("out/") + name), "mine");
    std::filesystem::remove(directory_.Path(std::string("out/") + name));
  }
  EXPECT_EQ(Create(TableFormat::kSafetensors).status().code(), absl::StatusCode::kInvalidArgument);
  directory_.Write("file", "x");
  EXPECT_EQ(TableWriter::Create(TableFormat::kNpy, directory_.Path("file"), 2, Dtype::kFloat32)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TableWriterTest, AnUnfinishedTableIsRemoved) {
  {
    auto writer = Create(TableFormat::kNpy);
    ASSERT_TRUE(writer.ok());
    ASSERT_EQ((*writer)->Append(keys_, rows()), absl::OkStatus());
    EXPECT_TRUE(directory_.Has("out"));
  }
  EXPECT_FALSE(directory_.Has("out")) << "the directory was the writer's";
  directory_.Write("out/other", "mine");
  { ASSERT_TRUE(Create(TableFormat::kNpy).ok()); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.Path("out")), {}), 1);
  EXPECT_EQ(directory_.Read("out/other"), "mine");
}

// Catches: a user's file that is removed as a leftover of a writer.
TEST_F(TableWriterTest, LeavesOtherFilesAlone) {
  directory_.Write("out/key.partial", "mine");
  directory_.Write("out/emb_vector.partial", "mine, too");
  {
    auto writer = Create(TableFormat::kHugectr);
    ASSERT_TRUE(writer.ok()) << writer.status();
  }
  auto writer = Create(TableFormat::kHugectr);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Append(keys_, rows()), absl::OkStatus());
  ASSERT_EQ((*writer)->Finish(), absl::OkStatus());
  EXPECT_EQ(directory_.Read("out/key"), BytesOf<Key>({-5, 9}));
  EXPECT_EQ(directory_.Read("out/key.partial"), "mine");
  EXPECT_EQ(directory_.Read("out/emb_vector.partial"), "mine, too");
}

// Catches: two writers that mix their files, or the later one replacing a finished table.
TEST_F(TableWriterTest, OfTwoWritersTheFirstToFinishWins) {
  auto first = Create(TableFormat::kHugectr);
  auto second = Create(TableFormat::kHugectr);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ((*second)->Append(keys_, rows()), absl::OkStatus());
  ASSERT_EQ((*second)->Finish(), absl::OkStatus());
  const std::string written = directory_.Read("out/emb_vector");
  EXPECT_EQ((*first)->Finish().code(), absl::StatusCode::kAlreadyExists);
  first->reset();
  EXPECT_EQ(directory_.Read("out/key"), BytesOf<Key>({-5, 9}));
  EXPECT_EQ(directory_.Read("out/emb_vector"), written);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.Path("out")), {}), 2);
}

// The name of the key file is taken when the rows are published: the rows are removed again.
TEST_F(TableWriterTest, AFinishThatFailsHalfwayLeavesNothing) {
  auto writer = Create(TableFormat::kHugectr);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Append(keys_, rows()), absl::OkStatus());
  directory_.Write("out/key", "mine");
  EXPECT_EQ((*writer)->Finish().code(), absl::StatusCode::kAlreadyExists);
  writer->reset();
  EXPECT_EQ(directory_.Read("out/key"), "mine");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.Path("out")), {}), 1);
}

}  // namespace
}  // namespace hps
