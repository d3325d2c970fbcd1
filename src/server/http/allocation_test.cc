// After warm-up an infer request allocates nothing: this program counts every operator new of the
// process while requests go by. The model is the test's own, the client's side does not allocate.
#include <gtest/gtest.h>

#include <atomic>

#include "server/http/test_http_world.h"
#include "testing/memory/replaced_new.h"

namespace {

std::atomic<uint64_t> allocations = 0;

}  // namespace

inline void hps::BeforeAllocation() { allocations.fetch_add(1, std::memory_order_relaxed); }

namespace hps::server {
namespace {

// As FakeInference, without its conveniences that allocate.
class PlainInference final : public Inference {
 public:
  absl::Status Prepare(InferenceCall& call) override {
    OutputTensor& output = call.outputs.emplace_back();
    output.name = "ROWS";
    output.shape.dims[0] = static_cast<int64_t>(call.request.inputs[0].bytes.size() / 8);
    output.shape.dim_count = 1;
    output.byte_count = call.request.inputs[0].bytes.size() * 16;
    call.model_version = "1";
    return absl::OkStatus();
  }
  void Run(InferenceCall& call) override {
    std::memset(call.outputs[0].data, 1, call.outputs[0].byte_count);
    call.OnDone(absl::OkStatus());
  }
  void Cancel(InferenceCall&) override {}
  bool HasRoom() const override { return true; }
  Duration TimeFor(Duration timeout) const override { return timeout; }
  absl::Status ReserveBytes(uint64_t, Admission::Reservation*) override { return absl::OkStatus(); }
};

class AllocationTest : public HttpWorld {
 protected:
  AllocationTest() { parts_.inference = &plain_; }

  // Allocations during `count` requests, after as many to warm up.
  uint64_t CountFor(const std::string& request, size_t count) {
    const auto client = Connect();
    const HttpReply first = client->Ask(request);
    EXPECT_EQ(first.code, 200) << first.body;
    const size_t answer_bytes = first.head.size() + 2 + first.body.size();
    std::vector<char> to(1 << 20);
    uint64_t before = 0;
    for (size_t i = 0; i < 2 * count; ++i) {
      if (i == count) before = allocations.load();
      EXPECT_TRUE(client->Send(request));
      for (size_t received = 0; received < answer_bytes;) {
        const ssize_t step = recv(client->fd(), to.data(), to.size(), 0);
        if (step <= 0) return UINT64_MAX;
        received += static_cast<size_t>(step);
      }
    }
    return allocations.load() - before;
  }

  PlainInference plain_;
};

TEST_F(AllocationTest, BinaryRequestsAllocateNothing) {
  EXPECT_EQ(CountFor(BinaryInfer(std::vector<int64_t>(1024, 1)), 1000), 0u);
}

TEST_F(AllocationTest, RequestsLargerThanTheInputBufferAllocateNothing) {
  EXPECT_EQ(CountFor(BinaryInfer(std::vector<int64_t>(20'000, 1)), 200), 0u);
}

TEST_F(AllocationTest, KeysInJsonAllocateNothing) {
  EXPECT_EQ(
      CountFor(JsonInfer("[1,2,3]", "3", R"(,"parameters":{"binary_data_output":true})"), 1000),
      0u);
}

TEST_F(AllocationTest, TheCounterCounts) {
  const uint64_t before = allocations.load();
  const auto one = std::make_unique<int>(1);
  EXPECT_EQ(allocations.load(), before + 1);
}

}  // namespace
}  // namespace hps::server
