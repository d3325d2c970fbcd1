#include "server/core/server_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/public_message.h"
#include "server/core/admission.h"
#include "server/core/test_server_world.h"
#include "server/core/test_watched_models.h"

namespace hps::server {
namespace {

using ::testing::HasSubstr;

class ServerCoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.ImportAll({{"m/user", 100, 4}, {"m/item", 50, 8}, {"n/t", 10, 4}});
  }

  ServerWorld world_;
};

TEST_F(ServerCoreTest, AnswersByTable) {
  world_.Start();
  const std::vector<Key> users = {3, 99, -1, 3};
  const std::vector<Key> items = {0, 49};
  TestCall call;
  call.request.model = "m";
  call.AddKeys("user", users);
  call.AddTensor("item", Datatype::kUint64, {1, 2}, std::as_bytes(std::span(items)));
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  ASSERT_EQ(call.outputs.size(), 2u);
  EXPECT_EQ(call.model_version, "2");  // one for each import
  EXPECT_EQ(call.outputs[0].name, "user");
  EXPECT_THAT(call.outputs[0].shape.values(), ::testing::ElementsAre(4, 4));
  EXPECT_THAT(call.outputs[1].shape.values(), ::testing::ElementsAre(1, 2, 8));
  for (size_t i = 0; i < users.size(); ++i) {
    const auto row = call.bytes(0).subspan(i * 16, 16);
    EXPECT_TRUE(users[i] == -1 ? ServerWorld::IsZero(row)
                               : ServerWorld::IsRow("m/user", users[i], 1, row));
  }
  for (size_t i = 0; i < items.size(); ++i)
    EXPECT_TRUE(ServerWorld::IsRow("m/item", items[i], 1, call.bytes(1).subspan(i * 32, 32)));
}

// Catches: a call over TLS that is told to try again for ever, since its connection has what it
// lacks.
TEST_F(ServerCoreTest, WhatDoesNotFitBesideItsTlsConnectionNeverFits) {
  ServerConfig& config = world_.config().server;
  config.bytes_in_flight_max = uint64_t{4} << 20;
  config.body_bytes_max = uint64_t{1} << 20;
  config.tls_certificate = config.tls_key = "one";
  world_.Start();
  Admission::Reservation connection;
  ASSERT_TRUE(world_.inference().ReserveBytes(kTlsConnectionBytes, &connection).ok());
  const std::vector<Key> keys = {1};
  TestCall call;
  call.request.model = "n";
  call.AddKeys("t", keys);
  call.request.body_bytes = config.bytes_in_flight_max - kTlsConnectionBytes;
  EXPECT_EQ(call.Prepare(world_.inference()).code(), absl::StatusCode::kOutOfRange);
  call.request.body_bytes -= uint64_t{64} << 10;  // for the call itself and its row
  EXPECT_TRUE(call.Answer(world_.inference()).ok());
}

TEST_F(ServerCoreTest, AnswersKeysAsTheOriginal) {
  world_.Start();
  const std::vector<Key> keys = {7, 8, 49, 1};
  const std::vector<int32_t> counts = {2, 2};
  TestCall call;
  call.request.model = "m";
  call.AddTensor("KEYS", Datatype::kInt64, {1, 4}, std::as_bytes(std::span(keys)));
  call.AddTensor("NUMKEYS", Datatype::kInt32, {1, 2}, std::as_bytes(std::span(counts)));
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  ASSERT_EQ(call.outputs.size(), 1u);
  EXPECT_EQ(call.outputs[0].name, "OUTPUT0");
  EXPECT_THAT(call.outputs[0].shape.values(), ::testing::ElementsAre(2 * 4 + 2 * 8));
  EXPECT_TRUE(ServerWorld::IsRow("m/user", 7, 1, call.bytes(0).subspan(0, 16)));
  EXPECT_TRUE(ServerWorld::IsRow("m/user", 8, 1, call.bytes(0).subspan(16, 16)));
  EXPECT_TRUE(ServerWorld::IsRow("m/item", 49, 1, call.bytes(0).subspan(32, 32)));
  EXPECT_TRUE(ServerWorld::IsRow("m/item", 1, 1, call.bytes(0).subspan(64, 32)));
}

TEST_F(ServerCoreTest, SaysOfEachOfTheOriginalsKeysWhatAnswered) {
  world_.config().server.batch_keys_max = 2;  // in pieces, across the tables
  world_.Start();
  const std::vector<Key> keys = {7, 1000, 8, 49, -1};
  const std::vector<int32_t> counts = {3, 2};
  TestCall call;
  call.request.model = "m";
  call.request.output_names = {"OUTPUT0.status", "OUTPUT0"};
  call.AddTensor("KEYS", Datatype::kInt64, {1, 5}, std::as_bytes(std::span(keys)));
  call.AddTensor("NUMKEYS", Datatype::kInt32, {1, 2}, std::as_bytes(std::span(counts)));
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  std::vector<int> statuses;
  for (const std::byte status : call.bytes(0)) statuses.push_back(std::to_integer<int>(status));
  EXPECT_THAT(statuses, ::testing::ElementsAre(3, 0, 3, 3, 0));
  EXPECT_TRUE(ServerWorld::IsRow("m/user", 8, 1, call.bytes(1).subspan(32, 16)));
  EXPECT_TRUE(ServerWorld::IsRow("m/item", 49, 1, call.bytes(1).subspan(48, 32)));
}

