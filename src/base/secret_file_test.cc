#include "base/secret_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace hps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SecretFileTest : public testing::Test {
 protected:
  SecretFileTest() : folder_(testing::TempDir() + "/secret_file_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/token";
    std::ofstream(path_) << "secret\n";
  }
  ~SecretFileTest() override { std::filesystem::remove_all(folder_); }

  absl::Status CheckWith(mode_t mode, std::optional<bool> allowed) const {
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return CheckSecretFile("[x] token_file", path_, allowed);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SecretFileTest, IsForItsOwnerAndGroup) {
  for (const mode_t mode : {0400u, 0600u, 0640u, 0440u, 0660u, 0601u, 0000u})
    EXPECT_EQ(CheckWith(mode, false), absl::OkStatus()) << std::oct << mode;
  for (const mode_t mode : {0644u, 0444u, 0604u, 0777u, 0004u})
    EXPECT_EQ(CheckWith(mode, false).code(), absl::StatusCode::kFailedPrecondition) << mode;
}

TEST_F(SecretFileTest, TheErrorSaysWhatToDo) {
  const std::string found = "[x] token_file: the mode of '" + path_ +
                            "', 0644, lets every user read it; run `chmod o-r` on it, or mount it "
                            "with the mode 0440";
  EXPECT_EQ(CheckWith(0644, std::nullopt), absl::FailedPreconditionError(found));
  EXPECT_EQ(CheckWith(0644, false),
            absl::FailedPreconditionError(
                found + ", or set [server.security] secrets_readable_by_all = true"));
}

TEST_F(SecretFileTest, IsAWarningWhereItIsAllowed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(CheckWith(0600, true), absl::OkStatus());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(CheckWith(0644, true), absl::OkStatus());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning"), HasSubstr("lets every user read it"), HasSubstr(path_)));
}

// A link's own mode is 0777; what counts is the file.
TEST_F(SecretFileTest, FollowsLinks) {
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(CheckSecretFile("x", link, false), absl::OkStatus());
  EXPECT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_EQ(CheckSecretFile("x", link, false).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SecretFileTest, LeavesWhatIsNoFileToItsReader) {
  for (const std::string& path :
       {std::string(), folder_ + "/none", folder_, std::string("/dev/null")}) {
    EXPECT_EQ(CheckSecretFile("x", path), absl::OkStatus()) << path;
  }
}

TEST_F(SecretFileTest, ReadsTheFirstLine) {
  const auto read = [this](const std::string& text) {
    std::ofstream(path_) << text;
    return ReadSecretLine(path_, "where", 6).value();
  };
  EXPECT_EQ(read("secret"), "secret");
  EXPECT_EQ(read("secret\n"), "secret");
  EXPECT_EQ(read("secret\r\nmore\n"), "secret");
  EXPECT_EQ(read("\nsecret\n"), "");
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("secret and more"), "secret a") << "enough to see that it is longer";
  EXPECT_EQ(ReadSecretLine(folder_ + "/none", "where", 6).status(),
            absl::NotFoundError("where can't be read"));
}

// The caller would wait for the writer of a pipe.
TEST_F(SecretFileTest, ReadsRegularFilesOnly) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder_, std::string("/dev/zero")}) {
    EXPECT_EQ(ReadSecretLine(path, "where", 6).status(),
              absl::InvalidArgumentError("where is not a regular file"))
        << path;
  }
}

TEST_F(SecretFileTest, TokensHaveNoBlanks) {
  for (const std::string& token : {std::string("x"), std::string(kTokenBytesMax, 'x')})
    EXPECT_EQ(CheckToken(token, "where"), absl::OkStatus());
  for (const std::string& token :
       {std::string(), std::string(kTokenBytesMax + 1, 'x'), std::string("a b"),
        std::string("a\tb"), std::string("a\r\nX: y")}) {
    EXPECT_EQ(CheckToken(token, "HPS_TOKEN"),
              absl::InvalidArgumentError(
                  "HPS_TOKEN: the token is one line of 1 to 4096 bytes without blanks"));
  }
}

}  // namespace
}  // namespace hps
