#include "network/gpu/session_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "network/onnx/model.h"
#include "network/plan/plan_maker.h"
#include "network/plan/test_networks.h"

namespace hps {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

DensePlan PlanOf(const std::string& onnx) {
  const auto read = OnnxModel::Parse(AsBytes(std::string_view(onnx)), {});
  EXPECT_TRUE(read.ok()) << read.status();
  auto plan = MakeDensePlan(read->graph());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// A network that only adds its input's `width` elements.
TestModel Wide(int64_t width) {
  NetworkWriter writer(1);
  const std::string x = writer.Input("x", {width});
  return writer.Done(writer.Node("ReduceSum", {x, writer.Integers({1})}), {1});
}

class SessionSizesTest : public testing::Test {
 protected:
  // The widths of Criteo's DLRM: 26 tables of 128 elements, 13 numbers.
  SessionSizesTest() {
    dlrm_.onnx = DlrmNetwork({.dense = 13,
                              .tables = 26,
                              .width = 128,
                              .bottom = {512, 256},
                              .top = {1024, 1024, 512, 256}})
                     .Bytes();
    for (int t = 0; t < 26; ++t) {
      const std::string number = std::to_string(t);
      dlrm_.inputs.push_back({.name = "rows_" + number, .table = "t" + number});
    }
  }

  static uint32_t RunSamples(const ModelNetwork& network, const DeviceDenseOptions& options,
                             uint64_t free_bytes) {
    return SizesOf(PlanOf(network.onnx), network, options, free_bytes).run_samples;
  }

  ModelNetwork dlrm_;
};

TEST_F(SessionSizesTest, OfCriteosDlrm) {
  const SessionSizes sizes = SizesOf(PlanOf(dlrm_.onnx), dlrm_, {}, 64 * kGiB);
  EXPECT_EQ(sizes.run_samples, 16'384U);
  EXPECT_EQ(sizes.sample_bytes, uint64_t{26 * 8 + 13 * 4});
  EXPECT_EQ(sizes.limits.part_samples_max, uint64_t{16'384});
  EXPECT_EQ(sizes.limits.samples_max, uint64_t{3 * 16'384});
  EXPECT_EQ(sizes.limits.parts_total_max, uint64_t{4'194'304 / 26}) << "of the keys of a call";
  EXPECT_EQ(sizes.call_runs, 3U);
  EXPECT_EQ(sizes.output_bytes, 4 * sizes.limits.parts_total_max + kInputAlignment);
  EXPECT_GT(sizes.part_bytes, 16'384 * sizes.sample_bytes);
  EXPECT_LT(sizes.part_bytes, 16'384 * sizes.sample_bytes + 4096);
}

TEST_F(SessionSizesTest, RunsHaveThePowerOfTwoThatHasRoom) {
  EXPECT_EQ(RunSamples(dlrm_, {}, 2 * 448 * (kGiB >> 10)), 16'384U);
  EXPECT_EQ(RunSamples(dlrm_, {}, 448 * (kGiB >> 10)), 8192U);
  EXPECT_EQ(RunSamples(dlrm_, {.sessions = 2}, 2 * 448 * (kGiB >> 10)), 8192U);
  EXPECT_EQ(RunSamples(dlrm_, {.buffer_bytes_max = uint64_t{224} << 20}, kGiB), 8192U);
  EXPECT_EQ(RunSamples(dlrm_, {}, 0), 4096U);  // what they need at least
  EXPECT_EQ(RunSamples(dlrm_, {.batch_max = 100, .buffer_bytes_max = 0}, kGiB), 128U);
  // No more than a call has samples.
  EXPECT_EQ(RunSamples({.onnx = Wide(4).Bytes()}, {}, kGiB), 32'768U);
}

// Samples of 1 KiB take 48 MiB in three parts of 16,384, those of 2 KiB 96 MiB, larger ones more.
TEST_F(SessionSizesTest, PartsOfWideSamplesHaveFewer) {
  for (const auto& [width, part_samples] : {std::pair<int64_t, uint64_t>{1, 16'384},
                                            {512, 16'384},
                                            {513, 8192},
                                            {8192, 1024},
                                            {32'768, 256},
                                            {1 << 20, 256}}) {
    SCOPED_TRACE(width);
    const ModelNetwork network = {.onnx = Wide(width).Bytes()};
    const SessionSizes sizes = SizesOf(PlanOf(network.onnx), network, {}, kGiB);
    EXPECT_EQ(sizes.sample_bytes, std::max<uint64_t>(8, static_cast<uint64_t>(width) * 4));
    EXPECT_EQ(sizes.limits.part_samples_max, part_samples);
    EXPECT_EQ(sizes.limits.samples_max, 3 * part_samples);
    // Rows of a table stay on the device.
    const ModelNetwork of_table = {.onnx = network.onnx, .inputs = {{.name = "x", .table = "x"}}};
    EXPECT_EQ(SizesOf(PlanOf(network.onnx), of_table, {}, kGiB).limits.part_samples_max, 16'384U);
  }
}

// Of 1 KiB each: 16 MiB are those of 16,384 samples.
TEST_F(SessionSizesTest, CallsHaveNoMoreOutputsThanFit) {
  const ModelNetwork network = {.onnx = ChainOfLayers(1, 256).Bytes()};
  const DensePlan plan = PlanOf(network.onnx);
  const DeviceLimits limits = SizesOf(plan, network, {}, kGiB).limits;
  EXPECT_EQ(limits.samples_max, uint64_t{16'384});
  EXPECT_EQ(limits.parts_total_max, uint64_t{16'384});
  const SessionSizes of_large_runs = SizesOf(plan, network, {.batch_max = 20'000}, kGiB);
  EXPECT_EQ(of_large_runs.limits.parts_total_max, uint64_t{20'000});
  EXPECT_EQ(of_large_runs.output_bytes, 20'000 * 1024 + kInputAlignment);
}

}  // namespace
}  // namespace hps