TEST_F(ServerCoreTest, SaysOfEachKeyWhatAnswered) {
  world_.Start();
  const std::vector<Key> keys = {1, 1000};
  TestCall call;
  call.request.model = "m";
  call.request.output_names = {"user.status", "user"};
  call.AddKeys("user", keys);
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  EXPECT_EQ(call.outputs[0].name, "user.status");
  EXPECT_EQ(call.outputs[0].datatype, Datatype::kUint8);
  EXPECT_EQ(call.bytes(0)[0], std::byte{static_cast<uint8_t>(KeyStatus::kHitL3)});
  EXPECT_EQ(call.bytes(0)[1], std::byte{static_cast<uint8_t>(KeyStatus::kAbsent)});
  EXPECT_TRUE(ServerWorld::IsRow("m/user", 1, 1, call.bytes(1).first(16)));
}

TEST_F(ServerCoreTest, ReadsKeysThatAreNotAligned) {
  world_.Start();
  const std::vector<Key> keys = {5, 6, 7};
  std::vector<std::byte> bytes(1 + keys.size() * sizeof(Key));
  std::memcpy(bytes.data() + 1, keys.data(), keys.size() * sizeof(Key));
  TestCall call;
  call.request.model = "m";
  call.AddTensor("user", Datatype::kInt64, {3}, std::span(bytes).subspan(1));
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  for (size_t i = 0; i < keys.size(); ++i)
    EXPECT_TRUE(ServerWorld::IsRow("m/user", keys[i], 1, call.bytes(0).subspan(i * 16, 16)));
}

TEST_F(ServerCoreTest, AnswersALargeCallInPieces) {
  world_.config().server.batch_keys_max = 1024;
  world_.Start();
  std::vector<Key> keys(5000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i % 120);
  TestCall call;
  call.request.model = "m";
  call.request.output_names = {"user", "user.status"};
  call.AddKeys("user", keys);
  ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = call.bytes(0).subspan(i * 16, 16);
    const bool is_there = keys[i] < 100;
    ASSERT_TRUE(is_there ? ServerWorld::IsRow("m/user", keys[i], 1, row)
                         : ServerWorld::IsZero(row));
    ASSERT_EQ(call.bytes(1)[i] == std::byte{0}, !is_there);
  }
}

TEST_F(ServerCoreTest, IsReadyWhenTheModelsAreLoaded) {
  world_.OpenStore();
  auto created = ServerCore::Create(world_.config(), world_.store().models());
  ASSERT_TRUE(created.ok()) << created.status();
  ServerCore& core = **created;
  EXPECT_FALSE(core.repository().ServerReady());
  EXPECT_EQ(core.repository().Index().at(0).state, ModelState::kLoading);
  const std::vector<Key> keys = {1};
  TestCall call;
  call.request.model = "m";
  call.AddKeys("user", keys);
  const absl::Status early = call.Answer(core.engine());
  EXPECT_EQ(early.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(early.message()), HasSubstr("not loaded yet"));
  ASSERT_TRUE(core.LoadAll().ok());
  EXPECT_TRUE(core.repository().ServerReady());
  EXPECT_TRUE(core.Snapshot().ready);
  EXPECT_TRUE(call.Answer(core.engine()).ok());
  call.Reset();
  EXPECT_FALSE(core.Snapshot().draining);
  core.BeginDrain();
  EXPECT_FALSE(core.repository().ServerReady());
  EXPECT_TRUE(core.Snapshot().draining);
  call.request.model = "m";
  call.AddKeys("user", keys);
  EXPECT_TRUE(call.Answer(core.engine()).ok()) << "what comes over open connections is answered";
  call.Reset();
  core.RefuseCalls();
  call.request.model = "m";
  call.AddKeys("user", keys);
  EXPECT_EQ(call.Answer(core.engine()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServerCoreTest, IsNotReadyWhereTheLoadEndedBeforeItCameToTheModels) {
  world_.OpenStore();
  WatchedModels models(world_.store().models());
  models.load_all_failure = absl::UnavailableError("the store can't be read");
  auto created = ServerCore::Create(world_.config(), models);
  ASSERT_TRUE(created.ok()) << created.status();
  ServerCore& core = **created;
  EXPECT_EQ(core.LoadAll(), models.load_all_failure);
  EXPECT_FALSE(core.repository().ServerReady());
  EXPECT_EQ(core.repository().Index().at(0).state, ModelState::kUnavailable);
  ASSERT_TRUE(core.repository().Load("m").ok());
  EXPECT_FALSE(core.repository().ServerReady()) << "'n' is not loaded";
  ASSERT_TRUE(core.repository().Load("n").ok());
  EXPECT_TRUE(core.repository().ServerReady());
}

// Catches: a log that says that a model was not loaded while it is served.
TEST_F(ServerCoreTest, TheLogSaysWhetherAModelIsServedAfterALoadThatFailed) {
  world_.OpenStore();
  WatchedModels models(world_.store().models());
  models.load_failure = Public(absl::FailedPreconditionError("an import is lost"));
  auto created = ServerCore::Create(world_.config(), models);
  ASSERT_TRUE(created.ok()) << created.status();
  const auto logged = [&](const char* model) {
    testing::internal::CaptureStderr();
    EXPECT_EQ((*created)->repository().Load(model),
              absl::FailedPreconditionError("an import is lost"));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(logged("m"), HasSubstr("the load of model 'm' has failed, and its current tables "
                                     "are served: "));
  EXPECT_THAT(logged("none"), HasSubstr("the load of model 'none' has failed: "));
}

// Catches: the server's paths, which an error of the store names, in answers.
TEST_F(ServerCoreTest, WhereTheStoreLiesIsForTheLogAlone) {
  world_.OpenStore();
  WatchedModels models(world_.store().models());
  const std::string path = world_.config().store.path;
  models.load_failure = absl::UnavailableError(path + "/000017.sst: no such file");
  auto created = ServerCore::Create(world_.config(), models);
  ASSERT_TRUE(created.ok()) << created.status();
  testing::internal::CaptureStderr();
  const absl::Status told = (*created)->repository().Load("m");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path + "/000017.sst"), std::string::npos);
  EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(told.message()), HasSubstr("see the server log"));
  EXPECT_THAT(std::string(told.message()), Not(HasSubstr(path)));
}

