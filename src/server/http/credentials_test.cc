#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/test_certificates.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "server/http/test_http_world.h"
#include "server/net/tls.h"
#include "server/net/transport.h"
#include "testing/await.h"

namespace hps::server {
namespace {

class CredentialsTest : public HttpWorld {
 protected:
  CredentialsTest() : folder_(testing::TempDir() + "/credentials_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    unsetenv("HPS_TOKEN");
  }
  ~CredentialsTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << text;
    return path;
  }

  void UseTls(const TestCertificate& certificate) {
    config_.tls_certificate = Write("cert.pem", certificate.certificate_pem);
    config_.tls_key = Write("key.pem", certificate.key_pem);
  }

  std::string folder_;
};

TEST_F(CredentialsTest, RequestsNeedTheTokenProbesDoNot) {
  config_.token_file = Write("token", "s3cret\n");
  const auto client = Connect();
  EXPECT_EQ(client->Ask(Get("/v2/health/live")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/health/ready")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/models/emb/ready")).code, 200);
  for (const char* path : {"/v2", "/metrics", "/v2/models/emb", "/v2/models/emb/config"}) {
    const HttpReply reply = client->Ask(Get(path));
    EXPECT_EQ(reply.code, 401) << path;
    EXPECT_EQ(reply.fields.at("www-authenticate"), "Bearer");
    EXPECT_EQ(client->Ask(Get(path, "Authorization: Bearer s3creT\r\n")).code, 401) << path;
    EXPECT_EQ(client->Ask(Get(path, "Authorization: Bearer s3cret\r\n")).code, 200) << path;
  }
  EXPECT_EQ(client->Ask(BinaryInfer({1})).code, 401);
  EXPECT_EQ(client->Ask(Get("/")).code, 200);  // a browser asks for it before it has the token
  EXPECT_EQ(Counted().auth_failures, 9u);
  EXPECT_EQ(inference_.prepared, 0u);
}

// Catches: a web page whose name was given the address 127.0.0.1, and that reads rows.
TEST_F(CredentialsTest, WithoutATokenOnlyLocalNamesAreAnswered) {
  config_.hosts = {"hps.internal", "PROXY.example:8443", "[fd00::7]"};
  const auto client = Connect();
  const auto code_for = [&](std::string_view host, std::string_view target = "/v2") {
    return client
        ->Ask(absl::StrCat("GET ", std::string(target), " HTTP/1.1\r\nHost: ", std::string(host),
                           "\r\n\r\n"))
        .code;
  };
  for (const char* host :
       {"localhost", "LOCALHOST.:1", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "",
        "hps.internal", "HPS.internal.:80", "proxy.example", "[FD00::7]:8000"}) {
    EXPECT_EQ(code_for(host), 200) << host;
  }
  for (const char* path : {"/", "/metrics", "/api/echo", "/v2/health/live", "/v2/models/emb/ready"})
    EXPECT_EQ(code_for("evil.example", path), 421) << path;
  EXPECT_EQ(code_for("localhost", "http://evil.example/v2"), 421) << "the target's host counts";
  EXPECT_EQ(code_for("evil.example", "http://localhost/v2"), 200);
  const HttpReply reply = client->Ask("GET /v2 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n");
  EXPECT_THAT(reply.body, testing::HasSubstr("'evil.example' is not a name of this server"));
  EXPECT_THAT(reply.body, testing::HasSubstr("[server.security] hosts"));
  server_.reset();
  config_.token_file = Write("token", "s3cret\n");
  const std::string asked = "GET /v2 HTTP/1.1\r\nHost: evil.example\r\n";
  EXPECT_EQ(Ask(asked + "Authorization: Bearer s3cret\r\n\r\n").code, 200);
  EXPECT_EQ(Ask(asked + "\r\n").code, 401);
}

TEST_F(CredentialsTest, AHostThatIsNoNameKeepsTheServerFromStarting) {
  for (const char* host : {"", "http://proxy", "a b", ":80"}) {
    config_.hosts = {"good.example", host};
    const absl::Status status =
        StartHttpServer(parts_, "127.0.0.1:0", HttpRole::kEverything).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("[server.security] hosts: '", host, "' is not a host name"));
  }
}

