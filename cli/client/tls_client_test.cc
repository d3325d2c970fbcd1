#include "cli/client/tls_client.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hps::cli {
namespace {

// tests/server/security_test.py has whole exchanges with a server.

std::string WriteFile(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "/tls_client_" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(TlsClientTest, BeginsByItself) {
  for (const char* host : {"localhost", "127.0.0.1", "::1"}) {
    const auto client = TlsClient::Create(host, {}, "request");
    ASSERT_TRUE(client.ok()) << client.status();
    const std::string hello = (*client)->TakeOutput();
    ASSERT_GT(hello.size(), 5);
    EXPECT_EQ(hello[0], 0x16) << "a handshake";
    EXPECT_EQ(hello.find("request"), std::string::npos);
    EXPECT_EQ(hello.find("localhost") != std::string::npos, std::string(host) == "localhost");
    EXPECT_EQ((*client)->TakeOutput(), "");
    EXPECT_EQ((*client)->answer(), "");
    EXPECT_FALSE((*client)->has_ended());
  }
}

TEST(TlsClientTest, SaysSoWhenTheServerSpeaksNoTls) {
  const auto client = TlsClient::Create("localhost", {}, "request");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Feed("\x16").ok()) << "more may come";
  EXPECT_EQ((*client)->Feed("HTTP/1.1 400 Bad Request\r\n\r\n").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TlsClientTest, NamesTheFileThatIsWrong) {
  const std::string wrong = WriteFile("wrong.pem", "no certificate\n");
  for (const TlsTrust& trust : {TlsTrust{.ca_file = wrong}, TlsTrust{.ca_file = wrong + ".none"},
                                TlsTrust{.certificate_file = wrong, .key_file = wrong}}) {
    const absl::Status refused = TlsClient::Create("localhost", trust, "").status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find(wrong), std::string::npos) << refused;
    EXPECT_EQ(refused.message().find("No such file") != std::string::npos,
              trust.ca_file == wrong + ".none")
        << refused;
  }
  std::filesystem::remove(wrong);
}

}  // namespace
}  // namespace hps::cli
