#include "import/formats/pending_file.h"

#include <gtest/gtest.h>

#include <filesystem>

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

TEST(PendingFileTest, PublishNeverReplacesAFileAndReplaceDoes) {
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

// Catches: a link that is replaced by a file, and rows that become readable for more users.
TEST(PendingFileTest, ReplacesTheTargetOfLinksAndKeepsItsMode) {
  const TestDirectory directory;
  directory.Write("there/f", "old");
  std::filesystem::permissions(directory.Path("there/f"), std::filesystem::perms(0600));
  std::filesystem::create_symlink("f", directory.Path("there/g"));
  std::filesystem::create_symlink("there/g", directory.Path("link"));
  auto file = PendingFile::CreateToReplace(directory.Path("link"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto mode = [](const std::string& path) {
    return std::filesystem::status(path).permissions();
  };
  EXPECT_EQ(mode(file->file().path()), std::filesystem::perms(0600)) << "before a byte is in it";
  ASSERT_TRUE(file->file().WriteAt(0, AsBytes("new")).ok());
  EXPECT_EQ(directory.Read("there/f"), "old");
  ASSERT_EQ(file->Replace(), absl::OkStatus());
  EXPECT_EQ(directory.Read("there/f"), "new");
  EXPECT_EQ(mode(directory.Path("there/f")), std::filesystem::perms(0600));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("there/g")));
}

TEST(PendingFileTest, CreatesTheTargetOfALinkAndRefusesACycle) {
  const TestDirectory directory;
  std::filesystem::create_symlink("f", directory.Path("link"));
  auto file = PendingFile::CreateToReplace(directory.Path("link"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->Replace(), absl::OkStatus());
  EXPECT_EQ(directory.List(), (std::vector<std::string>{"f", "link"}));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
  std::filesystem::create_symlink("round", directory.Path("round"));
  EXPECT_EQ(PendingFile::CreateToReplace(directory.Path("round")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PendingFileTest, WithoutADirectoryItIsNotFound) {
  const TestDirectory directory;
  EXPECT_EQ(PendingFile::Create(directory.Path("none/f")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
