#include "bench/serve/serve_triton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/report.h"

namespace hps::bench {
namespace {

using ::testing::HasSubstr;

// A source tree with a program two folders down, and a script in the place of the real one's.
class TritonPeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / absl::StrCat("hps_triton_test_", getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "tools/triton_peer");
    std::filesystem::create_directories(root_ / "build/bin");
    program_ = root_ / "build/bin/hps";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void WriteScript(const std::string& text) const {
    std::ofstream(root_ / "tools/triton_peer/triton_peer.py") << text;
  }
  void MakeVenv() const {
    std::filesystem::create_directories(root_ / ".venv-bench");
    std::ofstream(root_ / ".venv-bench/installed.txt") << "x";
  }
  absl::StatusOr<std::vector<Result>> RunFound() const {
    const absl::StatusOr<TritonPeer> peer = FindTritonPeer(program_);
    return peer.ok() ? RunTritonPeer(*peer, root_) : peer.status();
  }

  std::filesystem::path root_;
  std::string program_;
};

TEST_F(TritonPeerTest, SaysWhatIsMissing) {
  EXPECT_EQ(FindTritonPeer(program_).status().code(), absl::StatusCode::kNotFound);
  WriteScript("");
  const absl::Status status = FindTritonPeer(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tools/bootstrap.sh bench"));
}

TEST_F(TritonPeerTest, RunsTheScriptAndReadsItsReport) {
  WriteScript(R"(
import json, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert arguments["--hps"].endswith("/build/bin/hps"), arguments
assert arguments["--venv"].endswith("/.venv-bench"), arguments
json.dump({"results": [{"name": "triton", "unit": "requests/s", "figure": 3, "bound": 2,
                        "ratio": 1.5, "target": ">= 1.2", "p50": 4, "runs": 1,
                        "params": {"protocol": "http"}, "measured": {"x": 5}}]},
          open(arguments["--out"], "w"))
)");
  MakeVenv();
  const auto results = RunFound();
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 1u);
  const Result& result = results->front();
  EXPECT_EQ(result.name, "triton");
  EXPECT_EQ(result.figure, 3);
  EXPECT_EQ(result.bound, 2);
  EXPECT_EQ(result.ratio, 1.5);
  EXPECT_EQ(result.p50, 4);
  EXPECT_EQ(result.p99, std::nullopt);
  EXPECT_EQ(result.runs, 1u);
  EXPECT_EQ(result.params.at("protocol"), "http");
  EXPECT_EQ(result.measured.front(), (std::pair<std::string, double>("x", 5)));
  EXPECT_EQ(MeetsTarget(result), true);
}

TEST_F(TritonPeerTest, TellsWhyItFailed) {
  WriteScript("import sys\nprint('starts')\nsys.exit('no perf_analyzer')\n");
  MakeVenv();
  const absl::Status status = RunFound().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no perf_analyzer"));
}

TEST_F(TritonPeerTest, WhatIsNoReportIsAnError) {
  WriteScript("import sys; open(sys.argv[6], 'w').write('{}')");
  MakeVenv();
  EXPECT_EQ(RunFound().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps::bench
