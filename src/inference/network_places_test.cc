#include "inference/network_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "inference/model_version.h"
#include "inference/predictor.h"
#include "inference/test_planned_model.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// What the networks of a test do, by device; -1 = the CPU.
struct Machine {
  std::vector<int> made;
  std::vector<int> sessions;
  std::map<int, std::shared_ptr<ByteBudget>> row_budgets;  // of the networks
  std::map<int, uint64_t> row_bytes;                       // likewise
  std::map<int, uint64_t> keys_max;                        // likewise
  std::map<int, absl::Status> make_errors;
  std::map<int, absl::Status> session_errors;
  std::map<int, absl::Status> run_errors;
};

// Every output is the number of the device, also where the run fails.
class FakeSession final : public DenseSession {
 public:
  FakeSession(Machine& machine, int device) : machine_(machine), device_(device) {}
  absl::Status Run(std::span<const DenseTensor>, std::span<const DenseTensor> outputs) override {
    for (const DenseTensor& output : outputs) {
      const std::vector<float> scores(static_cast<size_t>(output.dims.front()),
                                      static_cast<float>(device_));
      std::memcpy(output.data, scores.data(), scores.size() * sizeof(float));
    }
    return machine_.run_errors[device_];
  }

 private:
  Machine& machine_;
  const int device_;
};

class FakeNetwork final : public DenseNetwork {
 public:
  FakeNetwork(Machine& machine, int device) : machine_(machine), device_(device) {}
  std::span<const OnnxValue> inputs() const override { return {}; }
  std::span<const OnnxValue> outputs() const override { return {}; }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    machine_.sessions.push_back(device_);
    if (!machine_.session_errors[device_].ok()) return machine_.session_errors[device_];
    return std::make_unique<FakeSession>(machine_, device_);
  }

 private:
  Machine& machine_;
  const int device_;
};

class NetworkPlacesTest : public testing::Test {
 protected:
  MakeOnDevice Maker() {
    return
        [this](const ModelNetwork&,
               const DeviceDenseOptions& options) -> absl::StatusOr<std::unique_ptr<DenseNetwork>> {
          machine_.made.push_back(options.device);
          machine_.row_budgets[options.device] = options.row_budget;
          machine_.row_bytes[options.device] = options.row_bytes;
          machine_.keys_max[options.device] = options.keys_max;
          if (!machine_.make_errors[options.device].ok())
            return machine_.make_errors[options.device];
          return std::make_unique<FakeNetwork>(machine_, options.device);
        };
  }

  // What the log says meanwhile.
  static std::string Logged(const std::function<void()>& body) {
    testing::internal::CaptureStderr();
    body();
    return testing::internal::GetCapturedStderr();
  }

  std::string AddDevices(const std::vector<int>& devices) {
    return Logged([&] {
      const absl::Status added =
          places_.AddDevices({}, {.devices = devices, .batch_max = 64, .make = Maker()});
      EXPECT_TRUE(added.ok()) << added;
    });
  }

  // Where a session runs one batch.
  static float Place(DenseSession& session) {
    float score = -2;
    const int64_t dims[] = {1, 1};
    const DenseTensor output{std::as_writable_bytes(std::span(&score, 1)).data(), dims};
    const absl::Status ran = session.Run({}, {&output, 1});
    EXPECT_TRUE(ran.ok()) << ran;
    return score;
  }
  float PlaceFor(int device) { return Place(**places_.NewSession(device)); }

  Machine machine_;
  NetworkPlaces places_{"m", std::make_unique<FakeNetwork>(machine_, -1)};
};

// Catches: rows of predictions that take the memory of level 1's tables, because each slot of each
// model counts for itself.
TEST_F(NetworkPlacesTest, NetworksShareWhatADeviceHasForRows) {
  DeviceWishes wishes = {.devices = {8, 9}, .session_count = 5, .make = Maker()};
  wishes.row_bytes_max = [](int device) { return device == 8 ? uint64_t{1} << 30 : UINT64_MAX; };
  ASSERT_TRUE(places_.AddDevices({}, wishes).ok());
  EXPECT_THAT(machine_.made, ElementsAre(8, 9));
  EXPECT_EQ(machine_.row_budgets[9], nullptr) << "it does not say";
  const std::shared_ptr<ByteBudget> of_first = machine_.row_budgets[8];
  ASSERT_NE(of_first, nullptr);
  NetworkPlaces other("n", std::make_unique<FakeNetwork>(machine_, -1));
  ASSERT_TRUE(other.AddDevices({}, wishes).ok());
  EXPECT_EQ(machine_.row_budgets[8], of_first);
}

