#include "inference/batch_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hps/lookup_session.h"
#include "inference/test_planned_model.h"
#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a lookup of the test finds: called before it answers, which may move the clock and so on.
struct Script {
  std::function<absl::Status(const HostLookupRequest&)> on_lookup = [](const HostLookupRequest&) {
    return absl::OkStatus();
  };
  bool finds_rows = true;
  std::vector<size_t> sizes{};  // requests of each lookup
};

// A row of one float is its key, or 0 where it is not found.
class ScriptedSession final : public LookupSession {
 public:
  explicit ScriptedSession(Script& script) : script_(script) {}
  absl::StatusOr<TableIndex> FindTable(std::string_view) const override { return TableIndex{0}; }
  std::span<const TableSpec> tables() const override { return {}; }
  size_t output_row_bytes(TableIndex) const override { return sizeof(float); }
  absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) override {
    script_.sizes.push_back(request.queries.size());
    const absl::Status scripted = script_.on_lookup(request);
    if (!scripted.ok()) return scripted;
    const KeyStatus status = script_.finds_rows ? KeyStatus::kHitL2 : KeyStatus::kDefaultDegraded;
    for (const HostTableQuery& query : request.queries) {
      for (size_t i = 0; i < query.keys.size(); ++i) {
        const float row = script_.finds_rows ? static_cast<float>(query.keys[i]) : 0;
        std::memcpy(query.rows.data() + i * sizeof(row), &row, sizeof(row));
        if (query.status.data() != nullptr) query.status[i] = status;
        ++counts->by_status[static_cast<size_t>(status)];
      }
    }
    return absl::OkStatus();
  }
  absl::Status Lookup(const DeviceLookupRequest&, LookupCounts*) override {
    return absl::UnimplementedError("not asked here");
  }

 private:
  Script& script_;
};

class ScriptedModel final : public PlannedModel {
 public:
  explicit ScriptedModel(Script& script)
      : PlannedModel({{.name = "m/t", .dim = 1}}), script_(script) {}
  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(const SessionOptions&) override {
    return std::make_unique<ScriptedSession>(script_);
  }

 private:
  Script& script_;
};

// For one key, whose row and status it wants.
struct Asked final : PlannedRequest {
  explicit Asked(Key wanted, Deadline deadline = kNoDeadline) : key(wanted) {
    lookup_deadline = deadline;
    plan.parts.push_back({.table = 0,
                          .keys = std::as_bytes(std::span(&key, 1)).data(),
                          .key_count = 1,
                          .row_bytes = sizeof(float),
                          .table_rows = {.output = 0}});
    plan.key_count = 1;
    output.byte_count = sizeof(float);
    output.data = std::as_writable_bytes(std::span(&row, 1)).data();
    plan.outputs = {&output, 1};
  }
  // Clears the plan at once, as the owner of a request does that uses it again.
  void Finish(const absl::Status& status) override {
    ended.push_back(status);
    plan.Clear();
  }

  bool has_row() const {
    return ended.size() == 1 && ended[0].ok() && row == static_cast<float>(key);
  }
  absl::StatusCode code() const {
    return ended.size() == 1 ? ended[0].code() : absl::StatusCode::kUnknown;
  }

  const Key key;
  float row = -1;
  OutputTensor output{};
  std::vector<absl::Status> ended{};
};

class BatchCoreTest : public ::testing::Test {
 protected:
  void Use(LateAnswers late_answers) {
    core_ = std::make_unique<BatchCore>(BatchCore::Options{
        .slot = 0, .keys_max = 16, .late_answers = late_answers, .clock = &clock_});
  }
  BatchCoreTest() : version_(*ModelVersion::Make(std::make_unique<ScriptedModel>(script_), {})) {
    Use(LateAnswers::kDegraded);
  }

  void Run(const std::vector<Asked*>& asked) {
    RequestList<> requests;
    for (Asked* request : asked) requests.Push(request);
    core_->Run(*version_, requests, [&](Duration time, const LookupCounts& counts) {
      times_.push_back(time);
      for (const uint64_t count : counts.by_status) keys_ += count;
    });
  }
  // The first lookup takes `time` and finds nothing; later ones find all.
  void LoseTheFirst(Duration time) {
    script_.on_lookup = [this, time](const HostLookupRequest&) {
      script_.finds_rows = script_.sizes.size() > 1;
      if (!script_.finds_rows) clock_.Advance(time);
      return absl::OkStatus();
    };
  }

  Script script_;
  ManualClock clock_;
  ModelVersionRef version_;
  std::unique_ptr<BatchCore> core_;
  std::vector<Duration> times_;  // as it was told of each lookup
  uint64_t keys_ = 0;
};

TEST_F(BatchCoreTest, OneLookupAnswersAllIntoTheirOwnOutputs) {
  Asked a(3), b(4), c(5);
  Run({&a, &b, &c});
  for (const Asked* asked : {&a, &b, &c}) EXPECT_TRUE(asked->has_row()) << asked->key;
  EXPECT_THAT(script_.sizes, ElementsAre(3));
  EXPECT_EQ(keys_, 3U);
}

