#include "server/pages/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ProblemsTest : public testing::Test {
 protected:
  ProblemsTest() {
    snapshot_.models[1].state = ModelState::kReady;
    snapshot_.store.l3.free_bytes = uint64_t{4} << 30;
    config_.store.free_bytes_min = uint64_t{1} << 30;
  }

  Config config_;
  Snapshot snapshot_ = FullSnapshot(&config_);
};

TEST_F(ProblemsTest, AHealthyServerHasNone) {
  EXPECT_THAT(ProblemsOf(snapshot_), IsEmpty());
  snapshot_.models[1].state = ModelState::kLoading;
  snapshot_.store.updates.stream.problem = "of a server without a stream";
  EXPECT_THAT(ProblemsOf(snapshot_), IsEmpty());
}

TEST_F(ProblemsTest, AModelThatIsNotServed) {
  snapshot_.models[1].state = ModelState::kUnavailable;
  EXPECT_THAT(ProblemsOf(snapshot_), ElementsAre("model n is not served: no \"tables\""));
}

TEST_F(ProblemsTest, ADiskThatFillsUp) {
  snapshot_.store.l3.free_bytes = (uint64_t{4} << 30) - 1;
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("the store's disk is nearly full: 3.9 GiB free; with less than 1 GiB the "
                          "store takes no writes"));
  snapshot_.store.l3.free_bytes = 1023;
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("the store's disk is full: 1023 B free; with less than 1 GiB the store "
                          "takes no writes"));
}

TEST_F(ProblemsTest, ADiskWithErrors) {
  snapshot_.store.l3.writable = false;
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("level 3 cannot be written because of a disk error; its rows are read"));
}

TEST_F(ProblemsTest, AStoreThatIsServedReadOnlyNeedsNoRoom) {
  snapshot_.store.l3.writable = false;
  snapshot_.store.l3.read_only = true;
  snapshot_.store.l3.free_bytes = 0;
  EXPECT_THAT(ProblemsOf(snapshot_), ElementsAre());
}

TEST_F(ProblemsTest, GpusThatDoNotAnswer) {
  snapshot_.store.devices = {{.device = 0, .up = false}, {.device = 1, .up = true}};
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("level 1: GPU 0 does not answer; levels 2 and 3 answer in its place"));
  snapshot_.store.devices.clear();
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("level 1: no GPU answers; levels 2 and 3 answer in its place"));
}

TEST_F(ProblemsTest, ALevelOnRedisThatIsBypassed) {
  for (const char* address : {"a:1", "b:1", "c:1", "d:1", "e:1"})
    snapshot_.store.l2_remote.nodes.push_back({.address = address, .bypassed = true});
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("level 2: Redis a:1, Redis b:1, Redis c:1 and 2 more bypassed; level 3 "
                          "answers in its place"));
  snapshot_.store.l2_remote.nodes.clear();
  snapshot_.store.tables[0].l2_bypassed = true;
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("level 2: table m/t bypassed; level 3 answers in its place"));
}

TEST_F(ProblemsTest, AStreamThatIsDeadOrHasLostChanges) {
  StreamStatistics& stream = snapshot_.store.updates.stream;
  stream.enabled = true;
  EXPECT_THAT(ProblemsOf(snapshot_), IsEmpty());
  stream.problem = "no broker answers";
  stream.stale_tables = {"m/t"};
  EXPECT_THAT(ProblemsOf(snapshot_),
              ElementsAre("the update stream cannot be read: no broker answers",
                          "the update stream has lost changes of m/t: import again"));
}

}  // namespace
}  // namespace hps::server
