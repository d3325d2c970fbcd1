// Feeds the fuzz target inputs that reach most of the server, whole and truncated. libFuzzer (CMake
// option HPS_FUZZ, clang) continues from these inputs. What it finds becomes a case of
// grpc_protocol_test.cc. An invalid message of a control method must not make protobuf write to
// stderr, because clients without a token could fill the log.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "server/grpc/fuzz_wire_target.h"

namespace hps::server {
namespace {

TEST(FuzzReplayTest, GrpcWire) {
  constexpr size_t kPieces = 4;
  testing::internal::CaptureStderr();
  for (const std::string& seed : GrpcWireSeeds()) {
    for (size_t i = 1; i <= kPieces; ++i)
      FuzzGrpcWire(AsBytes(std::string_view(seed).substr(0, seed.size() * i / kPieces)));
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("libprotobuf"), std::string::npos) << told;
}

}  // namespace
}  // namespace hps::server
