#include "server/core/inference_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "inference/model_version.h"
#include "server/core/batch_queue.h"
#include "server/core/call_state.h"
#include "server/core/store_repository.h"
#include "server/core/test_server_world.h"
#include "server/core/test_watched_models.h"
#include "testing/await.h"
#include "testing/fakes/manual_executor.h"

namespace hps::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint32_t kDim = 4;
constexpr size_t kRowBytes = kDim * sizeof(float);

// One thread plays all the others: see WatchedModels.
class InferenceEngineTest : public ::testing::Test {
 protected:
  using Look = WatchedModels::Look;

  void SetUp() override {
    world_.ImportAll({{"m/t", 100, kDim}, {"n/t", 100, kDim}});
    world_.config().server.lookups = 1;
  }
  void TearDown() override {
    calls_.clear();
    world_.Stop();  // the watch goes before the world does
  }

  void Start() {
    world_.OpenStore();
    watch_ = std::make_unique<WatchedModels>(world_.store().models());
    world_.Start(*watch_, {.clock = &clock_, .with_timer = false});
  }

  // A call for keys of table "t" of a model. It lives until the test ends.
  TestCall& NewCall(const std::string& model, const std::vector<Key>& keys,
                    Duration timeout = Duration()) {
    calls_.push_back(std::make_unique<Owned>());
    Owned& owned = *calls_.back();
    owned.model = model;
    owned.keys = keys;
    owned.call.request.model = owned.model;
    owned.call.request.timeout = timeout;
    owned.call.request.arrival = clock_.Now();
    owned.call.request.output_names = {"t", "t.status"};
    owned.call.AddKeys("t", owned.keys);
    return owned.call;
  }
  // Runs `call`; while its lookup runs, `meanwhile` does.
  void RunWith(TestCall& call, const std::function<void()>& meanwhile) {
    const size_t number = watch_->look_count() + 1;
    watch_->set_hook([=](Look& look) {
      if (look.number == number) meanwhile();
    });
    EXPECT_TRUE(call.Start(engine()).ok());
  }

  static bool HasRows(const TestCall& call, const std::string& table, Version version = 1) {
    for (const auto& input : call.request.inputs) {
      for (size_t i = 0; i < input.bytes.size() / sizeof(Key); ++i) {
        Key key = 0;
        std::memcpy(&key, &input.bytes[i * sizeof(Key)], sizeof(key));
        if (!ServerWorld::IsRow(table, key, version,
                                call.bytes(0).subspan(i * kRowBytes, kRowBytes)))
          return false;
      }
    }
    return call.status().ok() && call.is_done();
  }
  static bool AllDegraded(const TestCall& call) {
    for (const std::byte status : call.bytes(1)) {
      if (status != std::byte{static_cast<uint8_t>(KeyStatus::kDefaultDegraded)}) return false;
    }
    return ServerWorld::IsZero(call.bytes(0));
  }

  InferenceEngine& engine() { return world_.core().engine(); }
  ModelServerStatistics Statistics(const std::string& model) {
    for (const ModelServerStatistics& statistics : world_.core().Snapshot().models) {
      if (statistics.model == model) return statistics;
    }
    return {};
  }
  uint64_t CountOf(const std::vector<std::pair<std::string, uint64_t>>& counts,
                   const std::string& name) {
    for (const auto& [known, count] : counts) {
      if (known == name) return count;
    }
    return 0;
  }

  struct Owned {
    std::string model;
    std::vector<Key> keys;
    TestCall call;
  };

  ServerWorld world_;
  ManualClock clock_;
  std::unique_ptr<WatchedModels> watch_;
  std::vector<std::unique_ptr<Owned>> calls_;
};

