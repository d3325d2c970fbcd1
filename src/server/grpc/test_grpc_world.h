// Fixture of the gRPC server's tests: a server over a real store (ServerWorld) whose lookups a test
// can delay, and a client's stub.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "server/core/protocol_server.h"
#include "server/core/test_server_world.h"
#include "server/grpc/proto/inference.grpc.pb.h"
#include "server/grpc/test_gated_inference.h"

namespace hps::server {

using Stub = inference::GRPCInferenceService::Stub;

class GrpcWorld : public testing::Test {
 protected:
  static constexpr size_t kRows = 2000;
  static constexpr uint32_t kDim = 8;

  GrpcWorld() {
    world_.Import("m/t", kRows, kDim);
    world_.Import("m/u", kRows, 3);
    config().drain_timeout = std::chrono::seconds(5);
  }
  ~GrpcWorld() override {
    if (gate_ != nullptr) gate_->Open();
    server_.reset();
  }

  ServerConfig& config() { return world_.config().server; }

  absl::Status Start() {
    world_.Start();
    gate_ = std::make_unique<GatedInference>(world_.inference());
    auto server = StartGrpcServer(world_.Parts(gate_.get()), "127.0.0.1:0");
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    Connect(grpc::InsecureChannelCredentials());
    return absl::OkStatus();
  }
  void Connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetSslTargetNameOverride("localhost");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    channel_ = grpc::CreateCustomChannel(server_->address(), credentials, arguments);
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }

  static inference::ModelInferRequest Request(const std::vector<int64_t>& keys,
                                              const std::string& table = "t") {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    request.set_id("17");
    auto* input = request.add_inputs();
    input->set_name(table);
    input->set_datatype("INT64");
    input->add_shape(std::ssize(keys));
    request.add_raw_input_contents(keys.data(), keys.size() * sizeof(int64_t));
    return request;
  }
  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return stub_->ModelInfer(&context, request, response);
  }
  static void ExpectRows(const inference::ModelInferResponse& response, size_t output,
                         const std::string& table, const std::vector<int64_t>& keys) {
    ASSERT_GT(response.raw_output_contents_size(), static_cast<int>(output));
    const std::string& rows = response.raw_output_contents(static_cast<int>(output));
    const size_t row_bytes = rows.size() / std::max<size_t>(keys.size(), 1);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = std::as_bytes(std::span(rows)).subspan(i * row_bytes, row_bytes);
      EXPECT_TRUE(ServerWorld::IsRow("m/" + table, keys[i], 1, row)) << "key " << keys[i];
    }
  }
  // Calls a method with a serialized request.
  grpc::Status CallBytes(const std::string& path, const std::string& request,
                         std::string* response = nullptr) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    const auto call = stub.PrepareUnaryCall(&context, path, bytes, &queue);
    call->StartCall();
    grpc::Status status;
    grpc::ByteBuffer answer;
    call->Finish(&answer, &status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    std::vector<grpc::Slice> slices;
    if (status.ok() && response != nullptr && answer.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) {
        const void* const begin = part.begin();
        response->append(static_cast<const char*>(begin), part.size());
      }
    }
    return status;
  }

  ServerWorld world_;
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<ProtocolServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace hps::server