TEST_F(CredentialsTest, ControlNeedsASettingAndAToken) {
  const std::string load =
      Post("/v2/repository/models/emb/load", "{}", "Authorization: Bearer s3cret\r\n");
  EXPECT_EQ(Ask(load).code, 403);
  server_.reset();
  config_.repository_control = true;
  EXPECT_EQ(Ask(load).code, 403);
  server_.reset();
  config_.token_file = Write("token", "s3cret\n");
  EXPECT_EQ(Ask(Post("/v2/repository/models/emb/load", "")).code, 401);
  EXPECT_EQ(repository_.loads, 0);
  const HttpReply loaded = Ask(load);
  EXPECT_EQ(loaded.code, 200);
  EXPECT_EQ(loaded.body, "{}") << "no JSON is no answer of type application/json";
  EXPECT_EQ(repository_.loads, 1);
  EXPECT_EQ(Ask(Post("/v2/repository/models/x/load", "", "Authorization: Bearer s3cret\r\n")).code,
            404);
  EXPECT_EQ(
      Ask(Post("/v2/repository/models/emb/unload", "", "Authorization: Bearer s3cret\r\n")).code,
      200);
}

// Catches: a load that is refused since too many wait, and that no metric tells of.
TEST_F(CredentialsTest, LoadsBeyondThoseThatWaitAreRefusedAndCounted) {
  config_.token_file = Write("token", "s3cret\n");
  config_.repository_control = true;
  Latch end(1);
  repository_.on_load = [&end] { EXPECT_TRUE(AwaitLatch(end)); };
  const std::string load =
      Post("/v2/repository/models/emb/load", "{}", "Authorization: Bearer s3cret\r\n");
  constexpr size_t kLoads = 100;  // one runs, 64 wait
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (size_t i = 0; i < kLoads; ++i) {
    clients.push_back(Connect());
    clients.back()->Send(load);
  }
  EXPECT_TRUE(AwaitCondition([&] { return Refused("capacity") > 0; }));
  end.CountDown();
  size_t refused = 0;
  for (const auto& client : clients) refused += client->Read().code == 429 ? 1 : 0;
  EXPECT_EQ(Refused("capacity"), refused);
}

TEST_F(CredentialsTest, ReopenReadsTheTokenAgainOrKeepsIt) {
  config_.token_file = Write("token", "old\n");
  const auto client = Connect();
  Write("token", "new\n");
  EXPECT_EQ(client->Ask(Get("/v2", "Authorization: Bearer old\r\n")).code, 200);
  EXPECT_TRUE(server_->Reopen().ok());
  EXPECT_EQ(client->Ask(Get("/v2", "Authorization: Bearer old\r\n")).code, 401);
  EXPECT_EQ(client->Ask(Get("/v2", "Authorization: Bearer new\r\n")).code, 200);
  Write("token", "\n");
  EXPECT_EQ(server_->Reopen().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client->Ask(Get("/v2", "Authorization: Bearer new\r\n")).code, 200);
}

// One TLS client that asks once; the code, or 0 when it was not let in.
int AskOverTls(const std::string& address, const std::string& bytes,
               const TestCertificate* certificate = nullptr) {
  const std::unique_ptr<SSL_CTX, FreeTls> context(SSL_CTX_new(TLS_client_method()));
  if (certificate != nullptr) UseCertificate(context.get(), *certificate);
  HttpClient client(address);
  const TlsConnection tls(SSL_new(context.get()));
  SSL_set_fd(tls.get(), client.fd());
  std::string text;
  std::array<char, 65536> piece;
  if (SSL_connect(tls.get()) == 1 &&
      SSL_write(tls.get(), bytes.data(), static_cast<int>(bytes.size())) > 0) {
    int received = 0;
    while ((received = SSL_read(tls.get(), piece.data(), static_cast<int>(piece.size()))) > 0) {
      text.append(piece.data(), static_cast<size_t>(received));
    }
  }
  ERR_clear_error();
  return text.size() > 12 ? std::stoi(text.substr(9, 3)) : 0;
}

