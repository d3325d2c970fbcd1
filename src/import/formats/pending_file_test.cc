#include "import/formats/pending_file.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "import/formats/test_files.h"

namespace hps {
namespace {

PendingFile Create(const std::string& path, std::string_view bytes) {
  absl::StatusOr<PendingFile> file = PendingFile::Create(path);
  HPS_CHECK(file.ok());
  HPS_CHECK(file->file().WriteAt(0, AsBytes(bytes)).ok());
  return *std::move(file);
}

TEST(PendingFileTest, HasItsNameOnlyWhenItIsPublished) {
  const TestDirectory directory;
  PendingFile file = Create(directory.Path("f"), "new");
  EXPECT_FALSE(directory.Has("f"));
  ASSERT_EQ(file.Publish(), absl::OkStatus());
  EXPECT_EQ(directory.List(), std::vector<std::string>{"f"});
  EXPECT_EQ(directory.Read("f"), "new");
}

TEST(PendingFileTest, PublishesInNoOthersPlaceAndReplacesOnlyWhenAsked) {
  const TestDirectory directory;
  directory.Write("f", "old");
  PendingFile file = Create(directory.Path("f"), "new");
  EXPECT_EQ(file.Publish().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(directory.Read("f"), "old");
  ASSERT_EQ(file.Replace(), absl::OkStatus());
  EXPECT_EQ(directory.Read("f"), "new");
  EXPECT_EQ(directory.List().size(), 1U);
}

TEST(PendingFileTest, IsRemovedUnlessPublishedAlsoAfterAMove) {
  const TestDirectory directory;
  {
    PendingFile first = Create(directory.Path("f"), "1");
    const PendingFile moved = std::move(first);
    const PendingFile second = Create(directory.Path("f"), "2");
    EXPECT_EQ(directory.List().size(), 2U);
  }
  EXPECT_TRUE(directory.List().empty());
}

TEST(PendingFileTest, WithoutADirectoryItIsNotFound) {
  const TestDirectory directory;
  EXPECT_EQ(PendingFile::Create(directory.Path("none/f")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