// Of 512 bytes a row, as 128 elements have: 65,536 keys take 32 MiB, 262,144 keys 128 MiB; and 27
// times 256 bytes for 26 tables.
TEST_F(NetworkPlacesTest, RowsHaveWhatTheyCanTakeOrHalfOfWhatIsLeft) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  constexpr uint64_t kSlack = 27 * 256;
  constexpr uint64_t kWanted = 3 * (128 * kMiB + kSlack);
  constexpr uint64_t kLeast = 32 * kMiB + kSlack;
  struct Case {
    uint64_t bytes_left, sessions, call_keys_max, row_bytes, expected;
  };
  int device = 20;  // the budget of a device never shrinks
  for (const Case& of : {Case{UINT64_MAX, 16, 262'144, 512, kWanted},
                         {2 * 16 * kWanted, 16, 262'144, 512, kWanted},
                         {2 * 16 * kWanted - 32, 16, 262'144, 512, kWanted - 1},
                         {2 * 100 * kMiB, 1, 262'144, 512, 100 * kMiB},
                         {4 * kLeast, 4, 262'144, 512, kLeast},
                         {4 * kLeast + 99, 4, 262'144, 512, kLeast},
                         {4 * kLeast - 1, 4, 262'144, 512, 0},
                         // Larger lookups, and no larger than batches of the server.
                         {UINT64_MAX, 1, 1'703'936, 512, 1024 * kMiB},
                         {UINT64_MAX, 1, 1, 512, 3 * kLeast},
                         // Wide rows do not need room for a whole batch.
                         {64 * kMiB, 1, 262'144, 16'384, 64 * kMiB},
                         {64 * kMiB - 1, 1, 262'144, 16'384, 0},
                         {UINT64_MAX, 1, 262'144, 16'384, 1024 * kMiB},
                         // Narrow ones take little.
                         {UINT64_MAX, 1, 262'144, 4, 3 * (kMiB + kSlack)}}) {
    SCOPED_TRACE(testing::Message()
                 << of.bytes_left << " bytes for " << of.sessions << " sessions, "
                 << of.call_keys_max << " keys, rows of " << of.row_bytes);
    DeviceWishes wishes = {.devices = {++device},
                           .session_count = of.sessions,
                           .call_keys_max = of.call_keys_max,
                           .table_count = 26,
                           .row_bytes = of.row_bytes,
                           .row_bytes_max = [&](int) { return of.bytes_left; },
                           .make = Maker()};
    NetworkPlaces places("n", std::make_unique<FakeNetwork>(machine_, -1));
    const absl::Status added = places.AddDevices({}, wishes);
    EXPECT_EQ(added.ok(), of.expected > 0) << added;
    EXPECT_EQ(machine_.row_bytes[device], of.expected);
    EXPECT_EQ(machine_.keys_max[device],
              of.expected > 0 ? std::max<uint64_t>(65'536, of.call_keys_max) : 0);
  }
}

// Catches: a network that is checked against one number of bytes, and gets them of another.
TEST_F(NetworkPlacesTest, ALaterNetworkGetsWhatTheOthersHaveLeft) {
  constexpr uint64_t kLeast = 65'536 * 512 + 2 * 256;
  uint64_t bytes_max = kLeast;
  DeviceWishes wishes = {.devices = {10}, .row_bytes = 512, .make = Maker()};
  wishes.row_bytes_max = [&bytes_max](int) { return bytes_max; };
  ASSERT_TRUE(places_.AddDevices({}, wishes).ok());
  const auto lent = machine_.row_budgets[10]->Lend(kLeast);
  ASSERT_TRUE(lent.ok());
  NetworkPlaces other("n", std::make_unique<FakeNetwork>(machine_, -1));
  EXPECT_EQ(other.AddDevices({}, wishes).code(), absl::StatusCode::kResourceExhausted);
  bytes_max = 5 * kLeast;  // the budget grows: level 1 has given memory back
  ASSERT_TRUE(other.AddDevices({}, wishes).ok());
  EXPECT_EQ(machine_.row_bytes[10], 2 * kLeast);
  bytes_max = kLeast;  // takes nothing from the others
  NetworkPlaces third("o", std::make_unique<FakeNetwork>(machine_, -1));
  ASSERT_TRUE(third.AddDevices({}, wishes).ok());
  EXPECT_TRUE(machine_.row_budgets[10]->Lend(4 * kLeast).ok());
}

TEST_F(NetworkPlacesTest, TooLittleMemoryForRowsIsAnErrorOfTheLoad) {
  DeviceWishes wishes = {.devices = {7}, .session_count = 4, .row_bytes = 4096, .make = Maker()};
  wishes.row_bytes_max = [](int) { return 4 * RowRoom::kRowBytesLeast - 1; };
  const absl::Status added = places_.AddDevices({}, wishes);
  EXPECT_EQ(added.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(added.message()),
              AllOf(HasSubstr("device 7"), HasSubstr("take at least 268435456 bytes"),
                    HasSubstr("67108864 for each of 4 lookup slots"),
                    HasSubstr("268435455 bytes of its memory are left"),
                    HasSubstr("lower [l1] bytes_max or [server] lookups")));
  EXPECT_TRUE(machine_.made.empty());
}

TEST_F(NetworkPlacesTest, EachDeviceHasOneNetworkForItsSessions) {
  EXPECT_EQ(AddDevices({2, 5}), "");
  EXPECT_THAT(machine_.made, ElementsAre(2, 5));
  EXPECT_EQ(PlaceFor(5), 5);
  EXPECT_EQ(PlaceFor(2), 2);
  EXPECT_EQ(PlaceFor(5), 5);
  EXPECT_EQ(PlaceFor(-1), -1);
  EXPECT_EQ(PlaceFor(3), -1);
  EXPECT_THAT(machine_.made, ElementsAre(2, 5));
  EXPECT_EQ(places_.runs().on_devices, 3U);
  EXPECT_EQ(places_.runs().on_cpu, 2U);
  EXPECT_EQ(places_.runs().device_failures, 0U);
}

TEST_F(NetworkPlacesTest, AnOperatorThatNoDeviceRunsIsOneWarning) {
  machine_.make_errors[0] = absl::UnimplementedError("node 'c' (CumSum)");
  const std::string log = AddDevices({0, 1});
  EXPECT_THAT(log, AllOf(HasSubstr("warning model 'm'"), HasSubstr("on 0 of 2 GPUs"),
                         HasSubstr("device 0: node 'c' (CumSum)")));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
  EXPECT_THAT(machine_.made, ElementsAre(0));
  EXPECT_EQ(PlaceFor(0), -1);
  EXPECT_EQ(PlaceFor(1), -1);
  EXPECT_EQ(places_.runs().on_cpu, 2U);
}

TEST_F(NetworkPlacesTest, ADeviceThatFailsLeavesTheOthers) {
  machine_.make_errors[0] = absl::DeadlineExceededError("weights: the device hangs");
  EXPECT_THAT(AddDevices({0, 1}), HasSubstr("on 1 of 2 GPUs: DEADLINE_EXCEEDED: device 0"));
  EXPECT_EQ(PlaceFor(0), -1);
  EXPECT_EQ(PlaceFor(1), 1);
}

TEST_F(NetworkPlacesTest, ADeviceWithoutMemoryForTheNetworkIsAnErrorOfTheLoad) {
  machine_.make_errors[1] = absl::ResourceExhaustedError("weights: no memory");
  const absl::Status added = places_.AddDevices({}, {.devices = {0, 1}, .make = Maker()});
  EXPECT_EQ(added.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(added.message()),
              AllOf(HasSubstr("device 1: weights: no memory"), HasSubstr("lower [l1] bytes_max")));
}

TEST_F(NetworkPlacesTest, ABatchForWhichTheDeviceFailsRunsOnTheCpu) {
  EXPECT_EQ(AddDevices({0}), "");
  const auto session = *places_.NewSession(0);
  EXPECT_EQ(Place(*session), 0);
  machine_.run_errors[0] = absl::InternalError("an illegal address");
  EXPECT_THAT(Logged([&] { EXPECT_EQ(Place(*session), -1); }),
              AllOf(HasSubstr("model 'm'"), HasSubstr("device 0"), HasSubstr("illegal address")));
  EXPECT_EQ(Place(*session), -1);
  machine_.run_errors[0] = absl::OkStatus();
  EXPECT_EQ(Place(*session), 0);
  EXPECT_EQ(places_.runs().on_devices, 2U);
  EXPECT_EQ(places_.runs().device_failures, 2U);
  EXPECT_THAT(machine_.sessions, UnorderedElementsAre(0, -1));  // both when the session was made
}

TEST_F(NetworkPlacesTest, WhatFailsOnBothIsAnError) {
  AddDevices({0});
  const auto session = *places_.NewSession(0);
  machine_.run_errors[0] = absl::InternalError("device");
  machine_.run_errors[-1] = absl::ResourceExhaustedError("host");
  EXPECT_TRUE(absl::IsResourceExhausted(session->Run({}, {})));
  machine_.session_errors[-1] = absl::InternalError("no session");
  EXPECT_TRUE(absl::IsInternal(places_.NewSession(7).status()));
  EXPECT_EQ(places_.runs().device_failures, 0U);
}

TEST_F(NetworkPlacesTest, ASessionThatTheDeviceHasNoMemoryForIsAnError) {
  AddDevices({0});
  machine_.session_errors[0] = absl::ResourceExhaustedError("buffers: no memory");
  const absl::Status made = places_.NewSession(0).status();
  EXPECT_EQ(made.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(made.message()),
              AllOf(HasSubstr("device 0: buffers: no memory"), HasSubstr("[server] lookups")));
}

// Catches: each slot waits for a device that hangs; a device that hangs takes the others along.
TEST_F(NetworkPlacesTest, ASessionThatTheDeviceFailsToMakeRunsOnTheCpu) {
  AddDevices({0, 1});
  machine_.session_errors[0] = absl::DeadlineExceededError("set-up: the device hangs");
  std::unique_ptr<DenseSession> session;
  EXPECT_THAT(Logged([&] { session = *places_.NewSession(0); }), HasSubstr("the device hangs"));
  EXPECT_EQ(Place(*session), -1);
  machine_.session_errors.clear();
  EXPECT_EQ(PlaceFor(0), -1) << "it is not asked again";
  EXPECT_EQ(PlaceFor(1), 1);
}

// A version's slots take turns over the devices with their networks, as with their lookups.
TEST_F(NetworkPlacesTest, TheSlotsOfAVersionTakeTurnsOverTheDevices) {
  const std::vector<TableSpec> tables = {{.name = "m/x", .dim = 2}};
  auto predictor = Predictor::Make(
      std::make_shared<const ModelNetwork>(
          ModelNetwork{.onnx = LogisticModel().Bytes(), .inputs = {{.name = "x", .table = "x"}}}),
      tables, {.devices = {0, 1}, .make = Maker()}, "m");
  if (absl::IsUnimplemented(predictor.status())) GTEST_SKIP() << "no engine in this build";
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  const ModelVersionRef version =
      *ModelVersion::Make(std::make_unique<PlannedModel>(tables),
                          {.slot_count = 3, .devices = {0, 1}}, *std::move(predictor));
  const float rows[] = {1, 2};
  for (size_t slot = 0; slot < 3; ++slot) {
    float score = -2;
    Prediction request;
    request.Reset(1, 1);
    request.batch = 1;
    request.inputs[0].rows = rows;
    request.outputs[0] = std::as_writable_bytes(std::span(&score, 1)).data();
    const Prediction* const all[] = {&request};
    ASSERT_TRUE(version->prediction_session(slot).Run(all).ok());
    EXPECT_EQ(score, static_cast<float>(slot % 2));
  }
  EXPECT_EQ(version->predictor()->runs().on_devices, 3U);
}

}  // namespace
}  // namespace hps