TEST_F(BatchCoreTest, AShortDeadlineEndsInTimeAndTheOthersAreLookedUpAgain) {
  Asked hasty(3, clock_.Now() + milliseconds(50));
  Asked patient(4, clock_.Now() + milliseconds(90));
  LoseTheFirst(milliseconds(50));
  const auto lose = script_.on_lookup;
  script_.on_lookup = [&](const HostLookupRequest& request) {
    EXPECT_EQ(request.timeout, script_.sizes.size() == 1 ? milliseconds(50) : milliseconds(40));
    EXPECT_EQ(hasty.ended.size(), script_.sizes.size() - 1) << "it ends before the second lookup";
    return lose(request);
  };
  Run({&hasty, &patient});
  EXPECT_THAT(script_.sizes, ElementsAre(2, 1));
  EXPECT_THAT(times_, ElementsAre(milliseconds(50), Duration()));
  EXPECT_EQ(hasty.code(), absl::StatusCode::kOk);
  EXPECT_EQ(hasty.row, 0) << "a default row";
  EXPECT_TRUE(hasty.is_late);
  EXPECT_TRUE(patient.has_row());
  EXPECT_FALSE(patient.is_late);
}

TEST_F(BatchCoreTest, LateAnswersAreErrorsWhereConfigured) {
  Use(LateAnswers::kError);
  Asked late(3, clock_.Now() + milliseconds(50));
  LoseTheFirst(milliseconds(50));
  Run({&late});
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(late.is_late);
}

// Waiting would not have helped.
TEST_F(BatchCoreTest, RowsThatALevelLacksBeforeTheDeadlineAreNoError) {
  Use(LateAnswers::kError);
  Asked degraded(3, clock_.Now() + milliseconds(50));
  LoseTheFirst(milliseconds(49));
  Run({&degraded});
  EXPECT_EQ(degraded.code(), absl::StatusCode::kOk);
  EXPECT_FALSE(degraded.is_late);
  EXPECT_THAT(script_.sizes, ElementsAre(1));
}

TEST_F(BatchCoreTest, WhatWasNotToWaitIsNeverLate) {
  Use(LateAnswers::kError);
  Asked near(3, Deadline::min());
  LoseTheFirst(Duration());
  Run({&near});
  EXPECT_EQ(near.code(), absl::StatusCode::kOk);
  EXPECT_FALSE(near.is_late);
}

TEST_F(BatchCoreTest, ACancelledRequestLeavesItsLookupAndTheOthersGoOn) {
  Asked before(2), gone(3), patient(4);
  before.cancelled = true;
  script_.on_lookup = [&](const HostLookupRequest& request) {
    script_.finds_rows = script_.sizes.size() > 1;
    if (script_.finds_rows) return absl::OkStatus();
    core_->Interrupt(before);  // which is in no lookup
    EXPECT_FALSE(request.cancel->is_cancelled());
    gone.cancelled = true;
    core_->Interrupt(gone);
    EXPECT_TRUE(request.cancel->is_cancelled());
    return absl::OkStatus();
  };
  Run({&before, &gone, &patient});
  EXPECT_THAT(script_.sizes, ElementsAre(2, 1));
  for (const Asked* asked : {&before, &gone})
    EXPECT_EQ(asked->code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(patient.has_row());
}

TEST_F(BatchCoreTest, TheEndAnswersWithWhatThereIs) {
  Asked running(3), later(4);
  script_.on_lookup = [&](const HostLookupRequest& request) {
    core_->End();
    EXPECT_TRUE(request.cancel->is_cancelled());
    script_.finds_rows = false;
    return absl::OkStatus();
  };
  Run({&running});
  Run({&later});
  for (const Asked* asked : {&running, &later}) {
    EXPECT_EQ(asked->code(), absl::StatusCode::kOk);
    EXPECT_EQ(asked->row, 0);
    EXPECT_TRUE(asked->is_late);
  }
  EXPECT_THAT(script_.sizes, ElementsAre(1, 1));
}

TEST_F(BatchCoreTest, AFailedLookupEndsItsRequests) {
  Asked a(3), b(4);
  script_.on_lookup = [](const HostLookupRequest&) { return absl::InternalError("planted"); };
  Run({&a, &b});
  for (const Asked* asked : {&a, &b}) EXPECT_EQ(asked->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(times_.size(), 1U) << "it was a lookup nevertheless";
}

TEST_F(BatchCoreTest, AnExceptionEndsItsRequests) {
  Asked asked(3);
  script_.on_lookup = [](const HostLookupRequest& request) {
    (void)std::vector<int>().at(request.queries.size());
    return absl::OkStatus();
  };
  Run({&asked});
  ASSERT_EQ(asked.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(asked.ended[0].message()), HasSubstr("unexpected: vector"));
}

}  // namespace
}  // namespace hps
