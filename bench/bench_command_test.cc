#include "bench/bench_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hps::bench {
namespace {

using ::testing::HasSubstr;

void ExpectUsageError(const std::vector<std::string>& words, const std::string& part) {
  const absl::Status status = ParseBenchArguments(words).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
}

TEST(BenchCommandTest, ReadsItsOptions) {
  const auto bench = ParseBenchArguments({"--json", "l2", "--out", "f", "--quick"});
  ASSERT_TRUE(bench.ok()) << bench.status();
  EXPECT_TRUE(bench->json);
  EXPECT_EQ(bench->text, "");
  EXPECT_EQ(bench->scenario, "l2");
  EXPECT_EQ(bench->out, "f");
  EXPECT_TRUE(bench->quick);
  EXPECT_FALSE(ParseBenchArguments({"l2"})->json);
}

TEST(BenchCommandTest, HelpIsThatOfHpsBench) {
  const auto help = ParseBenchArguments({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_THAT(help->text, HasSubstr("Usage: hps bench [OPTIONS] scenario"));
  EXPECT_THAT(help->text, HasSubstr("Example:\n  hps bench l2"));
}

TEST(BenchCommandTest, WrongUsageNamesTheOption) {
  ExpectUsageError({}, "bench: scenario is required");
  ExpectUsageError({"nosuch"},
                   "'nosuch' is not a scenario of this build; there are: l1 l2 l3 import session "
                   "dlrm dense serve");
  ExpectUsageError({"l2", "--quik"},
                   "bench: '--quik' is not an option of this command; did you "
                   "mean '--quick'?");
  for (const char* option : {"--out=", "--directory=", "--device="})
    ExpectUsageError({"l2", option, "--json"}, "''");
  ExpectUsageError({"l2", "--out", ""}, "expected a path, found ''");
  ExpectUsageError({"l2", "--directory", ""}, "expected a path, found ''");
}

}  // namespace
}  // namespace hps::bench
