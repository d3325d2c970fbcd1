#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "testing/test_directory.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

TEST(FileTest, ReadsAndWritesAtOffsets) {
  const TestDirectory directory;
  {
    const auto file = File::CreateNew(directory.Path("x"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->WriteAt(3, AsBytes(std::string_view("world"))), absl::OkStatus());
    ASSERT_EQ(file->WriteAt(0, AsBytes(std::string_view("hi "))), absl::OkStatus());
    ASSERT_EQ(file->Sync(), absl::OkStatus());
  }
  const auto file = File::OpenForReading(directory.Path("x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes_at_open(), 8U);
  std::string read(5, ' ');
  ASSERT_EQ(file->ReadAt(3, std::as_writable_bytes(std::span(read))), absl::OkStatus());
  EXPECT_EQ(read, "world");
  const auto second = file->Duplicate();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->bytes_at_open(), 8U);
  ASSERT_EQ(second->ReadAt(3, std::as_writable_bytes(std::span(read))), absl::OkStatus());
  EXPECT_EQ(read, "world");
  EXPECT_EQ(file->ReadAt(4, std::as_writable_bytes(std::span(read))).code(),
            absl::StatusCode::kDataLoss);
}

TEST(FileTest, OpensRegularFilesOnly) {
  const TestDirectory directory;
  const auto code = [&](const std::string& name) {
    const auto file = File::OpenForReading(directory.Path(name));
    EXPECT_NE(file.status().message().find(directory.Path(name)), std::string::npos);
    return file.status().code();
  };
  EXPECT_EQ(code("missing"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);  // a directory
  directory.Write("file", "x");
  EXPECT_EQ(code("file/below"), absl::StatusCode::kInvalidArgument);
  // Catches: an open that blocks on a named pipe.
  ASSERT_EQ(::mkfifo(directory.Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(code("pipe"), absl::StatusCode::kInvalidArgument);
}

TEST(FileTest, AnUnreadableFileIsPermissionDenied) {
  const TestDirectory directory;
  const std::string path = directory.Write("secret", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(directory.Path().c_str(), 0755), 0);
  const Unprivileged nobody;
  const absl::StatusOr<File> file = File::OpenForReading(path);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kPermissionDenied) << file.status();
}

TEST(FileTest, CreatesNewFilesOnly) {
  const TestDirectory directory;
  directory.Write("old", "x");
  EXPECT_EQ(File::CreateNew(directory.Path("old")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(File::CreateNew(directory.Path("no/where")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(directory.Read("old"), "x");
}

TEST(FileTest, OpensAnOldFileOrCreatesItForItsOwner) {
  const TestDirectory directory;
  {
    const auto file = File::OpenOrCreate(directory.Path("x"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->WriteAt(0, AsBytes(std::string_view("hello"))), absl::OkStatus());
    ASSERT_EQ(file->Truncate(4), absl::OkStatus());
  }
  struct stat info {};
  ASSERT_EQ(::stat(directory.Path("x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const auto file = File::OpenOrCreate(directory.Path("x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->ReadAll(), "hell");
  ASSERT_EQ(file->Truncate(3), absl::OkStatus());
  EXPECT_EQ(file->ReadAll().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(File::OpenOrCreate(directory.Path("no/where")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(File::OpenForReading(directory.Path("x"))->Truncate(0).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FileTest, SyncsADirectory) {
  const TestDirectory directory;
  EXPECT_EQ(SyncDirectory(directory.path()), absl::OkStatus());
  EXPECT_EQ(SyncDirectory(directory.Path("missing")).code(), absl::StatusCode::kNotFound);
}

TEST(FileTest, ANamelessFileLeavesNothing) {
  const TestDirectory directory;
  const auto file = File::CreateNameless(directory.Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(directory.List().empty());
  ASSERT_EQ(file->WriteAt(1 << 20, AsBytes(std::string_view("end"))), absl::OkStatus());
  std::string read(3, ' ');
  ASSERT_EQ(file->ReadAt(1 << 20, std::as_writable_bytes(std::span(read))), absl::OkStatus());
  EXPECT_EQ(read, "end");
  EXPECT_EQ(File::CreateNameless(directory.Path("missing")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(FileTest, SystemErrorsMapToStatusCodes) {
  EXPECT_EQ(FileError(ENOSPC, "x", "y").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EDQUOT, "x", "y").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EMFILE, "x", "y").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EFBIG, "x", "y").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EIO, "x", "y").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FileError(EISDIR, "x", "y").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FileError(ELOOP, "x", "y").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FileError(ENOENT, "can't open", "y").message(),
            "can't open y: No such file or directory");
}

}  // namespace
}  // namespace hps
