// Fixture of tests of the gRPC server frame by frame: a server over a real store whose lookups a
// test can delay, and clients that send any frames.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "testing/await.h"

namespace hps::server {

class GrpcProtocolTest : public testing::Test {
 protected:
  static constexpr const char* kInfer = "/inference.GRPCInferenceService/ModelInfer";
  static constexpr const char* kStream = "/inference.GRPCInferenceService/ModelStreamInfer";
  static constexpr const char* kLive = "/inference.GRPCInferenceService/ServerLive";
  static constexpr uint32_t kDim = 8;
  static constexpr size_t kRows = 2000;
  static constexpr int kTries = 20;  // for a client that is late because its thread did not run

  // Keys 0 to n - 1 of the table.
  static std::string InferRequest(size_t n) {
    std::vector<int64_t> keys(n);
    for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(i);
    return Field(1, "m") + Input("t", "INT64", {static_cast<int64_t>(n)}) +
           Field(7, AsText(std::as_bytes(std::span(keys))));
  }

  GrpcProtocolTest() { world_.Import("m/t", kRows, kDim); }
  ~GrpcProtocolTest() override {
    if (gate_ != nullptr) gate_->Open();
    server_.reset();
  }

  ServerConfig& config() { return world_.config().server; }

  void Start() {
    world_.Start();
    gate_ = std::make_unique<GatedInference>(world_.inference());
    ProtocolParts parts = world_.Parts(gate_.get());
    parts.linger_timeout = linger_timeout_;
    auto server = StartGrpcServer(parts, "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<Http2Client> Connect(
      const std::vector<std::pair<uint16_t, uint32_t>>& settings = {}) {
    if (server_ == nullptr) Start();
    auto client = std::make_unique<Http2Client>(server_->address());
    EXPECT_TRUE(client->Begin(settings));
    return client;
  }

  // Expects a message with the rows of keys 0 to n - 1.
  static void ExpectRows(const std::string& data, size_t n) {
    const size_t row_bytes = kDim * sizeof(float);
    ASSERT_GE(data.size(), n * row_bytes + 5);
    EXPECT_EQ(__builtin_bswap32(LoadLittleEndian<uint32_t>(data.data() + 1)), data.size() - 5);
    const auto rows = AsBytes(std::string_view(data)).last(n * row_bytes);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(ServerWorld::IsRow("m/t", static_cast<Key>(i), 1,
                                     rows.subspan(i * row_bytes, row_bytes)));
    }
  }
  // A new connection whose first call, a lookup of three rows, was answered. It has several tries,
  // because short timeouts can pass while the client's thread does not run.
  std::unique_ptr<Http2Client> ConnectAndCall(int tries) {
    auto client = Connect();
    client->Call(1, kInfer, InferRequest(3));
    if (client->Await(1).code() != 0 && tries > 1) return ConnectAndCall(tries - 1);
    EXPECT_EQ(client->answer(1).code(), 0) << client->answer(1).message();
    return client;
  }
  // Expects that the server still answers and holds nothing of ended calls.
  void ExpectWell(int tries = 1) {
    const auto client = ConnectAndCall(tries);
    const Admission& admission = world_.core().engine().admission();
    EXPECT_TRUE(AwaitCondition(
        [&] { return admission.bytes_in_flight() + admission.keys_in_flight() == 0; }));
  }
  uint64_t bad_requests(BadRequestReason reason) {
    const ServerStatistics statistics = world_.core().Snapshot();
    for (const auto& [name, count] : statistics.bad_requests)
      if (name == kBadRequestReasonNames[static_cast<size_t>(reason)]) return count;
    return 0;
  }

  ServerWorld world_;
  Duration linger_timeout_ = std::chrono::seconds(2);
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<ProtocolServer> server_;
};

}  // namespace hps::server