TEST_F(InferenceEngineTest, CallsThatWaitAreAnsweredByOneLookUpIntoTheirOwnOutputs) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& b = NewCall("m", {2, 3});
  TestCall& c = NewCall("m", {4});
  RunWith(a, [&] {
    ASSERT_TRUE(b.Start(engine()).ok());
    ASSERT_TRUE(c.Start(engine()).ok());
    EXPECT_FALSE(b.is_done());
    EXPECT_EQ(Statistics("m").queue_depth, 2u);
    watch_->set_hook([&](Look& look) {
      ASSERT_EQ(look.request->queries.size(), 2u);
      EXPECT_EQ(look.request->queries[0].rows.data(), b.outputs[0].data);
      EXPECT_EQ(look.request->queries[0].keys.size(), 2u);
      EXPECT_EQ(look.request->queries[1].rows.data(), c.outputs[0].data);
      EXPECT_TRUE(a.is_done());
    });
  });
  for (const TestCall* call : {&a, &b, &c}) EXPECT_TRUE(HasRows(*call, "m/t"));
  const ModelServerStatistics statistics = Statistics("m");
  EXPECT_EQ(statistics.requests, 3u);
  EXPECT_EQ(statistics.keys, 4u);
  EXPECT_EQ(statistics.batches, 2u);
  EXPECT_THAT(statistics.batch_sizes, ElementsAre(Pair(1, 1), Pair(2, 1)));
  EXPECT_EQ(statistics.queue_depth, 0u);
}

TEST_F(InferenceEngineTest, ALookUpTakesAtMostItsKeys) {
  world_.config().server.batch_keys_max = 4;
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& b = NewCall("m", {1, 2, 3});
  TestCall& c = NewCall("m", {4});
  TestCall& d = NewCall("m", {5});
  TestCall& large = NewCall("m", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::vector<size_t> keys;
  RunWith(a, [&] {
    for (TestCall* call : {&b, &c, &d, &large}) ASSERT_TRUE(call->Start(engine()).ok());
    watch_->set_hook([&](Look& look) {
      size_t sum = 0;
      for (const HostTableQuery& query : look.request->queries) sum += query.keys.size();
      keys.push_back(sum);
    });
  });
  EXPECT_THAT(keys, ElementsAre(4, 1, 4, 4, 1)) << "b and c, d, the large one in pieces";
  for (const TestCall* call : {&a, &b, &c, &d, &large}) EXPECT_TRUE(HasRows(*call, "m/t"));
  EXPECT_EQ(Statistics("m").batches, 4u);
}

TEST_F(InferenceEngineTest, ModelsTakeTurns) {
  world_.config().server.batch_keys_max = 1;
  Start();
  TestCall& a = NewCall("m", {1});
  std::vector<std::string> order;
  RunWith(a, [&] {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(NewCall("m", {i}).Start(engine()).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(NewCall("n", {i}).Start(engine()).ok());
    watch_->set_hook([&](Look& look) { order.push_back(look.model); });
  });
  EXPECT_THAT(order, ElementsAre("m", "n", "m", "n", "m"));
}

TEST_F(InferenceEngineTest, ACallWhoseDeadlinePassesInTheQueueIsNotBegun) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& late = NewCall("m", {2}, milliseconds(10));
  TestCall& patient = NewCall("m", {3});
  RunWith(a, [&] {
    ASSERT_TRUE(late.Start(engine()).ok());
    ASSERT_TRUE(patient.Start(engine()).ok());
    clock_.Advance(milliseconds(10));
  });
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.done_count(), 1);
  EXPECT_TRUE(HasRows(patient, "m/t"));
  EXPECT_EQ(watch_->look_count(), 2u);
  EXPECT_EQ(CountOf(world_.core().Snapshot().deadlines_exceeded, "queue"), 1u);
  EXPECT_EQ(Statistics("m").requests_failed, 1u);
}

