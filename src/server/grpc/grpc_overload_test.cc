// The order in which an overloaded server reads sockets and starts calls. No case depends on time.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/proto_infer_response.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/grpc_codec/wire_format.h"
#include "server/net/connection_server.h"
#include "server/net/test_overload_calls.h"
#include "server/net/test_packed.h"
#include "testing/await.h"

namespace hps::server {
namespace {

const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
const std::string kStream = "/inference.GRPCInferenceService/ModelStreamInfer";
const std::string kLive = "/inference.GRPCInferenceService/ServerLive";
constexpr uint32_t kDim = 8;
constexpr size_t kRows = 2000;

// The key of a request is its number.
std::string InferRequest(int64_t number, size_t key_count = 1) {
  const std::vector<int64_t> keys(key_count, number);
  return Field(1, "m") + Input("t", "INT64", {static_cast<int64_t>(key_count)}) +
         Field(7, AsText(std::as_bytes(std::span(keys))));
}

// The stream of a call on a connection that sends many calls.
uint32_t StreamOf(int64_t number) { return static_cast<uint32_t>(2 * number + 1); }

class GrpcOverloadTest : public testing::Test {
 protected:
  GrpcOverloadTest() : gate_(Started(world_)) {
    gate_.on_prepare = [this](const InferenceCall& call) { return calls_.OnPrepare(call); };
    gate_.on_run = [this](const InferenceCall& call) { calls_.OnRun(call); };
  }
  ~GrpcOverloadTest() override {
    clients_.clear();
    server_.reset();
  }

  static Inference& Started(ServerWorld& world) {
    world.Import("m/t", kRows, kDim);
    world.Start();
    return world.inference();
  }

