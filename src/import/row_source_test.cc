#include "import/row_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "import/formats/test_files.h"

namespace hps {
namespace {

class RowSourceTest : public testing::Test {
 protected:
  RowSourceTest() {
    directory_.Write("t/keys.npy", NpyBytes("<i8", "(3,)", BytesOf<int64_t>({9, -5, 9})));
    directory_.Write("t/rows.npy", NpyBytes("<f4", "(3, 2)", BytesOf<float>({0, 1, 2, 3, 4, 5})));
  }
  ImportRequest Request(const std::string& from) const {
    return {.name = "m/t", .from = directory_.Path(from)};
  }

  const TestDirectory directory_;
  std::vector<Key> keys_;
  std::vector<std::byte> rows_;
};

TEST_F(RowSourceTest, GivesPiecesInTheOrderOfTheFiles) {
  auto source = RowSource::Open(Request("t"), false);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->row_count(), 3u);
  EXPECT_EQ(source->spec().name, "m/t");
  EXPECT_EQ(source->spec().dim, 2u);
  ASSERT_TRUE(source->Read(1, 2, &keys_, &rows_).ok());
  EXPECT_EQ(keys_, (std::vector<Key>{-5, 9}));
  EXPECT_EQ(AsText(rows_), BytesOf<float>({2, 3, 4, 5}));
}

TEST_F(RowSourceTest, ConvertsToTheTypeOfTheTable) {
  ImportRequest request = Request("t");
  request.dtype = Dtype::kBfloat16;
  auto source = RowSource::Open(request, false);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE(source->Read(0, 1, &keys_, &rows_).ok());
  EXPECT_EQ(AsText(rows_), BytesOf<uint16_t>({0, 0x3f80}));
}

TEST_F(RowSourceTest, KeysOnlyComeFromATableOrAnNpyFile) {
  for (const char* from : {"t", "t/keys.npy"}) {
    auto source = RowSource::Open(Request(from), true);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->row_count(), 3u);
    ASSERT_TRUE(source->Read(0, 3, &keys_, &rows_).ok());
    EXPECT_EQ(keys_, (std::vector<Key>{9, -5, 9}));
    EXPECT_TRUE(rows_.empty());
  }
}

TEST_F(RowSourceTest, ErrorsAreThoseOfTheFilesAndTheName) {
  for (const bool keys_only : {false, true}) {
    EXPECT_EQ(RowSource::Open(Request("nowhere"), keys_only).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(
        RowSource::Open({.name = "m", .from = directory_.Path("t")}, keys_only).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hps