TEST_F(ServerCoreTest, AModelThatHasLostItsTablesDoesNotKeepTheOthersFromBeingReady) {
  world_.OpenStore();
  auto created = ServerCore::Create(world_.config(), world_.store().models());
  ASSERT_TRUE(created.ok()) << created.status();
  ServerCore& core = **created;
  ASSERT_TRUE(core.LoadAll().ok());
  ASSERT_TRUE(world_.store().Drop("n/t").ok());
  ASSERT_TRUE(core.LoadAll().ok());
  EXPECT_TRUE(core.repository().ServerReady());
  const ModelIndexEntry dropped = core.repository().Index().at(1);
  EXPECT_EQ(dropped.name, "n");
  EXPECT_EQ(dropped.state, ModelState::kUnavailable);
  EXPECT_EQ(dropped.reason, "its tables were dropped");
  EXPECT_EQ(core.repository().Load("n").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(core.repository().Index().at(1).reason, "its tables were dropped");
}

// Or else a batch that has waited for more would keep it, and calls that wait would end too late.
TEST_F(ServerCoreTest, TheTimerEndsCallsWhileBatchesThatItBeganAreLookedUp) {
  world_.config().server.batch_wait = std::chrono::microseconds(100);
  world_.config().server.lookups = 2;
  world_.OpenStore();
  WatchedModels models(world_.store().models());
  world_.Start(models);
  Latch both_look(2);
  Latch release(1);
  models.set_hook([&](WatchedModels::Look&) {
    both_look.CountDown();
    release.WaitUntil(kNoDeadline);
  });
  const std::vector<Key> keys = {1};
  const auto prepare = [&](TestCall& call) {
    call.request.model = "m";
    call.AddKeys("user", keys);
  };
  TestCall first;
  TestCall batched;
  TestCall late;
  for (TestCall* call : {&first, &batched, &late}) prepare(*call);
  late.request.timeout = std::chrono::milliseconds(10);
  std::thread running([&] { EXPECT_TRUE(first.Start(world_.inference()).ok()); });
  while (models.look_count() == 0) std::this_thread::yield();
  ASSERT_TRUE(batched.Start(world_.inference()).ok());
  both_look.WaitUntil(kNoDeadline);  // the timer found that it had waited long enough
  ASSERT_TRUE(late.Start(world_.inference()).ok());
  EXPECT_TRUE(late.Await());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(batched.is_done());
  release.CountDown();
  running.join();
  EXPECT_TRUE(batched.Await());
  for (TestCall* call : {&first, &batched, &late}) call->Reset();
  world_.Stop();
}

TEST_F(ServerCoreTest, ReservesWhatTheCodecHoldsForARequest) {
  world_.Start();
  const std::vector<Key> keys = {1};
  for (const uint64_t body_bytes : {uint64_t{0}, uint64_t{1} << 20}) {
    TestCall call;
    call.request.model = "m";
    call.request.body_bytes = body_bytes;
    call.AddKeys("user", keys);
    ASSERT_TRUE(call.Answer(world_.inference()).ok()) << call.status();
    const uint64_t bytes = world_.core().Snapshot().bytes_in_flight;
    EXPECT_GE(bytes, body_bytes + 16);
    EXPECT_LT(bytes, body_bytes + 4096);
    call.Reset();
    EXPECT_EQ(call.request.body_bytes, 0u);
    EXPECT_EQ(world_.core().Snapshot().bytes_in_flight, 0u);
  }
}

}  // namespace
}  // namespace hps::server