  void Start(size_t thread_count) {
    config_ = world_.config().server;
    config_.threads = thread_count;
    // Long timeouts: incomplete calls and unread answers wait for the next step of the test.
    config_.body_timeout = config_.write_timeout = std::chrono::minutes(10);
    ProtocolParts parts = world_.Parts(&gate_);
    parts.config = &config_;
    auto server = StartGrpcServer(parts, "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // A connection on which one call was answered and nothing else was sent.
  std::unique_ptr<Http2Client> Connect(
      const std::vector<std::pair<uint16_t, uint32_t>>& settings = {}) {
    auto client = std::make_unique<Http2Client>(server_->address());
    EXPECT_TRUE(client->Begin(settings));
    client->gives_windows = false;
    client->Call(1, kLive, "");
    EXPECT_EQ(client->Await(1).code(), 0);
    client->Settle();
    return client;
  }

  // Keeps the server's only thread busy, and leaves calls 1 to `count` in their sockets.
  void SendWhileBusy(int64_t count) {
    Start(1);
    for (int64_t i = 0; i <= count; ++i) clients_.push_back(Connect());
    calls_.Hold([this] { clients_[0]->Call(3, kInfer, InferRequest(0)); });
    for (int64_t i = 1; i <= count; ++i) {
      clients_[static_cast<size_t>(i)]->Call(3, kInfer, InferRequest(i));
    }
  }

  // As SendWhileBusy, but all calls are in the socket of client 1.
  void SendOnOneConnection(int64_t count) {
    Start(1);
    for (int i = 0; i < 2; ++i) clients_.push_back(Connect());
    calls_.Hold([this] { clients_[0]->Call(3, kInfer, InferRequest(0)); });
    for (int64_t i = 1; i <= count; ++i) clients_[1]->Call(StreamOf(i), kInfer, InferRequest(i));
  }

  // True: RESOURCE_EXHAUSTED. False: the call was answered.
  static bool IsRefused(const Http2Client::Answer& answer) {
    EXPECT_TRUE(answer.code() == 0 || answer.code() == 8) << answer.message();
    return answer.code() == 8;
  }

  ServerWorld world_;
  GatedInference gate_;
  ServerConfig config_;
  std::unique_ptr<ProtocolServer> server_;
  std::vector<std::unique_ptr<Http2Client>> clients_;
  OverloadCalls calls_;
};

TEST_F(GrpcOverloadTest, InTheOrderInWhichTheyCameWhileAllAreInTime) {
  SendWhileBusy(5);
  calls_.Release();
  for (const auto& client : clients_) EXPECT_EQ(client->Await(3).code(), 0);
  EXPECT_EQ(calls_.prepared(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  calls_.ExpectWaits(5);
}

// Catches: threads that pass all waiting calls to the thread that drives the connection. That
// thread then prepares all calls and looks up none.
TEST_F(GrpcOverloadTest, CallsOfOneConnectionAreLookedUpAsTheyHaveTheirTurns) {
  constexpr int64_t kCalls = 900;
  for (const int threads : {2, 4}) {
    SCOPED_TRACE(threads);
    std::atomic<int> under_way = 0;
    std::atomic<int> most = 0;
    gate_.on_prepare = [&](const InferenceCall&) {
      const int now = ++under_way;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      return absl::OkStatus();
    };
    gate_.on_run = [&](const InferenceCall&) { --under_way; };
    Start(static_cast<size_t>(threads));
    auto client = Connect();
    for (int64_t i = 1; i <= kCalls; ++i) client->Call(StreamOf(i), kInfer, InferRequest(i));
    for (int64_t i = 1; i <= kCalls; ++i) EXPECT_EQ(client->Await(StreamOf(i)).code(), 0);
    client.reset();
    server_.reset();
    // Each thread may have taken one more turn before it saw that enough are held, and may be about
    // to look up one call. One more call begins without a turn.
    EXPECT_LE(most, 3 * threads + 1);
  }
}

TEST_F(GrpcOverloadTest, TheNewestFirstWhereTheOldestAreTooLate) {
  calls_.ExpectNewestFirst([this](int64_t all) { SendWhileBusy(all); },
                           [this](int64_t number) {
                             return IsRefused(clients_[static_cast<size_t>(number)]->Await(3));
                           });
}

TEST_F(GrpcOverloadTest, CallsOfOneConnectionAreInOrderWhileAllAreInTime) {
  SendOnOneConnection(5);
  calls_.Release();
  for (int64_t i = 1; i <= 5; ++i) EXPECT_EQ(clients_[1]->Await(StreamOf(i)).code(), 0);
  EXPECT_EQ(calls_.prepared(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

// Each call counts by itself, as if it had a connection of its own.
TEST_F(GrpcOverloadTest, OfOneConnectionTheNewestCallsAreFirstWhereTheOldestAreTooLate) {
  calls_.ExpectNewestFirst(
      [this](int64_t all) { SendOnOneConnection(all); },
      [this](int64_t number) { return IsRefused(clients_[1]->Await(StreamOf(number))); });
}

// Catches: a server that reads everything before it answers anything. Under overload it never
// answers.
TEST_F(GrpcOverloadTest, ReadsAndLooksUpInTurns) {
  constexpr int64_t kClients = 40;
  std::vector<uint64_t> read;  // when a call was looked up
  gate_.on_run = [&](const InferenceCall& call) {
    calls_.OnRun(call);
    ServerStatistics statistics;
    world_.core().counters().Fill(&statistics);
    read.push_back(statistics.grpc.requests);
  };
  Start(1);
  for (int64_t i = 0; i <= kClients; ++i) clients_.push_back(Connect());
  // Connections in the middle of a call are not idle.
  for (int64_t i = 1; i <= kClients; ++i) {
    Http2Client& client = *clients_[static_cast<size_t>(i)];
    client.SendFields(3, CallFields(kInfer));
    client.Call(5, kLive, "");
    EXPECT_EQ(client.Await(5).code(), 0);
  }
  calls_.Hold([this] { clients_[0]->Call(3, kInfer, InferRequest(0)); });
  for (int64_t i = 1; i <= kClients; ++i) {
    Http2Client& client = *clients_[static_cast<size_t>(i)];
    client.Call(7, kLive, "");
    client.SendData(3, Framed(InferRequest(i)));
  }
  calls_.Release();
  for (const auto& client : clients_) EXPECT_EQ(client->Await(3).code(), 0);
  server_.reset();
  ASSERT_EQ(read.size(), static_cast<size_t>(kClients) + 1);
  for (size_t i = 1; i < read.size(); ++i) EXPECT_LE(read[i], read[0] + 2 * i) << i;
}

// Two calls have had their turns. The first one still holds its turn, so that no other call gets
// one although a thread is free.
class GrpcNoTurnsTest : public GrpcOverloadTest {
 protected:
  GrpcNoTurnsTest() {
    begun_.Reset(1);
    held_.Reset(1);
    gate_.has_room = false;
    gate_.on_prepare = [this](const InferenceCall&) {
      if (has_first_.exchange(true)) return absl::OkStatus();
      begun_.CountDown();
      EXPECT_TRUE(AwaitLatch(held_));
      return absl::OkStatus();
    };
    gate_.time_for = [](Duration timeout) {
      return timeout > Duration::zero() ? timeout : Duration(std::chrono::milliseconds(20));
    };
  }
  ~GrpcNoTurnsTest() override { LetGo(); }

  // A connection with an open call, which is read at once and not in turns.
  std::unique_ptr<Http2Client> ConnectBusy() {
    std::unique_ptr<Http2Client> client = Connect();
    client->SendFields(3, CallFields(kStream));
    client->Call(5, kLive, "");
    EXPECT_EQ(client->Await(5).code(), 0);
    return client;
  }
  void HoldTurns() {
    Start(2);
    client_ = ConnectBusy();
    holder_ = ConnectBusy();
    const std::string patient = InferRequest(1) + Timeout(std::chrono::hours(1));
    std::string calls;
    for (const uint32_t id : {7u, 9u, 11u}) {
      calls += Http2Frame{NGHTTP2_HEADERS, kEndFields, id, PackFields(CallFields(kInfer))}.bytes() +
               Http2Frame{NGHTTP2_DATA, kEndStream, id, Framed(patient)}.bytes();
    }
    ASSERT_TRUE(holder_->Send(calls));
    EXPECT_TRUE(AwaitLatch(begun_));
    // Waits until the second call holds the other turn, so that no other client can get it.
    const auto& server = dynamic_cast<const ConnectionServer&>(*server_);
    ASSERT_TRUE(AwaitCondition([&] { return !server.MayHoldTurn(); }));
  }
  void LetGo() {
    if (!is_let_go_) held_.CountDown();
    is_let_go_ = true;
  }
  void Release() {
    LetGo();
    gate_.has_room = true;
    for (const uint32_t id : {7u, 9u, 11u}) EXPECT_EQ(holder_->Await(id).code(), 0);
  }
  static std::string Timeout(std::chrono::microseconds timeout) {
    return Field(4, Parameter("timeout", Number(2, static_cast<uint64_t>(timeout.count()))));
  }

  bool is_let_go_ = false;
  std::atomic<bool> has_first_ = false;
  Latch begun_;
  Latch held_;
  std::unique_ptr<Http2Client> holder_;
  std::unique_ptr<Http2Client> client_;
};

// Catches: calls without a timeout that waited for their turn forever.
TEST_F(GrpcNoTurnsTest, EachWaitHasAnEnd) {
  HoldTurns();
  if (HasFatalFailure()) return;
  client_->Call(7, kInfer, InferRequest(1));
  client_->Call(9, kInfer, InferRequest(1) + Timeout(std::chrono::hours(1)));
  client_->Call(11, kInfer, InferRequest(1) + Timeout(std::chrono::milliseconds(30)));
  auto fields = CallFields(kInfer);
  fields.emplace_back("grpc-timeout", "40m");
  const std::string patient = Framed(InferRequest(1) + Timeout(std::chrono::hours(1)));
  // In one piece, because the deadline must not pass between the two frames.
  client_->Send(Http2Frame{NGHTTP2_HEADERS, kEndFields, 13, PackFields(fields)}.bytes() +
                Http2Frame{NGHTTP2_DATA, kEndStream, 13, patient}.bytes());
  for (const uint32_t id : {7u, 11u, 13u}) {
    EXPECT_EQ(client_->Await(id).code(), 4);
    EXPECT_EQ(client_->answer(id).message(),
              "the call's deadline passed before its request was read");
  }
  Release();
  EXPECT_EQ(client_->Await(9).code(), 0) << "it has the time";
}

TEST_F(GrpcNoTurnsTest, OfAStreamTheErrorSaysWhichRequestItWas) {
  HoldTurns();
  if (HasFatalFailure()) return;
  auto fields = CallFields(kStream);
  client_->SendFields(7, fields);
  fields.emplace_back("grpc-encoding", "gzip");
  client_->SendFields(9, fields);
  const std::string message = InferRequest(1, kRows) + Field(3, "id-1");
  client_->SendData(7, Framed(message), /*end=*/false);
  const std::string packed_message = Field(1, "m") + Field(3, "id-1") + message;
  client_->SendData(9, Framed(Packed(packed_message), 1), /*end=*/false);
  const std::string refusal = Framed(
      StreamErrorMessage("the call's deadline passed before its request was read", "m", "id-1"));
  Http2Frame frame;
  for (const uint32_t id : {7u, 9u}) {
    while (client_->answer(id).data.size() < refusal.size() && client_->Receive(&frame)) continue;
    EXPECT_EQ(client_->answer(id).data, refusal);
  }
  Release();
  const size_t before = client_->answer(7).data.size();
  client_->SendData(7, Framed(InferRequest(1) + Timeout(std::chrono::hours(1))));
  EXPECT_EQ(client_->Await(7).code(), 0) << "the stream goes on";
  EXPECT_GT(client_->answer(7).data.size(), before + kDim * sizeof(float));
}

// Catches: errors that unpack the message again, and read names from its old memory.
TEST_F(GrpcOverloadTest, OfAPackedRequestTheErrorHasTheIdWhereverItIs) {
  Start(1);
  const auto client = Connect();
  auto fields = CallFields(kStream);
  fields.emplace_back("grpc-encoding", "gzip");
  uint32_t stream = 1;
  for (const size_t zeros : {size_t{0}, size_t{100} << 10, size_t{30} << 20, size_t{40} << 20}) {
    SCOPED_TRACE(zeros);
    const std::string contents(zeros, '\0');
    const std::string nameless = Input("t", "INT64", {1}) + Field(7, contents) + Field(3, "id-1");
    stream += 2;
    client->SendFields(stream, fields);
    client->SendData(stream, Framed(Packed(nameless), 1), /*end=*/false);
    client->SendData(stream, Framed(Packed(InferRequest(1)), 1));
    const Http2Client::Answer& answer = client->Await(stream);
    EXPECT_EQ(answer.code(), 0) << answer.message();
    EXPECT_NE(answer.data.find("id-1"), std::string::npos);
    EXPECT_GT(answer.data.size(), kDim * sizeof(float)) << "the stream goes on";
  }
}

TEST_F(GrpcOverloadTest, CallsThatAreGivenUpWhileTheyWaitHaveNoTurn) {
  SendOnOneConnection(5);
  for (const int64_t given_up : {2, 4, 5}) {
    clients_[1]->Send(
        Http2Frame{NGHTTP2_RST_STREAM, 0, StreamOf(given_up), BigEndian(NGHTTP2_CANCEL, 4)});
  }
  calls_.Release();
  for (const int64_t i : {1, 3}) EXPECT_EQ(clients_[1]->Await(StreamOf(i)).code(), 0);
  clients_[1]->Call(StreamOf(6), kInfer, InferRequest(6));
  EXPECT_EQ(clients_[1]->Await(StreamOf(6)).code(), 0);
  EXPECT_EQ(calls_.prepared(), (std::vector<int64_t>{0, 1, 3, 6}));
}

// Catches: waiting or slow requests that take the memory that answers need.
TEST_F(GrpcOverloadTest, LargeRequestsThatWaitLeaveRoomForAnswersAndSmallOnes) {
  constexpr uint64_t kBytesMax = 1 << 20;
  constexpr size_t kLargeBytes = 64 << 10;  // size of the buffer for such a message
  world_.config().server.bytes_in_flight_max = kBytesMax;
  Start(2);
  const auto slow = Connect();
  // Too long for the next smaller buffer, in whatever pieces it arrives.
  const std::string begun =
      Framed(std::string(kLargeBytes - 100, 'x')).substr(0, kLargeBytes / 2 + 1);
  constexpr uint32_t kMany = 3 * kBytesMax / kLargeBytes;
  for (uint32_t i = 1; i <= kMany; ++i) {
    slow->SendFields(StreamOf(i), CallFields(kInfer));
    slow->SendData(StreamOf(i), begun, /*end=*/false);
  }
  // Not always the last messages are refused: one that arrives in small pieces needs two buffers
  // while it grows.
  const auto refused = [&slow] {
    uint32_t count = 0;
    for (uint32_t i = 1; i <= kMany; ++i) {
      const Http2Client::Answer& answer = slow->answer(StreamOf(i));
      count += answer.ended;
      EXPECT_EQ(answer.code(), answer.ended ? 8 : -1);
    }
    return count;
  };
  constexpr uint32_t kRefusedMin = kMany - kBytesMax / kLargeBytes;
  Http2Frame frame;
  while (refused() < kRefusedMin && slow->Receive(&frame)) continue;
  EXPECT_GE(refused(), kRefusedMin);
  const auto client = Connect();  // a probe
  constexpr size_t kKeys = 1900;
  client->Call(3, kInfer, InferRequest(7, kKeys));
  EXPECT_EQ(client->Await(3).code(), 0) << client->answer(3).message();
  EXPECT_GT(client->answer(3).data.size(), kKeys * kDim * sizeof(float));
}

// A call that waits for a thread must not depend on an event of its socket: there is none while the
// socket is neither readable nor writable.
TEST_F(GrpcOverloadTest, CallsAreLookedUpThoughTheirClientTakesNoAnswer) {
  Start(2);
  constexpr uint32_t kWindow = 1 << 30;
  constexpr size_t kCalls = 400;
  const auto client = Connect({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow}});
  client->Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(kWindow, 4)});
  for (size_t i = 0; i < kCalls; ++i) {
    client->Call(StreamOf(static_cast<int64_t>(i) + 1), kInfer, InferRequest(7, kRows));
  }
  ASSERT_TRUE(AwaitCondition([&] { return calls_.prepared().size() >= kCalls; }));
  EXPECT_EQ(calls_.prepared().size(), kCalls);
  for (size_t i = 0; i < kCalls; ++i)
    EXPECT_EQ(client->Await(StreamOf(static_cast<int64_t>(i) + 1)).code(), 0);
}

TEST_F(GrpcOverloadTest, ConnectionsThatGoWhileTheirCallsWaitAreForgotten) {
  Start(3);
  gate_.has_room = false;
  for (int round = 0; round < 20; ++round) {
    const auto stays = Connect();
    for (int64_t i = 1; i <= 10; ++i) stays->Call(StreamOf(i), kInfer, InferRequest(7));
    const auto goes = Connect();
    for (int64_t i = 1; i <= 10; ++i) goes->Call(StreamOf(i), kInfer, InferRequest(7));
    shutdown(goes->fd(), SHUT_RDWR);
    for (int64_t i = 1; i <= 10; ++i) EXPECT_EQ(stays->Await(StreamOf(i)).code(), 0);
  }
}

TEST_F(GrpcOverloadTest, AnswersProbesWhileThereIsNoRoom) {
  Start(2);
  for (int i = 0; i < 50; ++i) clients_.push_back(Connect());
  gate_.has_room = false;
  for (const auto& client : clients_) client->Call(3, kInfer, InferRequest(7));
  for (int i = 0; i < 5; ++i) Connect();
  gate_.has_room = true;
  for (const auto& client : clients_) EXPECT_EQ(client->Await(3).code(), 0);
}

TEST_F(GrpcOverloadTest, AnswersGoOnWhileThereIsNoRoom) {
  Start(2);
  constexpr size_t kKeys = 1000;
  const auto slow = Connect({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 100}});
  slow->Call(3, kInfer, InferRequest(7, kKeys));
  Http2Frame frame;
  while (slow->answer(3).data.size() < 100 && slow->Receive(&frame)) continue;
  gate_.has_room = false;
  for (int i = 0; i < 50; ++i) {
    clients_.push_back(Connect());
    clients_.back()->Call(3, kInfer, InferRequest(7));
  }
  slow->Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 3, BigEndian(1 << 20, 4)});
  EXPECT_EQ(slow->Await(3).code(), 0);
  EXPECT_GT(slow->answer(3).data.size(), kKeys * kDim * sizeof(float));
  for (const auto& client : clients_) EXPECT_EQ(client->Await(3).code(), 0);
}

TEST_F(GrpcOverloadTest, ClientsThatGoWhileTheyWaitAreForgotten) {
  Start(3);
  gate_.has_room = false;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Http2Client>> clients;
    for (size_t i = 0; i < 10; ++i) {
      clients.push_back(Connect());
      clients.back()->Call(3, kInfer, InferRequest(7));
      if (i % 3 == 0) clients.pop_back();
    }
    for (const auto& client : clients) EXPECT_EQ(client->Await(3).code(), 0);
  }
}

TEST_F(GrpcOverloadTest, DrainEndsWhatWaitsUnread) {
  Start(2);
  gate_.has_room = false;
  for (int i = 0; i < 20; ++i) {
    clients_.push_back(Connect());
    clients_.back()->Call(3, kInfer, InferRequest(7));
  }
  EXPECT_TRUE(server_->Drain(RealClock().Now() + std::chrono::minutes(1)).ok());
}

}  // namespace
}  // namespace hps::server
