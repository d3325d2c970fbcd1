#include "server/net/connection_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "server/core/server_statistics.h"
#include "server/net/test_echo_server.h"
#include "server/net/test_socket.h"
#include "testing/await.h"

namespace hps::server {
namespace {

class EchoClient {
 public:
  explicit EchoClient(const std::string& address) : socket_(address, std::chrono::seconds(30)) {}

  bool is_open() const { return socket_.connected(); }
  // What comes back; empty when the connection has ended.
  std::string Ask(const std::string& text) {
    if (!socket_.Send(text)) return "";
    std::string answer;
    while (answer.size() < text.size()) {
      const std::string more = Read();
      if (more.empty()) return "";
      answer += more;
    }
    return answer;
  }
  std::string Read() const {
    std::string bytes;
    socket_.Receive(&bytes);
    return bytes;
  }

 private:
  TestSocket socket_;
};

class ConnectionServerTest : public testing::Test {
 protected:
  void Start(size_t thread_count = 2) {
    server_ = std::make_unique<EchoServer>(world_.Parts(), thread_count);
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }
  std::unique_ptr<EchoClient> Connect() const {
    return std::make_unique<EchoClient>(server_->address());
  }
  uint64_t open_count() const {
    ServerStatistics statistics;
    world_.counters.Fill(&statistics);
    return statistics.http.connections;
  }
  uint64_t refused_count() const {
    ServerStatistics statistics;
    world_.counters.Fill(&statistics);
    return statistics.refused[static_cast<size_t>(RefusedReason::kConnections)].second;
  }
  testing::AssertionResult AwaitOpen(uint64_t count) const {
    return AwaitCondition([&] { return open_count() == count; });
  }

  EchoWorld world_;
  std::unique_ptr<EchoServer> server_;
};

TEST_F(ConnectionServerTest, EverybodyIsServed) {
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([this, i] {
      for (int round = 0; round < 20; ++round) {
        const auto client = Connect();
        for (const char* text : {"a", "bcd", "efghijklmnop"})
          EXPECT_EQ(client->Ask(text + std::to_string(i)), text + std::to_string(i));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE(AwaitOpen(0));
}

TEST_F(ConnectionServerTest, MoreThanOneTurnAcceptsAreAccepted) {
  Start(1);
  std::vector<std::unique_ptr<EchoClient>> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(Connect());
  for (const auto& client : clients) EXPECT_EQ(client->Ask("here"), "here");
  EXPECT_EQ(open_count(), 300u);
  clients.clear();
  ASSERT_TRUE(AwaitOpen(0));
}

TEST_F(ConnectionServerTest, ConnectionsAreBounded) {
  world_.config.connections_max = 2;
  Start();
  auto first = Connect();
  const auto second = Connect();
  EXPECT_EQ(first->Ask("1"), "1");
  EXPECT_EQ(second->Ask("2"), "2");
  EXPECT_EQ(Connect()->Read(), "");
  EXPECT_EQ(server_->refused, 1u);
  first.reset();
  ASSERT_TRUE(AwaitOpen(1));
  EXPECT_EQ(Connect()->Ask("3"), "3");
  EXPECT_EQ(second->Ask("2"), "2");
}

// Catches: a server that is out of files, and that no metric and no line of the log tells of.
TEST_F(ConnectionServerTest, AConnectionForWhichThereIsNoFileIsCountedAndTakenLater) {
  Start();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // The lowest number that is free is the only one that is left, and the client takes it.
  Descriptor last(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const rlimit none{.rlim_cur = static_cast<rlim_t>(last.number()) + 1,
                    .rlim_max = before.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  last.Close();
  const auto client = Connect();
  EXPECT_TRUE(client->is_open());
  EXPECT_TRUE(AwaitCondition([this] { return refused_count() > 0; }));
  EXPECT_EQ(open_count(), 0u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(client->Ask("a"), "a");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("echo: a client waits, because no file or memory is left"));
}

TEST_F(ConnectionServerTest, ADrainEndsAllAndTakesNobody) {
  Start();
  const auto client = Connect();
  EXPECT_EQ(client->Ask("a"), "a");
  EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(30))).ok());
  EXPECT_EQ(client->Read(), "");
  EXPECT_EQ(open_count(), 0u);
  const auto late = Connect();
  EXPECT_TRUE(!late->is_open() || late->Ask("b").empty());
}

TEST_F(ConnectionServerTest, CredentialsThatCannotBeReadLeaveTheOldOnes) {
  const std::string file = testing::TempDir() + "/echo_token." + std::to_string(getpid());
  std::ofstream(file) << "first\n";
  world_.config.token_file = file;
  Start();
  EXPECT_TRUE(server_->AdmitsControl("Bearer first"));
  EXPECT_FALSE(server_->Admits("Bearer second"));
  std::ofstream(file) << "second\n";
  EXPECT_TRUE(server_->Reopen().ok());
  EXPECT_TRUE(server_->Admits("Bearer second"));
  unlink(file.c_str());
  EXPECT_EQ(server_->Reopen().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(server_->Admits("Bearer second"));
  EXPECT_FALSE(server_->Admits("Bearer first"));
  EXPECT_FALSE(server_->Admits(""));
}

TEST_F(ConnectionServerTest, AnErrorNamesTheSettingOfTheFile) {
  for (auto [member, setting] : {std::pair(&ServerConfig::token_file, "token_file"),
                                 std::pair(&ServerConfig::admin_token_file, "admin_token_file")}) {
    world_.config = {};
    world_.config.*member = "/none";
    EXPECT_EQ(
        EchoServer(world_.Parts(), 1).Listen("127.0.0.1:0"),
        absl::NotFoundError(absl::StrCat("[server.security] ", setting, ": /none can't be read")));
  }
}

TEST_F(ConnectionServerTest, WithoutATokenOnlyWhatNeedsOneIsRefused) {
  Start();
  EXPECT_TRUE(server_->Admits(""));
  EXPECT_FALSE(server_->AdmitsControl(""));
}

TEST_F(ConnectionServerTest, WithAnAdministratorsTokenTheOtherOneOnlyAsks) {
  const std::string file = testing::TempDir() + "/echo_asks." + std::to_string(getpid());
  const std::string admin = testing::TempDir() + "/echo_admin." + std::to_string(getpid());
  std::ofstream(file) << "asks\n";
  std::ofstream(admin) << "admin\n";
  world_.config.token_file = file;
  world_.config.admin_token_file = admin;
  Start();
  EXPECT_TRUE(server_->Admits("Bearer asks"));
  EXPECT_TRUE(server_->Admits("Bearer admin"));
  EXPECT_FALSE(server_->AdmitsControl("Bearer asks"));
  EXPECT_TRUE(server_->AdmitsControl("Bearer admin"));
  unlink(file.c_str());
  unlink(admin.c_str());
}

}  // namespace
}  // namespace hps::server