TEST_F(InferenceEngineTest, ACallThatIsLateFromTheStartIsNotBegun) {
  Start();
  TestCall& call = NewCall("m", {1}, milliseconds(1));
  clock_.Advance(milliseconds(2));
  EXPECT_EQ(call.Answer(engine()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(watch_->look_count(), 0u);
}

// Without a timer it would hear of its deadline only when the lookup before it ends.
TEST_F(InferenceEngineTest, ALateCallDoesNotWaitForTheLookUpBeforeIt) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& late = NewCall("m", {2}, milliseconds(10));
  RunWith(a, [&] {
    ASSERT_TRUE(late.Start(engine()).ok());
    EXPECT_EQ(engine().next_due(), clock_.Now() + milliseconds(10));
    engine().EndDue();
    EXPECT_FALSE(late.is_done());
    clock_.Advance(milliseconds(10));
    engine().EndDue();
    EXPECT_TRUE(late.is_done());
  });
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(InferenceEngineTest, AShortDeadlineDegradesNobodyElse) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& hasty = NewCall("m", {2}, milliseconds(50));
  TestCall& patient = NewCall("m", {3});
  std::vector<size_t> sizes;
  RunWith(a, [&] {
    ASSERT_TRUE(hasty.Start(engine()).ok());
    ASSERT_TRUE(patient.Start(engine()).ok());
    watch_->set_hook([&](Look& look) {
      sizes.push_back(look.request->queries.size());
      if (sizes.size() == 1) {
        EXPECT_EQ(look.request->timeout, milliseconds(50)) << "the earliest deadline ends it";
        look.no_time = true;
        clock_.Advance(milliseconds(50));
      } else {
        EXPECT_TRUE(hasty.is_done());
        EXPECT_EQ(look.request->queries[0].rows.data(), patient.outputs[0].data);
      }
    });
  });
  EXPECT_THAT(sizes, ElementsAre(2, 1));
  EXPECT_TRUE(hasty.status().ok());
  EXPECT_TRUE(AllDegraded(hasty));
  EXPECT_TRUE(HasRows(patient, "m/t"));
  EXPECT_EQ(CountOf(world_.core().Snapshot().deadlines_exceeded, "lookup"), 1u);
}

TEST_F(InferenceEngineTest, LateAnswersAreErrorsWhereConfigured) {
  world_.config().server.late_answers = LateAnswers::kError;
  Start();
  TestCall& call = NewCall("m", {1}, milliseconds(50));
  watch_->set_hook([&](Look& look) {
    look.no_time = true;
    clock_.Advance(milliseconds(50));
  });
  EXPECT_EQ(call.Answer(engine()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(CountOf(world_.core().Snapshot().deadlines_exceeded, "lookup"), 1u);
}

TEST_F(InferenceEngineTest, ACancelledCallThatWaitsEndsAtOnce) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& gone = NewCall("m", {2, 3});
  TestCall& patient = NewCall("m", {4});
  TestCall& other = NewCall("n", {5});
  RunWith(a, [&] {
    ASSERT_TRUE(other.Start(engine()).ok());
    for (TestCall* call : {&gone, &patient}) ASSERT_TRUE(call->Start(engine()).ok());
    engine().Cancel(gone);
    EXPECT_TRUE(gone.is_done());
    gone.Reset();
    EXPECT_EQ(engine().admission().keys_in_flight(), 3u);
    EXPECT_EQ(Statistics("m").queue_depth, 1u);
    engine().Cancel(patient);
    EXPECT_EQ(Statistics("m").queue_depth, 0u);
    engine().Cancel(patient);  // in vain, and no harm
  });
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(patient.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(patient.done_count(), 1);
  EXPECT_TRUE(HasRows(other, "n/t")) << "its model keeps its turn";
  EXPECT_EQ(watch_->look_count(), 2u);
  EXPECT_EQ(Statistics("m").requests_failed, 2u);
}

// The cancelled call ends even if a level hangs; the others of its lookup are looked up again.
TEST_F(InferenceEngineTest, ACancelledCallLeavesItsLookUpAndTheOthersGoOn) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& gone = NewCall("m", {2});
  TestCall& patient = NewCall("m", {3});
  std::vector<size_t> sizes;
  RunWith(a, [&] {
    ASSERT_TRUE(gone.Start(engine()).ok());
    ASSERT_TRUE(patient.Start(engine()).ok());
    watch_->set_hook([&](Look& look) {
      sizes.push_back(look.request->queries.size());
      if (sizes.size() > 1) {
        EXPECT_TRUE(gone.is_done());
        return;
      }
      ASSERT_NE(look.request->cancel, nullptr);
      EXPECT_FALSE(look.request->cancel->is_cancelled());
      engine().Cancel(a);  // which has been answered: it is in no lookup any more
      EXPECT_FALSE(look.request->cancel->is_cancelled());
      engine().Cancel(gone);
      EXPECT_TRUE(look.request->cancel->is_cancelled());
    });
  });
  EXPECT_THAT(sizes, ElementsAre(2, 1));
  EXPECT_TRUE(HasRows(a, "m/t"));
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(HasRows(patient, "m/t"));
  EXPECT_EQ(CountOf(world_.core().Snapshot().deadlines_exceeded, "lookup"), 0u);
}

TEST_F(InferenceEngineTest, ACallThatIsCancelledBeforeItRunsIsNotLookedUp) {
  Start();
  TestCall& call = NewCall("m", {1});
  ASSERT_TRUE(call.Prepare(engine()).ok());
  engine().Cancel(call);
  engine().Run(call);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(watch_->look_count(), 0u);
  call.ResetAll();
  EXPECT_EQ(engine().admission().calls_in_flight(), 0u);
}

// A large call is looked up in pieces: none begins when it has been given up.
TEST_F(InferenceEngineTest, ACancelledCallOfManyPiecesStopsAfterOne) {
  world_.config().server.batch_keys_max = 2;
  Start();
  TestCall& call = NewCall("m", {1, 2, 3, 4, 5, 6});
  RunWith(call, [&] { engine().Cancel(call); });
  EXPECT_EQ(call.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(watch_->look_count(), 1u);
}

TEST_F(InferenceEngineTest, TheEndAnswersAllCallsWithWhatThereIs) {
  for (const LateAnswers late : {LateAnswers::kDegraded, LateAnswers::kError}) {
    world_.config().server.late_answers = late;
    Start();
    TestCall& running = NewCall("m", {1});
    TestCall& waiting = NewCall("m", {2});
    TestCall& prepared = NewCall("m", {3});
    RunWith(running, [&] {
      ASSERT_TRUE(waiting.Start(engine()).ok());
      ASSERT_TRUE(prepared.Prepare(engine()).ok());
      engine().EndCalls();
      EXPECT_TRUE(waiting.is_done());
    });
    EXPECT_EQ(waiting.status().code(), absl::StatusCode::kDeadlineExceeded);
    if (late == LateAnswers::kDegraded) {
      EXPECT_TRUE(running.status().ok());
      EXPECT_TRUE(AllDegraded(running));
    } else {
      EXPECT_EQ(running.status().code(), absl::StatusCode::kDeadlineExceeded);
    }
    engine().Run(prepared);
    EXPECT_EQ(prepared.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(NewCall("m", {4}).Start(engine()).code(), absl::StatusCode::kUnavailable);
    calls_.clear();
    world_.Stop();
    world_.CloseStore();
  }
}

TEST_F(InferenceEngineTest, ATimeoutOfZeroTakesWhatIsNear) {
  world_.config().lookup.timeout = Duration();
  Start();
  TestCall& call = NewCall("m", {1});
  EXPECT_TRUE(call.Answer(engine()).ok()) << call.status();
  EXPECT_TRUE(AllDegraded(call));
  EXPECT_EQ(watch_->look_count(), 1u);
}

TEST_F(InferenceEngineTest, AFailedLookUpFailsItsCallsOnly) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& b = NewCall("m", {2});
  TestCall& c = NewCall("n", {3});
  RunWith(a, [&] {
    for (TestCall* call : {&b, &c}) ASSERT_TRUE(call->Start(engine()).ok());
    watch_->set_hook([&](Look& look) {
      if (look.model == "m") look.failure = absl::InternalError("planted");
    });
  });
  EXPECT_TRUE(HasRows(a, "m/t"));
  EXPECT_EQ(b.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(HasRows(c, "n/t"));
  EXPECT_EQ(Statistics("m").requests_failed, 1u);
}

TEST_F(InferenceEngineTest, CallsWaitForMoreOnlyWhileALookUpRuns) {
  world_.config().server.lookups = 2;
  world_.config().server.batch_wait = microseconds(100);
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& b = NewCall("m", {2});
  TestCall& c = NewCall("m", {3});
  TestCall& d = NewCall("m", {4});
  RunWith(a, [&] {
    ASSERT_TRUE(b.Start(engine()).ok());
    EXPECT_FALSE(b.is_done()) << "a slot is free, but it may wait";
    clock_.Advance(microseconds(60));
    ASSERT_TRUE(c.Start(engine()).ok());
    EXPECT_FALSE(b.is_done());
    EXPECT_EQ(engine().next_due(), clock_.Now() + microseconds(40));
    clock_.Advance(microseconds(40));
    engine().EndDue();
    EXPECT_TRUE(b.is_done());
    EXPECT_TRUE(c.is_done());
    EXPECT_EQ(watch_->look_count(), 2u) << "one lookup for both";
    ASSERT_TRUE(d.Start(engine()).ok());
    EXPECT_FALSE(d.is_done());
  });
  EXPECT_TRUE(d.is_done()) << "nothing runs any more: it need not wait";
  for (const TestCall* call : {&a, &b, &c, &d}) EXPECT_TRUE(HasRows(*call, "m/t"));
}

TEST_F(InferenceEngineTest, WhatIsBeyondTheCapacityIsRefusedAtOnce) {
  world_.config().server.keys_in_flight_max = 4;
  Start();
  TestCall& a = NewCall("m", {1, 2, 3});
  TestCall& b = NewCall("m", {4, 5});
  TestCall& c = NewCall("m", {6});
  RunWith(a, [&] {
    EXPECT_EQ(b.Start(engine()).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(c.Start(engine()).ok());
    EXPECT_EQ(engine().admission().keys_in_flight(), 4u);
  });
  EXPECT_TRUE(HasRows(c, "m/t"));
  EXPECT_EQ(b.Start(engine()).code(), absl::StatusCode::kResourceExhausted)
      << "the answers have not been sent yet";
  a.Reset();
  c.Reset();
  EXPECT_TRUE(b.Answer(engine()).ok());
  EXPECT_EQ(CountOf(world_.core().Snapshot().refused, "capacity"), 2u);
  b.Reset();
  EXPECT_EQ(engine().admission().keys_in_flight(), 0u);
  EXPECT_EQ(engine().admission().bytes_in_flight(), 0u);
  EXPECT_EQ(engine().admission().calls_in_flight(), 0u);
  TestCall& never = NewCall("m", {1, 2, 3, 4, 5});
  EXPECT_EQ(never.Start(engine()).code(), absl::StatusCode::kOutOfRange);
}

// Otherwise, under overload, every call would be answered just too late. The store's own clock
// measures the time that a call has left by the test's clock. So that time is seconds, which is
// enough on a busy machine.
TEST_F(InferenceEngineTest, AQueueThatTakesHalfOfACallsTimeRefusesIt) {
  Start();
  TestCall& a = NewCall("m", {1});
  TestCall& b = NewCall("m", {2}, seconds(100));
  RunWith(a, [&] {
    ASSERT_TRUE(b.Start(engine()).ok());
    clock_.Advance(seconds(50));
    EXPECT_TRUE(NewCall("m", {3}, seconds(100)).Start(engine()).ok());
    clock_.Advance(seconds(1));
    EXPECT_EQ(NewCall("m", {4}, seconds(100)).Start(engine()).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(NewCall("m", {5}, seconds(200)).Start(engine()).ok());
    EXPECT_TRUE(NewCall("n", {6}, seconds(100)).Start(engine()).ok());
  });
  EXPECT_TRUE(HasRows(b, "m/t"));
}

TEST_F(InferenceEngineTest, ACallIsAnsweredFromTheVersionThatItWasPreparedFor) {
  Start();
  TestCall& running = NewCall("m", {1, 2, 3});
  TestCall& waiting = NewCall("m", {4});
  TestCall& later = NewCall("m", {5});
  RunWith(running, [&] {
    ASSERT_TRUE(waiting.Start(engine()).ok());
    world_.Import("m/t", 100, kDim, 2);
    ASSERT_TRUE(world_.core().repository().Load("m").ok());
    ASSERT_TRUE(later.Start(engine()).ok());
    watch_->set_hook({});
  });
  EXPECT_TRUE(HasRows(running, "m/t", 1));
  EXPECT_TRUE(HasRows(waiting, "m/t", 1));
  EXPECT_TRUE(HasRows(later, "m/t", 2));
  EXPECT_EQ(running.model_version, "1");
  EXPECT_EQ(waiting.model_version, "1");
  EXPECT_EQ(later.model_version, "2");
  EXPECT_EQ(Statistics("n").version, "1") << "the others have not changed";
}

TEST_F(InferenceEngineTest, AnUnloadWaitsForTheCallsThatRun) {
  Start();
  TestCall& running = NewCall("m", {1});
  TestCall& refused = NewCall("m", {2});
  TestCall& other = NewCall("n", {3});
  std::thread unload;
  absl::Status unloaded = absl::UnknownError("not done");
  RunWith(running, [&] {
    watch_->set_hook({});
    unload = std::thread([&] { unloaded = world_.core().repository().Unload("m"); });
    ASSERT_TRUE(AwaitCondition([&] {
      return world_.store().models().List().at(0).condition == ModelCondition::kUnloaded;
    }));
    EXPECT_EQ(refused.Start(engine()).code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(other.Start(engine()).ok());
  });
  unload.join();
  if (HasFatalFailure()) return;
  EXPECT_TRUE(unloaded.ok()) << unloaded;
  EXPECT_TRUE(HasRows(running, "m/t"));
  EXPECT_TRUE(HasRows(other, "n/t"));
  ASSERT_TRUE(world_.core().repository().Load("m").ok());
  EXPECT_TRUE(HasRows((refused.Start(engine()).IgnoreError(), refused), "m/t"));
  EXPECT_EQ(refused.model_version, "1") << "the same rows as before";
}

TEST_F(InferenceEngineTest, SlotsUseTheDevicesInTurn) {
  world_.config().server.lookups = 3;
  world_.OpenStore();
  watch_ = std::make_unique<WatchedModels>(world_.store().models());
  watch_->pretended_devices = {{.number = 4}, {.number = 7}};
  world_.Start(*watch_, {.clock = &clock_, .with_timer = false});
  std::vector<int> devices;
  // Each lookup but the third brings the next call.
  watch_->set_hook([&](Look& look) {
    devices.push_back(look.device);
    if (devices.size() == 3) return;
    EXPECT_TRUE(NewCall("m", {2}).Answer(engine()).ok());
  });
  EXPECT_TRUE(NewCall("m", {1}).Answer(engine()).ok());
  EXPECT_THAT(devices, ElementsAre(4, 7, 4));
}

// Catches: a server that uses one device only while one call comes at a time.
TEST_F(InferenceEngineTest, OneCallAtATimeUsesTheDevicesInTurn) {
  world_.config().server.lookups = 3;
  world_.OpenStore();
  watch_ = std::make_unique<WatchedModels>(world_.store().models());
  watch_->pretended_devices = {{.number = 4}, {.number = 7}};
  world_.Start(*watch_, {.clock = &clock_, .with_timer = false});
  std::vector<int> devices;
  watch_->set_hook([&](Look& look) { devices.push_back(look.device); });
  for (Key key = 1; key <= 5; ++key) EXPECT_TRUE(NewCall("m", {key}).Answer(engine()).ok());
  EXPECT_THAT(devices, ElementsAre(4, 7, 4, 7, 4));
}

TEST_F(InferenceEngineTest, RefusalsAreCountedByReason) {
  Start();
  TestCall& call = NewCall("mm", {1});
  const absl::Status unknown = call.Start(engine());
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("did you mean 'm'"));
  TestCall& version = NewCall("m", {1});
  version.request.version = "7";
  EXPECT_EQ(version.Start(engine()).code(), absl::StatusCode::kNotFound);
  version.request.version = "1";
  EXPECT_TRUE(version.Answer(engine()).ok());
  TestCall& content = NewCall("m", {1});
  content.request.inputs[0].datatype = Datatype::kFp32;
  EXPECT_EQ(content.Start(engine()).code(), absl::StatusCode::kInvalidArgument);
  const ServerStatistics statistics = world_.core().Snapshot();
  EXPECT_EQ(CountOf(statistics.bad_requests, "unknown"), 2u);
  EXPECT_EQ(CountOf(statistics.bad_requests, "content"), 1u);
  EXPECT_EQ(engine().admission().calls_in_flight(), 1u);
}

TEST_F(InferenceEngineTest, StagesAddUp) {
  Start();
  TestCall& call = NewCall("m", {1});
  clock_.Advance(milliseconds(1));  // decoding
  watch_->set_hook([&](Look&) { clock_.Advance(milliseconds(2)); });
  ASSERT_TRUE(call.Answer(engine()).ok());
  clock_.Advance(milliseconds(4));  // sending
  call.Reset();
  const ModelServerStatistics statistics = Statistics("m");
  const auto sum_ms = [&](Stage stage) {
    const LatencyHistogram& histogram = statistics.stages[static_cast<size_t>(stage)];
    EXPECT_EQ(histogram.count, 1u);
    return histogram.sum_ns / 1'000'000;
  };
  EXPECT_EQ(sum_ms(Stage::kDecode), 1u);
  EXPECT_EQ(sum_ms(Stage::kQueue), 0u);
  EXPECT_EQ(sum_ms(Stage::kLookup), 2u);
  EXPECT_EQ(sum_ms(Stage::kEncode), 4u);
  EXPECT_EQ(sum_ms(Stage::kTotal), 7u);
}

}  // namespace
}  // namespace hps::server
