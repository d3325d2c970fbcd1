// Memory that can't be had costs the request that wanted it, and nothing else: each allocation of a
// request fails once; the request is refused, everything is given back, and the next one is
// answered. Not so inside RocksDB, which no exception may cross: its threads are left alone. This
// program replaces operator new.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/core/test_server_world.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/http/test_http_world.h"
#include "server/net/connection_server.h"
#include "server/pages/pages.h"
#include "testing/await.h"
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

  void ExpectAllGivenBack() {
    const Admission& admission = world_.core().engine().admission();
    EXPECT_TRUE(AwaitCondition([&] {
      return admission.bytes_in_flight() + admission.keys_in_flight() +
                 admission.calls_in_flight() ==
             0;
    }));
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
    EXPECT_TRUE(AwaitCondition([&] { return pool.lent_bytes() == 0; }));
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
          EXPECT_TRUE(reply.code == 429 || reply.code == 0) << reply.code;
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

TEST_F(NoMemoryTest, EachAllocationOfAnHttpRequestMayFail) {
  StartHttp();
  Sweep(Infer(R"({"inputs":[{"name":"user","datatype":"INT64","shape":[2],"data":[1,7]}]})"), 200);
  // What is refused says why, and that takes memory too.
  Sweep(Infer(R"({"inputs":[{"name":"uses","datatype":"INT64","shape":[1],"data":[1]}]})"), 404);
  Sweep(Get("/api/lookup?table=m/user&key=7"), 200);  // one at a time: none may stay begun
}

TEST_F(NoMemoryTest, EachAllocationOfAGrpcCallMayFail) {
  StartGrpc();
  const std::string service = "/inference.GRPCInferenceService/";
  const std::string keys(AsText(std::as_bytes(std::span(keys_))));
  const std::string request = Field(1, "m") + Input("user", "INT64", {std::ssize(keys_)});
  EXPECT_GT(SweepGrpc(service + "ModelInfer", Framed(request + Field(7, keys))), 0u);
  SweepGrpc(service + "ModelStreamInfer",
            Framed(request + Field(7, keys)) + Framed(request + Field(7, keys)));
  // What is refused says why, and that takes memory too.
  SweepGrpc(service + "ModelInfer", Framed(Field(1, "n")), 5);
}

}  // namespace
}  // namespace hps::server
