// What clients without a token may do, and what answers reveal about the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/net/test_packed.h"

namespace hps::server {
namespace {

using testing::HasSubstr;

const std::string kService = "/inference.GRPCInferenceService/";
const std::string kThreeKeys = Field(1, "m") + Input("t", "INT64", {3}) + Field(7, Keys(3));
constexpr size_t kControlBytesMax = size_t{64} << 10;

class GrpcStrangerTest : public testing::Test {
 protected:
  GrpcStrangerTest() {
    world_.Import("m/t", 10, 8);
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_grpc_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~GrpcStrangerTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void UseToken() {
    std::ofstream(directory_ + "/token") << "se-cret";
    world_.config().server.token_file = directory_ + "/token";
  }
  std::unique_ptr<Http2Client> Connect() {
    if (server_ == nullptr) {
      world_.Start();
      gate_ = std::make_unique<GatedInference>(world_.inference());
      auto server = StartGrpcServer(world_.Parts(gate_.get()), "127.0.0.1:0");
      EXPECT_TRUE(server.ok()) << server.status();
      server_ = *std::move(server);
    }
    auto client = std::make_unique<Http2Client>(server_->address());
    EXPECT_TRUE(client->Begin());
    client->Settle();
    return client;
  }
  static int Ask(Http2Client& client, uint32_t id, const std::vector<std::string>& authorizations,
                 const std::string& path = kService + "ServerMetadata") {
    auto fields = CallFields(path);
    for (const std::string& text : authorizations) fields.emplace_back("authorization", text);
    client.SendFields(id, fields);
    client.SendData(id, Framed(""));
    return client.Await(id).code();
  }

  // Waits for the first answer, or the end.
  static void Watch(Http2Client& client, uint32_t id) {
    client.Call(id, "/grpc.health.v1.Health/Watch", "");
    const Http2Client::Answer& answer = client.answer(id);
    Http2Frame frame;
    while (answer.data.empty() && !answer.ended && client.Receive(&frame)) continue;
  }

  ServerWorld world_;
  std::string directory_;
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<ProtocolServer> server_;
};

// Catches: messages with unknown fields that protobuf expands to a multiple of their size.
TEST_F(GrpcStrangerTest, MessagesOfControlMethodsAreSmall) {
  const auto client = Connect();
  std::string unknown;
  while (unknown.size() < kControlBytesMax) unknown += "\x7b\x7c";
  client->Call(1, kService + "ServerLive", unknown);
  EXPECT_EQ(client->Await(1).code(), 0) << client->answer(1).message();
  unknown += "\x7b\x7c";
  client->Call(3, kService + "ServerLive", unknown);
  EXPECT_EQ(client->Await(3).code(), 8);
  EXPECT_THAT(client->answer(3).message(), HasSubstr("of at most 65536 bytes"));
  client->Call(5, "/grpc.health.v1.Health/Watch", unknown);
  EXPECT_EQ(client->Await(5).code(), 8);
  auto fields = CallFields(kService + "ServerLive");
  fields.emplace_back("grpc-encoding", "gzip");
  client->SendFields(7, fields);
  client->SendData(7, Framed(Packed(unknown), 1));
  EXPECT_EQ(client->Await(7).code(), 8);
  EXPECT_THAT(client->answer(7).message(), HasSubstr("more than 65536 bytes"));
}

// Catches: a call with a second token behind the one that a proxy has checked.
TEST_F(GrpcStrangerTest, OfTwoTokensNoneCounts) {
  UseToken();
  const auto client = Connect();
  EXPECT_EQ(Ask(*client, 1, {"Bearer se-cret"}), 0);
  EXPECT_EQ(Ask(*client, 3, {"Bearer wrong", "Bearer se-cret"}), 16);
  EXPECT_EQ(Ask(*client, 5, {"Bearer se-cret", "Bearer se-cret"}), 16);
  EXPECT_EQ(Ask(*client, 7, {"Bearer se-cret", "Bearer wrong", "Bearer se-cret"}), 16);
  EXPECT_EQ(world_.core().Snapshot().auth_failures, 3u);
}

TEST_F(GrpcStrangerTest, ReflectionNeedsTheTokenAndHealthDoesNot) {
  UseToken();
  const auto client = Connect();
  const std::string reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(Ask(*client, 1, {}, reflection), 16);
  EXPECT_EQ(Ask(*client, 3, {"Bearer se-cret"}, reflection), 0);
  EXPECT_EQ(Ask(*client, 5, {}, "/grpc.health.v1.Health/List"), 0);
}

// Catches: watches without a token that take the places of streams with a token.
TEST_F(GrpcStrangerTest, WatchesTakeNoPlacesOfStreams) {
  UseToken();
  world_.config().server.connection_streams_max = 1;
  const auto client = Connect();
  for (uint32_t id = 1; id < 9; id += 2) {
    Watch(*client, id);
    EXPECT_EQ(client->answer(id).code(), -1) << client->answer(id).message();
  }
  Watch(*client, 9);
  EXPECT_EQ(client->answer(9).code(), 8);
  EXPECT_EQ(client->answer(9).message(),
            "the connection has 4 health watches open, which is all that it may have");
  auto fields = CallFields(kService + "ModelStreamInfer");
  fields.emplace_back("authorization", "Bearer se-cret");
  client->SendFields(11, fields);
  client->SendData(11, Framed(kThreeKeys));
  EXPECT_EQ(client->Await(11).code(), 0) << client->answer(11).message();
  // The end of a watch frees its place.
  client->Send(Http2Frame{NGHTTP2_RST_STREAM, 0, 1, BigEndian(NGHTTP2_CANCEL, 4)});
  Watch(*client, 13);
  EXPECT_EQ(client->answer(13).code(), -1) << client->answer(13).message();
}

// Catches: paths and the store's error texts in answers.
TEST_F(GrpcStrangerTest, AFailureOfTheServerIsNotExplainedToAClient) {
  const auto client = Connect();
  absl::Status failure;
  gate_->on_prepare = [&failure](const InferenceCall&) { return failure; };
  uint32_t id = 1;
  for (const absl::StatusCode code :
       {absl::StatusCode::kInternal, absl::StatusCode::kUnknown, absl::StatusCode::kDataLoss}) {
    failure = absl::Status(code, "reading /secret/path failed");
    client->Call(id, kService + "ModelInfer", kThreeKeys);
    EXPECT_EQ(client->Await(id).code(), static_cast<int>(code));
    EXPECT_EQ(client->answer(id).message(), "the server failed; its log has the reason");
    client->Call(id + 2, kService + "ModelStreamInfer", kThreeKeys);
    EXPECT_THAT(client->Await(id + 2).data, HasSubstr("the server failed; its log has the reason"));
    EXPECT_THAT(client->answer(id + 2).data, testing::Not(HasSubstr("secret")));
    id += 4;
  }
  failure = absl::NotFoundError("there is no model 'm'");
  client->Call(id, kService + "ModelInfer", kThreeKeys);
  EXPECT_EQ(client->Await(id).message(), "there is no model 'm'") << "what a client can mend";
}

}  // namespace
}  // namespace hps::server
