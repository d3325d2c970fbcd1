// Data that a client sends before it learns that the server has ended the call or the connection.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/grpc_session.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "testing/await.h"

namespace hps::server {
namespace {

const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
const std::string kStreamInfer = "/inference.GRPCInferenceService/ModelStreamInfer";
const std::string kLive = "/inference.GRPCInferenceService/ServerLive";
constexpr size_t kMessageBytesMax = size_t{1} << 20;
constexpr size_t kPieceBytes = size_t{16} << 10;

class GrpcLateDataTest : public testing::Test {
 protected:
  GrpcLateDataTest() {
    world_.Import("m/t", 10, 8);
    world_.config().server.body_bytes_max = kMessageBytesMax;
    world_.config().server.body_timeout = std::chrono::minutes(10);  // thousands of calls begin
    world_.Start();
    gate_ = std::make_unique<GatedInference>(world_.inference());
    ProtocolParts parts = world_.Parts(gate_.get());
    parts.linger_timeout = std::chrono::hours(1);
    auto server = StartGrpcServer(parts, "127.0.0.1:0");
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<Http2Client>(server_->address());
    EXPECT_TRUE(client_->Begin());
    client_->Settle();
  }
  // A call with a message that is too long, as its first piece shows.
  void BeginTooLong(uint32_t id) {
    client_->SendFields(id, CallFields(kInfer));
    const std::string message = Framed(std::string(2 * kMessageBytesMax, 'x'));
    client_->SendData(id, message.substr(0, kPieceBytes), /*end=*/false);
    EXPECT_EQ(client_->Await(id).code(), 8) << client_->answer(id).message();
  }

  testing::AssertionResult AwaitNoConnections() {
    return AwaitCondition([&] { return world_.core().Snapshot().grpc.connections == 0; });
  }

  ServerWorld world_;
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<ProtocolServer> server_;
  std::unique_ptr<Http2Client> client_;
};

// Catches: the rest of refused messages taken for a flood, so that the connection ended with all
// its other calls.
TEST_F(GrpcLateDataTest, OfSeveralRefusedCallsIsNoFlood) {
  const std::string window(kStreamWindowBytes - kPieceBytes, 'x');
  for (const uint32_t first : {1u, 101u}) {
    for (uint32_t id = first; id < first + 8; id += 2) BeginTooLong(id);
    for (uint32_t id = first; id < first + 8; id += 2)
      EXPECT_TRUE(client_->SendData(id, window, /*end=*/false));
    client_->Call(first + 8, kLive, "");
    EXPECT_EQ(client_->Await(first + 8).code(), 0) << "the connection goes on";
  }
}

TEST_F(GrpcLateDataTest, WithoutEndEndsTheConnection) {
  BeginTooLong(1);
  const std::string window(kStreamWindowBytes, 'x');
  for (int i = 0; i < 1000 && client_->SendData(1, window, /*end=*/false); ++i) continue;
  client_->AwaitEnd();
}

// Catches: calls refused for lack of capacity that may have more header fields than other calls;
// and a few connections that take all calls, so that probes on another connection are refused.
TEST_F(GrpcLateDataTest, FieldsOfARefusedCallAreCutOffAndAProbeIsAnswered) {
  std::vector<std::unique_ptr<Http2Client>> clients;
  const std::string fields = PackFields(CallFields(kInfer));
  for (size_t calls = 0; calls < kGrpcCallsMax; calls += kConnectionCallsMax) {
    Http2Client& client = *clients.emplace_back(std::make_unique<Http2Client>(server_->address()));
    EXPECT_TRUE(client.Begin());
    client.Settle();
    std::string begun;
    for (uint32_t i = 0; i < kConnectionCallsMax; ++i)
      begun += Http2Frame{NGHTTP2_HEADERS, kEndFields, 2 * i + 1, fields}.bytes();
    ASSERT_TRUE(client.Send(begun));
    client.Send(Http2Frame{NGHTTP2_PING, 0, 0, "all read"});
    Http2Frame frame;
    while (client.acknowledged_pings() < 2 && client.Receive(&frame)) continue;
  }
  client_->Call(1, kLive, "");
  EXPECT_EQ(client_->Await(1).code(), 0) << "room that is kept for connections with few calls";
  constexpr uint32_t kNext = 2 * kConnectionCallsMax + 1;
  Http2Client& full = *clients.back();
  full.Call(kNext, kLive, "");
  EXPECT_EQ(full.Await(kNext).code(), 8) << "there is no room";
  std::string packed = fields;  // a field of the table, again and again: each costs a byte
  packed += std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'x');
  packed += std::string(12'000, '\xbe');
  full.Send(Http2Frame{NGHTTP2_HEADERS, kEndFields, kNext + 2, packed.substr(0, 16'384)});
  full.AwaitEnd();
}

// Catches: a server that waits for the client's end although it arrived with the last data.
TEST_F(GrpcLateDataTest, AClientThatHasEndedIsNotLingeredFor) {
  client_->Send(Http2Frame{NGHTTP2_SETTINGS, 0, 0, "12345"});
  EXPECT_GT(client_->AwaitEnd(), 0);
  EXPECT_EQ(send(client_->fd(), "late", 4, MSG_MORE | MSG_NOSIGNAL), 4);
  EXPECT_EQ(shutdown(client_->fd(), SHUT_WR), 0);
  EXPECT_TRUE(AwaitNoConnections());
}

// Catches: connections closed before the client had read the reason, while a cancelled call was
// still looked up.
TEST_F(GrpcLateDataTest, ACancelledCallKeepsNobodyFromReadingTheEnd) {
  gate_->Close();
  client_->Call(1, kInfer, Field(1, "m") + Input("t", "INT64", {3}) + Field(7, Keys(3)));
  client_->SendFields(3, CallFields(kStreamInfer));
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  client_->Send(Http2Frame{NGHTTP2_RST_STREAM, 0, 1, BigEndian(NGHTTP2_CANCEL, 4)});
  client_->Send(Http2Frame{NGHTTP2_SETTINGS, 0, 0, "12345"});
  EXPECT_GT(client_->AwaitEnd(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client_->Send("it is read, and thrown away"));
  gate_->Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client_->Send("it is read, and thrown away"));
  EXPECT_EQ(shutdown(client_->fd(), SHUT_WR), 0);
  EXPECT_TRUE(AwaitNoConnections());
}

}  // namespace
}  // namespace hps::server
