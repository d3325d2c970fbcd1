// The ends of connections: an idle one, and a server that drains.
#include <chrono>
#include <thread>

#include "server/grpc/test_grpc_protocol.h"

namespace hps::server {
namespace {

using GrpcGoAwayTest = GrpcProtocolTest;

TEST_F(GrpcGoAwayTest, IdleConnectionsAreClosed) {
  config().idle_timeout = std::chrono::milliseconds(500);
  const auto client = ConnectAndCall(kTries);
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(client->last_stream(), 1);
}

TEST_F(GrpcGoAwayTest, ADrainEndsWhatIsIdleAndAnswersWhatIsNot) {
  const auto busy = Connect();
  const auto idle = Connect();
  idle->Call(1, kLive, "");
  EXPECT_EQ(idle->Await(1).code(), 0);
  gate_->Close();
  busy->Call(1, kInfer, InferRequest(7));
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  busy->SendFields(3, CallFields(kStream));
  std::thread draining([&] {
    EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(20))).ok());
  });
  EXPECT_EQ(idle->AwaitEnd(), NGHTTP2_NO_ERROR);
  shutdown(idle->fd(), SHUT_RDWR);
  gate_->Open();
  EXPECT_EQ(busy->Await(1).code(), 0);
  ExpectRows(busy->answer(1).data, 7);
  EXPECT_EQ(busy->AwaitEnd(), NGHTTP2_NO_ERROR);
  shutdown(busy->fd(), SHUT_RDWR);
  draining.join();
}

// A client may begin a call before it reads that the server drains.
TEST_F(GrpcGoAwayTest, ADrainAnswersTheCallsThatAreUnderWay) {
  linger_timeout_ = config().drain_timeout = std::chrono::hours(1);
  const auto client = Connect();
  client->acknowledges_pings = false;
  client->Call(1, kLive, "");
  EXPECT_EQ(client->Await(1).code(), 0);
  std::thread draining([&] {
    EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(20))).ok());
  });
  Http2Frame ping;
  while (client->Receive(&ping) && ping.type != NGHTTP2_PING) continue;
  EXPECT_EQ(client->last_stream(), 0x7fffffff);
  client->Call(3, kInfer, InferRequest(7));
  EXPECT_EQ(client->Await(3).code(), 0) << client->answer(3).message();
  ExpectRows(client->answer(3).data, 7);
  client->Send(Http2Frame{NGHTTP2_PING, 1, 0, ping.payload});
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(client->last_stream(), 3);
  shutdown(client->fd(), SHUT_RDWR);
  draining.join();
}

TEST_F(GrpcGoAwayTest, ADrainDoesNotWaitForAClientThatAnswersNoPings) {
  const auto client = Connect();
  client->acknowledges_pings = false;
  client->Call(1, kLive, "");
  EXPECT_EQ(client->Await(1).code(), 0);
  std::thread draining([&] {
    EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::minutes(1))).ok());
  });
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(client->last_stream(), 1);
  shutdown(client->fd(), SHUT_RDWR);
  draining.join();
}

TEST_F(GrpcGoAwayTest, AStreamWhoseClientHasSaidAllEndsWellInADrain) {
  const auto client = Connect();
  const auto idle = Connect();
  idle->Call(1, kLive, "");
  EXPECT_EQ(idle->Await(1).code(), 0);
  gate_->Close();
  client->SendFields(1, CallFields(kStream));
  client->SendData(1, Framed(InferRequest(7)));
  client->SendFields(3, CallFields(kStream));
  client->SendData(3, Framed(InferRequest(7)), /*end=*/false);
  ASSERT_TRUE(gate_->AwaitWaiting(2));
  std::thread draining([&] {
    EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(20))).ok());
  });
  EXPECT_EQ(idle->AwaitEnd(), NGHTTP2_NO_ERROR);  // the drain has begun
  shutdown(idle->fd(), SHUT_RDWR);
  gate_->Open();
  EXPECT_EQ(client->Await(1).code(), 0) << client->answer(1).message();
  EXPECT_EQ(client->Await(3).code(), 14) << client->answer(3).message();
  EXPECT_GT(client->answer(3).data.size(), 7 * kDim * sizeof(float)) << "its request is answered";
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_NO_ERROR);
  shutdown(client->fd(), SHUT_RDWR);
  draining.join();
}

}  // namespace
}  // namespace hps::server
