// A connection whose socket always takes less than the server has to send.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "testing/await.h"

namespace hps::server {
namespace {

const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
constexpr size_t kRows = 500;  // so few that answers do not take turns with each other
constexpr uint32_t kDim = 32;
constexpr int kSocketBytes = 16 << 10;
constexpr int kTries = 10;  // for a client that is late because its thread did not run

class GrpcSlowSocketTest : public testing::Test {
 protected:
  GrpcSlowSocketTest() { world_.Import("m/t", kRows, kDim); }
  ~GrpcSlowSocketTest() override { server_.reset(); }

  void Start() {
    world_.Start();
    auto server = StartGrpcServer(world_.Parts(&world_.inference()), "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // The windows do not limit anything, and the sockets have small buffers.
  std::unique_ptr<Http2Client> Connect() const {
    auto client = std::make_unique<Http2Client>(server_->address());
    client->gives_windows = false;
    EXPECT_TRUE(client->Begin({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}}));
    client->Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(0x7fff0000, 4)});
    client->Settle();
    const int own = client->fd();
    EXPECT_EQ(setsockopt(own, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof(int)), 0);
    const int served = ServedSocket(own);
    EXPECT_EQ(setsockopt(served, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(int)), 0);
    return client;
  }
  static void Ask(Http2Client& client, uint32_t id) {
    std::string keys;
    for (int64_t key = 0; key < int64_t{kRows}; ++key) AppendBytes(key, &keys);
    client.Call(id, kInfer, Field(1, "m") + Input("t", "INT64", {kRows}) + Field(7, keys));
  }
  uint64_t held() { return world_.core().engine().admission().bytes_in_flight(); }
  testing::AssertionResult AwaitHeld(uint64_t bytes_max) {
    return AwaitCondition([&] { return held() <= bytes_max; });
  }
  // Whether a client that always waits for some answers is served for this time.
  bool IsServedFor(Duration time) {
    const auto client = Connect();
    constexpr uint32_t kCalls = 24;  // waiting
    uint32_t next = 1;
    for (; next < 2 * kCalls; next += 2) Ask(*client, next);
    const Deadline end = DeadlineAfter(RealClock(), time);
    for (uint32_t id = 1; RealClock().Now() < end; id += 2, next += 2) {
      if (client->Await(id).code() != 0) return false;
      Ask(*client, next);
    }
    return true;
  }

  ServerWorld world_;
  std::unique_ptr<ProtocolServer> server_;

 private:
  static void AppendBytes(int64_t key, std::string* bytes) {
    bytes->append(AsText(std::as_bytes(std::span(&key, 1))));
  }
  static uint16_t PortOf(int fd, decltype(getsockname)* name_of) {
    sockaddr_in name{};
    socklen_t bytes = sizeof(name);
    const bool has_name =
        name_of(fd, static_cast<sockaddr*>(static_cast<void*>(&name)), &bytes) == 0;
    return has_name && name.sin_family == AF_INET ? name.sin_port : 0;
  }
  // The server's socket, which is in this process too.
  static int ServedSocket(int client) {
    rlimit files{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    const uint16_t port = PortOf(client, &getsockname);
    for (int fd = 0; fd < static_cast<int>(files.rlim_cur); ++fd)
      if (PortOf(fd, &getpeername) == port) return fd;
    ADD_FAILURE() << "there is no socket of the server";
    return -1;
  }
};

// Catches: answers that keep their memory and their share of the capacity until everything on their
// connection is sent.
TEST_F(GrpcSlowSocketTest, AnswersThatWereTakenGiveTheirRoomBack) {
  Start();
  const auto client = Connect();
  constexpr uint32_t kCalls = 60;
  for (uint32_t i = 0; i < kCalls; ++i) Ask(*client, 2 * i + 1);
  ASSERT_TRUE(
      AwaitCondition([&] { return world_.core().Snapshot().models[0].requests >= kCalls; }));
  const uint64_t before = held();
  ASSERT_GE(before, kCalls / 2 * kRows * kDim * sizeof(float)) << "few have left yet";
  for (uint32_t i = 0; i < kCalls / 2; ++i)
    ASSERT_EQ(client->Await(2 * i + 1).code(), 0) << client->answer(2 * i + 1).message();
  ASSERT_TRUE(AwaitHeld(before * 3 / 4)) << held() << " of " << before;
  for (uint32_t i = kCalls / 2; i < kCalls; ++i) EXPECT_EQ(client->Await(2 * i + 1).code(), 0);
  EXPECT_TRUE(AwaitHeld(0));
}

// Catches: a write timeout that only stops when the output is empty.
TEST_F(GrpcSlowSocketTest, AClientThatReadsIsNotCutOff) {
  const auto write_timeout = std::chrono::seconds(1);
  world_.config().server.write_timeout = write_timeout;
  Start();
  bool is_served = false;
  for (int i = 0; i < kTries && !is_served; ++i) is_served = IsServedFor(2 * write_timeout);
  EXPECT_TRUE(is_served);
}

}  // namespace
}  // namespace hps::server
