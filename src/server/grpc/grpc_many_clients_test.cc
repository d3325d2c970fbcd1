// Clients that vanish in the middle of an answer, and thousands of silent clients: other clients
// are not affected, and the server keeps nothing of them.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "testing/await.h"

namespace hps::server {
namespace {

const std::string kInferPath = "/inference.GRPCInferenceService/ModelInfer";
constexpr size_t kKeys = 2000;
constexpr size_t kConnections = 2000;

std::string InferOf(size_t n) {
  return Field(1, "m") + Input("t", "INT64", {static_cast<int64_t>(n)}) + Field(7, Keys(n));
}

class GrpcManyClientsTest : public testing::Test {
 protected:
  GrpcManyClientsTest() {
    world_.Import("m/t", kKeys, 8);
    world_.Start();
    auto server = StartGrpcServer(world_.Parts(), "127.0.0.1:0");
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<Http2Client> Connect(
      const std::vector<std::pair<uint16_t, uint32_t>>& settings = {}) {
    auto client = std::make_unique<Http2Client>(server_->address());
    EXPECT_TRUE(client->Begin(settings));
    return client;
  }
  void ExpectAnswer(Http2Client& client, uint32_t id = 1) {
    client.Call(id, kInferPath, InferOf(3));
    EXPECT_EQ(client.Await(id).code(), 0) << client.answer(id).message();
  }
  // Waits until there are so many connections and no request holds anything.
  testing::AssertionResult AwaitConnections(uint64_t count) {
    return AwaitCondition([&] {
      const ServerStatistics now = world_.core().Snapshot();
      return now.grpc.connections == count && now.bytes_in_flight == 0 && now.keys_in_flight == 0;
    });
  }

  ServerWorld world_;
  std::unique_ptr<ProtocolServer> server_;
};

TEST_F(GrpcManyClientsTest, ThoseThatVanishInTheMiddleOfAnAnswerLeaveNothing) {
  for (int i = 0; i < 12; ++i) {
    // The window admits a part of the answer.
    const auto client = Connect({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1000}});
    client->gives_windows = false;
    client->Call(1, kInferPath, InferOf(kKeys));
    Http2Frame frame;
    while (client->answer(1).data.size() < 1000 && client->Receive(&frame)) continue;
    EXPECT_EQ(client->answer(1).data.size(), 1000u);
    EXPECT_GT(world_.core().Snapshot().bytes_in_flight, kKeys * 8) << "the rest of it";
    const linger reset{.l_onoff = 1, .l_linger = 0};
    if (i % 3 == 1) setsockopt(client->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    if (i % 3 == 2) shutdown(client->fd(), SHUT_WR);
    // The connection ends here.
    if (i % 3 == 2) {
      ASSERT_TRUE(AwaitConnections(0));
    }
  }
  EXPECT_TRUE(AwaitConnections(0));
  ExpectAnswer(*Connect());
}

TEST_F(GrpcManyClientsTest, TwoThousandThatSayNothingHoldNothing) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GE(files.rlim_max, 2 * kConnections + 200) << "descriptors that this test needs";
  std::vector<std::unique_ptr<Http2Client>> clients;
  for (size_t i = 0; i < kConnections; ++i) clients.push_back(Connect());
  ASSERT_TRUE(AwaitConnections(kConnections));
  ExpectAnswer(*Connect());
  for (size_t i = 0; i < clients.size(); i += 97) ExpectAnswer(*clients[i]);
  clients.clear();
  EXPECT_TRUE(AwaitConnections(0));
}

}  // namespace
}  // namespace hps::server
