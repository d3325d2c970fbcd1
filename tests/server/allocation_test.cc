// After warm-up the server's core allocates nothing for a call, whichever convention it uses, alone
// or in a batch. This program counts every operator new.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/core/test_server_world.h"
#include "server/core/test_watched_models.h"
#include "testing/memory/counted_new.h"

namespace hps::server {
namespace {

class ServerAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.config().l2.preload = 1.0;
    world_.config().server.lookups = 1;
    world_.ImportAll({{"model/user", 2000, 16}, {"model/item", 2000, 8}});
    world_.OpenStore();
    watch_ = std::make_unique<WatchedModels>(world_.store().models());
    world_.Start(*watch_);
    for (Key key = 0; key < 1000; ++key) keys_.push_back(key);
    unaligned_.resize(keys_.size() * sizeof(Key) + 1);
    std::memcpy(unaligned_.data() + 1, keys_.data(), keys_.size() * sizeof(Key));
  }
  void TearDown() override { world_.Stop(); }

  // What a codec does for a request by table, its own memory left out.
  void AnswerByTable(TestCall& call) {
    call.request.model = "model";
    call.request.output_names.assign({"user", "user.status", "item"});
    call.AddTensor("user", Datatype::kInt64, shape_, std::as_bytes(std::span(keys_)));
    call.AddTensor("item", Datatype::kInt64, shape_, std::span(unaligned_).subspan(1));
    ASSERT_TRUE(call.Answer(world_.inference()).ok());
    call.Reset();
  }
  void AnswerByKeys(TestCall& call) {
    call.request.model = "model";
    call.AddTensor("KEYS", Datatype::kInt64, shape_, std::as_bytes(std::span(keys_)));
    call.AddTensor("NUMKEYS", Datatype::kInt32, counts_shape_, std::as_bytes(std::span(counts_)));
    ASSERT_TRUE(call.Answer(world_.inference()).ok());
    call.Reset();
  }

  const std::vector<int64_t> shape_ = {1, 1000};
  const std::vector<int64_t> counts_shape_ = {1, 2};
  const std::vector<int32_t> counts_ = {400, 600};
  ServerWorld world_;
  std::unique_ptr<WatchedModels> watch_;
  std::vector<Key> keys_;
  std::vector<std::byte> unaligned_;
};

TEST_F(ServerAllocationTest, ACallAllocatesNothing) {
  TestCall call;
  for (int i = 0; i < 3; ++i) {
    AnswerByTable(call);
    AnswerByKeys(call);
  }
  const uint64_t before = allocations_here;
  for (int i = 0; i < 100; ++i) {
    AnswerByTable(call);
    AnswerByKeys(call);
  }
  EXPECT_EQ(allocations_here, before);
}

TEST_F(ServerAllocationTest, CallsOfABatchAllocateNothing) {
  TestCall first;
  TestCall second;
  TestCall third;
  const auto prepare = [&](TestCall& call) {
    call.request.model = "model";
    call.AddTensor("user", Datatype::kInt64, shape_, std::as_bytes(std::span(keys_)));
    ASSERT_TRUE(call.Start(world_.inference()).ok());
  };
  size_t nested_in = 0;
  watch_->set_hook([&](WatchedModels::Look& look) {
    if (look.number != nested_in) return;
    prepare(second);
    prepare(third);
  });
  uint64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 3) before = allocations_here;
    nested_in = watch_->look_count() + 1;
    prepare(first);
    ASSERT_TRUE(second.is_done() && third.is_done());
    for (TestCall* call : {&first, &second, &third}) call->Reset();
  }
  // The watch copies its hook for every lookup: one allocation, and nothing else.
  EXPECT_EQ(allocations_here - before, 2u * 97);
  EXPECT_EQ(watch_->look_count(), 200u) << "two calls were one lookup";
}

}  // namespace
}  // namespace hps::server
