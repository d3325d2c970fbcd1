#include <gtest/gtest.h>

#include <string>

#include "server/core/protocol_server.h"

namespace hps::server {
namespace {

TEST(NoGrpcTest, AnswersWithASentenceThatSaysWhatToDo) {
  const absl::Status status = StartGrpcServer(ProtocolParts(), "127.0.0.1:8001").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("-DHPS_GRPC=ON"), std::string::npos) << status;
}

}  // namespace
}  // namespace hps::server