TEST_F(CredentialsTest, ServesOverTls) {
  UseTls(MakeTestCertificate());
  Start();
  std::string large = BinaryInfer(std::vector<int64_t>(200'000, 7));
  large.insert(large.find("Host"), "Connection: close\r\n");
  EXPECT_EQ(AskOverTls(server_->address(), large), 200);
  EXPECT_EQ(AskOverTls(server_->address(), Get("/v2", "Connection: close\r\n")), 200);
  // Not TLS: the connection is closed, the server stays.
  HttpClient plain(server_->address());
  plain.Send(Get("/v2"));
  EXPECT_EQ(plain.Read().code, 0);
  EXPECT_EQ(AskOverTls(server_->address(), Get("/v2", "Connection: close\r\n")), 200);
}

TEST_F(CredentialsTest, ClientsNeedACertificateWhenACaIsNamed) {
  const TestCertificate own = MakeTestCertificate();
  const TestCertificate known = MakeTestCertificate();
  const TestCertificate unknown = MakeTestCertificate();
  UseTls(own);
  config_.tls_client_ca = Write("ca.pem", known.certificate_pem);
  Start();
  const std::string ask = Get("/v2", "Connection: close\r\n");
  EXPECT_EQ(AskOverTls(server_->address(), ask, &known), 200);
  EXPECT_EQ(AskOverTls(server_->address(), ask), 0);
  EXPECT_EQ(AskOverTls(server_->address(), ask, &unknown), 0);
}

TEST_F(CredentialsTest, RefusesCertificatesThatDoNotFit) {
  const TestCertificate one = MakeTestCertificate();
  const TestCertificate other = MakeTestCertificate();
  const auto code = [&] { return TlsContext::Create(config_).status().code(); };
  UseTls(one);
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  Write("key.pem", other.key_pem);
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  Write("key.pem", "nonsense");
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  config_.tls_key = folder_ + "/none.pem";
  EXPECT_EQ(code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(StartHttpServer(parts_, "127.0.0.1:0", HttpRole::kEverything).status().code(),
            absl::StatusCode::kNotFound);
  UseTls(one);
  config_.tls_client_ca = Write("ca.pem", "nonsense");
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
}

// The server would wait for the writer of a pipe, or for a person who types a key's pass phrase.
TEST_F(CredentialsTest, RefusesFilesThatAreWaitedFor) {
  UseTls(MakeTestCertificate());
  const auto refused = [&] { return TlsContext::Create(config_).status(); };
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (std::string* path : {&config_.tls_certificate, &config_.tls_key, &config_.tls_client_ca}) {
    const std::string file = std::exchange(*path, pipe);
    EXPECT_THAT(std::string(refused().message()), testing::HasSubstr("is not a regular file"));
    *path = file;
  }
  const std::unique_ptr<BIO, FreeOpenSsl> plain(BIO_new_file(config_.tls_key.c_str(), "r"));
  const std::unique_ptr<EVP_PKEY, FreeOpenSsl> key(
      PEM_read_bio_PrivateKey(plain.get(), nullptr, nullptr, nullptr));
  ASSERT_NE(key, nullptr);
  const std::unique_ptr<BIO, FreeOpenSsl> locked(BIO_new(BIO_s_mem()));
  const unsigned char phrase[] = "phrase";
  ASSERT_EQ(PEM_write_bio_PrivateKey(locked.get(), key.get(), EVP_aes_128_cbc(), phrase, 6, nullptr,
                                     nullptr),
            1);
  Write("key.pem", TextOf(locked.get()));
  // Where there is a terminal it would be asked for there.
  EXPECT_EQ(refused().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CredentialsTest, ReopenReadsCertificatesAgainOrKeepsThem) {
  UseTls(MakeTestCertificate());
  Start();
  Write("key.pem", "nonsense");
  EXPECT_EQ(server_->Reopen().code(), absl::StatusCode::kInvalidArgument);
  const std::string ask = Get("/v2", "Connection: close\r\n");
  EXPECT_EQ(AskOverTls(server_->address(), ask), 200);
  UseTls(MakeTestCertificate());
  EXPECT_TRUE(server_->Reopen().ok());
  EXPECT_EQ(AskOverTls(server_->address(), ask), 200);
}

// What OpenSSL holds for a connection is a part of the server's bytes in flight.
TEST_F(CredentialsTest, TlsConnectionsTakeOfTheServersBytes) {
  UseTls(MakeTestCertificate());
  config_.header_timeout = std::chrono::minutes(10);  // of handshakes that are never begun
  Start();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 16; ++i) clients.push_back(std::make_unique<HttpClient>(server_->address()));
  ASSERT_TRUE(
      AwaitCondition([&] { return inference_.admission.bytes_in_flight() == uint64_t{1} << 20; }));
  EXPECT_TRUE(HttpClient(server_->address()).AtEnd()) << "there is no room for one more";
  clients.clear();
  ASSERT_TRUE(AwaitCondition([&] { return inference_.admission.bytes_in_flight() == 0; }));
  EXPECT_EQ(AskOverTls(server_->address(), Get("/v2", "Connection: close\r\n")), 200);
}

TEST_F(CredentialsTest, ATlsHandshakeMustEndInTime) {
  UseTls(MakeTestCertificate());
  config_.header_timeout = std::chrono::milliseconds(100);
  const auto client = Connect();
  client->Send("\x16\x03\x01");
  EXPECT_TRUE(client->AtEnd());
}

}  // namespace
}  // namespace hps::server
