#include "server/core/token_guard.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/secret_file.h"

namespace hps::server {
namespace {

class TokenGuardTest : public testing::Test {
 protected:
  TokenGuardTest() : folder_(testing::TempDir() + "/token_guard_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    unsetenv("HPS_TOKEN");
  }
  ~TokenGuardTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << text;
    return path;
  }

  std::string folder_;
};

TEST_F(TokenGuardTest, WithoutATokenEverybodyIsLetIn) {
  const auto guard = *TokenGuard::Create("");
  EXPECT_FALSE(guard->has_token());
  EXPECT_TRUE(guard->Admits(""));
  setenv("HPS_TOKEN", "", 1);
  EXPECT_FALSE((*TokenGuard::Create(""))->has_token());
  unsetenv("HPS_TOKEN");
}

TEST_F(TokenGuardTest, TheTokenComesFromAFileOrTheEnvironment) {
  const auto from_file = *TokenGuard::Create(Write("token", "s3cret\r\nmore\n"));
  setenv("HPS_TOKEN", "s3cret", 1);
  const auto from_environment = *TokenGuard::Create("");
  unsetenv("HPS_TOKEN");
  for (const TokenGuard* guard : {from_file.get(), from_environment.get()}) {
    EXPECT_TRUE(guard->has_token());
    EXPECT_TRUE(guard->Admits("Bearer s3cret"));
    EXPECT_TRUE(guard->Admits("bearer s3cret"));
    for (const char* wrong : {"", "s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets",
                              "Basic s3cret", "Bearer  s3cret"}) {
      EXPECT_FALSE(guard->Admits(wrong)) << wrong;
    }
  }
}

TEST_F(TokenGuardTest, RefusesTokensThatAreNone) {
  EXPECT_EQ(TokenGuard::Create(folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
  for (const std::string& text :
       {std::string("\n"), std::string(""), std::string("a b\n"), std::string(5000, 'a')}) {
    EXPECT_EQ(TokenGuard::Create(Write("token", text)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(TokenGuardTest, TheLongestTokenIsTaken) {
  const std::string longest(kTokenBytesMax, 'a');
  for (const char* end : {"", "\n", "\r\n", "\nmore\n"}) {
    const auto guard = TokenGuard::Create(Write("token", longest + end));
    ASSERT_TRUE(guard.ok()) << guard.status();
    EXPECT_TRUE((*guard)->Admits("Bearer " + longest));
  }
}

// It would be waited for without end, or read without end.
TEST_F(TokenGuardTest, RefusesWhatIsNoRegularFile) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), folder_}) {
    const absl::Status refused = TokenGuard::Create(path).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_NE(refused.message().find("is not a regular file"), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace hps::server
