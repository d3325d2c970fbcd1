#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hps {
namespace {

using ::testing::EndsWith;

std::string Logged(LogLevel level, void (*log)(std::string_view), std::string_view line) {
  SetLogLevel(level);
  testing::internal::CaptureStderr();
  log(line);
  std::string written = testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kWarning);
  return written;
}

TEST(LogTest, DropsWhatIsBelowTheLevel) {
  EXPECT_THAT(Logged(LogLevel::kWarning, LogWarning, "disk slow"),
              EndsWith(" warning disk slow\n"));
  EXPECT_EQ(Logged(LogLevel::kWarning, LogInfo, "opened"), "");
  EXPECT_THAT(Logged(LogLevel::kDebug, LogDebug, "step"), EndsWith(" debug step\n"));
  EXPECT_THAT(Logged(LogLevel::kError, LogError, "lost"), EndsWith(" error lost\n"));
  EXPECT_EQ(Logged(LogLevel::kError, LogWarning, "disk slow"), "");
  EXPECT_EQ(Logged(LogLevel::kOff, LogError, "lost"), "");
}

// Messages of RocksDB end with a line break of their own.
TEST(LogTest, AnEventIsOneLine) {
  EXPECT_THAT(Logged(LogLevel::kWarning, LogError, "two\nlines\n"),
              EndsWith(" error two lines \n"));
}

}  // namespace
}  // namespace hps
