// Memory that can't be had costs the request that wanted it, and nothing else: each allocation of a
// request fails once; the request is refused, everything is given back, and the next one is
// answered. Not so inside RocksDB, which no exception may cross: its threads are left alone. This
// program replaces operator new.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/core/test_server_world.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/http/test_http_world.h"
#include "server/net/connection_server.h"
#include "server/pages/pages.h"
#include "testing/memory/failing_new.h"

namespace hps::server {
namespace {

// More allocations than any request of these tests makes.
constexpr int64_t kAllocationsMax = 5000;

class NoMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.ImportAll({{"m/user", 2000, 4}, {"m/item", 2000, 8}});
    world_.Start();
  }
  void TearDown() override {
    FailAllocation(0);
    failing_threads = nullptr;
    server_.reset();
    world_.Stop();
  }

  // The rows of a table that the server says it has; false when one of them is wrong.
  static bool AreRows(const std::string& table, const std::vector<Key>& keys,
                      std::span<const std::byte> rows, std::span<const std::byte> statuses) {
    const size_t row_bytes = rows.size() / keys.size();
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = rows.subspan(i * row_bytes, row_bytes);
      const auto status = static_cast<KeyStatus>(statuses[i]);
      const bool is_right = status == KeyStatus::kDefaultDegraded
                                ? ServerWorld::IsZero(row)
                                : ServerWorld::IsRow("m/" + table, keys[i], 1, row);
      if (!is_right) return false;
    }
    return true;
  }

  void ExpectAllGivenBack() {
    const Deadline deadline = DeadlineAfter(RealClock(), std::chrono::seconds(30));
    const auto in_flight = [&] {
      return world_.core().engine().admission().bytes_in_flight() +
             world_.core().engine().admission().keys_in_flight() +
             world_.core().engine().admission().calls_in_flight();
    };
    while (in_flight() != 0 && RealClock().Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(in_flight(), 0u);
  }

  // New sessions and nothing in L2, so that the next request makes everything anew.
  void LoadAnew() {
    ASSERT_TRUE(world_.core().repository().Unload("m").ok());
    ASSERT_TRUE(world_.core().repository().Load("m").ok());
  }

  // What a codec does, with allocation `number` of the core failing. False: there were not as many.
  bool AskCore(int64_t number) {
    TestCall call;
    call.request.model = "m";
    call.request.output_names = {"user", "user.status"};
    call.AddKeys("user", keys_);
    std::vector<std::byte> memory(keys_.size() * 64);
    FailAllocation(number);
    may_fail_here = true;
    absl::Status status = world_.inference().Prepare(call);
    if (status.ok()) {
      call.outputs[0].data = memory.data();
      call.outputs[1].data = memory.data() + call.outputs[0].byte_count;
      status = call.RunPrepared(world_.inference());
    }
    may_fail_here = false;
    const bool failed = AllocationFailed();
    FailAllocation(0);
    if (status.ok()) {
      EXPECT_TRUE(AreRows("user", keys_, call.bytes(0), call.bytes(1)));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_TRUE(failed);
    }
    return failed;
  }

  void StartHttp() {
    pages_ = MakePages({.config = &world_.config(),
                        .store = &world_.store(),
                        .statistics = &world_.core(),
                        .repository = &world_.core().repository()});
    ProtocolParts parts = world_.Parts();
    parts.pages = pages_.get();
    auto server = StartHttpServer(parts, "127.0.0.1:0", HttpRole::kEverything);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    failing_threads = "hps-http";
  }
  void StartGrpc() {
    auto server = StartGrpcServer(world_.Parts(), "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    failing_threads = "hps-grpc";
  }

  // While the client stays: what is lent then would be for as long as that. For a moment there may
  // be something: of a connection that has just ended, or to read the client's end.
  void ExpectNothingLent() const {
    const BufferPool& pool = dynamic_cast<ConnectionServer&>(*server_).pool();
    const Deadline deadline = DeadlineAfter(RealClock(), std::chrono::seconds(30));
    while (pool.lent_bytes() > 0 && RealClock().Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(pool.lent_bytes(), 0u);
  }

  // Every allocation of a request fails once, from its connection on.
  void Sweep(const std::string& request, int code) {
    bool failed = true;
    size_t refused = 0;
    for (int64_t number = 1; failed; ++number) {
      ASSERT_LT(number, kAllocationsMax);
      FailAllocation(number);
      {
        HttpClient client(server_->address());
        client.Send(request);
        client.EndSending();
        const HttpReply reply = client.Read();
        failed = AllocationFailed();
        FailAllocation(0);
        if (reply.code != code) {
          EXPECT_TRUE(failed) << reply.code << " " << reply.body;
          EXPECT_TRUE(reply.code == 503 || reply.code == 429 || reply.code == 0) << reply.code;
          if (reply.code != 0) ExpectNothingLent();  // while the server waits for the client's end
          ++refused;
        }
      }
      ExpectAllGivenBack();
      EXPECT_EQ(HttpClient(server_->address()).Ask(request).code, code);
    }
    EXPECT_GT(refused, 0u) << "of a new connection at least";
  }

  // One call of a connection of its own: its code, -1 where the connection or the call was cut.
  int Call(const std::string& path, const std::string& messages) {
    Http2Client client(server_->address());
    client.Begin();
    client.Settle();  // the server's windows hold
    client.SendFields(1, CallFields(path));
    client.SendData(1, messages);
    const int code = client.Await(1).code();
    if (code == 8) ExpectNothingLent();  // while the connection goes on
    return code;
  }
  // How many were refused: calls that come later find the memory of others.
  size_t SweepGrpc(const std::string& path, const std::string& messages, int code = 0) {
    bool failed = true;
    size_t refused = 0;
    for (int64_t number = 1; failed && number < kAllocationsMax; ++number) {
      FailAllocation(number);
      const int got = Call(path, messages);
      failed = AllocationFailed();
      FailAllocation(0);
      if (got != code) {
        EXPECT_TRUE(failed) << got;
        EXPECT_TRUE(got == 8 || got == -1) << got;
        ++refused;
      }
      ExpectAllGivenBack();
      EXPECT_EQ(Call(path, messages), code);
    }
    EXPECT_FALSE(failed);
    return refused;
  }

  static std::string Infer(const std::string& json, std::string_view fields = "") {
    return Post("/v2/models/m/infer", json, fields);
  }

  const std::vector<Key> keys_ = {1, 5, 1999, 7};
  ServerWorld world_;
  std::unique_ptr<PageSource> pages_;
  std::unique_ptr<ProtocolServer> server_;
};

TEST_F(NoMemoryTest, EachAllocationOfACallMayFail) {
  bool failed = true;
  for (int64_t number = 1; failed; ++number) {
    ASSERT_LT(number, kAllocationsMax);
    LoadAnew();
    failed = AskCore(number);
    ExpectAllGivenBack();
    EXPECT_FALSE(AskCore(kAllocationsMax)) << "the next one is answered";
    ExpectAllGivenBack();
  }
}

TEST_F(NoMemoryTest, EachAllocationOfAnHttpRequestMayFail) {
  StartHttp();
  Sweep(Infer(R"({"inputs":[{"name":"user","datatype":"INT64","shape":[2],"data":[1,7]}]})"), 200);
  const std::vector<int64_t> many(20'000, 3);
  const std::string json = absl::StrCat(
      R"({"inputs":[{"name":"item","datatype":"INT64","shape":[20000],)",
      R"("parameters":{"binary_data_size":160000}}],"parameters":{"binary_data_output":true}})");
  Sweep(Infer(json + std::string(AsText(std::as_bytes(std::span(many)))),
              absl::StrCat("Inference-Header-Content-Length: ", json.size(), "\r\n")),
        200);
  // What is refused says why, and that takes memory too.
  Sweep(Infer(R"({"inputs":[{"name":"uses","datatype":"INT64","shape":[1],"data":[1]}]})"), 404);
  Sweep(Infer(R"({"inputs":[{"name":"user","datatype":"INT64","shape":[2],"data":[1]}]})"), 400);
  Sweep(Get("/v2/models/m/stats"), 200);
  Sweep(Get("/api/lookup?table=m/user&key=7"), 200);  // one at a time: none may stay begun
}

TEST_F(NoMemoryTest, EachAllocationOfAGrpcCallMayFail) {
  StartGrpc();
  const std::string service = "/inference.GRPCInferenceService/";
  const std::string keys(AsText(std::as_bytes(std::span(keys_))));
  const std::string request = Field(1, "m") + Input("user", "INT64", {std::ssize(keys_)});
  EXPECT_GT(SweepGrpc(service + "ModelInfer", Framed(request + Field(7, keys))), 0u);
  const std::string many(160'000, '\0');
  SweepGrpc(service + "ModelInfer",
            Framed(Field(1, "m") + Input("item", "INT64", {20'000}) + Field(7, many)));
  SweepGrpc(service + "ModelStreamInfer",
            Framed(request + Field(7, keys)) + Framed(request + Field(7, keys)));
  // What is refused says why, and that takes memory too.
  SweepGrpc(service + "ModelInfer", Framed(Field(1, "n")), 5);
  SweepGrpc(service + "ModelMetadata", Framed(Field(1, "m")));
}

}  // namespace
}  // namespace hps::server
