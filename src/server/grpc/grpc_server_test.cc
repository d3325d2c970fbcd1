// The gRPC server, tested with a generated stub over loopback.
#include "server/grpc/grpc_server.h"

#include <atomic>
#include <random>
#include <thread>

#include "server/grpc/control_methods.h"
#include "server/grpc/proto/grpc/health/v1/health.pb.h"
#include "server/grpc/test_grpc_world.h"
#include "testing/await.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

class GrpcServerTest : public GrpcWorld {
 protected:
  void SetUp() override {
    const absl::Status started = Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  void ExpectError(const inference::ModelInferRequest& request, StatusCode code,
                   const std::string& text) {
    inference::ModelInferResponse response;
    const grpc::Status status = Infer(request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  }
};

TEST_F(GrpcServerTest, AnswersRowsOfEverySize) {
  for (const size_t n : {0, 1, 31, 32, 33, 1024, 2000}) {
    std::vector<int64_t> keys(n);
    for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>((i * 7) % kRows);
    inference::ModelInferResponse response;
    const grpc::Status status = Infer(Request(keys), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.model_name(), "m");
    EXPECT_EQ(response.model_version(), "2");  // the number of imports
    EXPECT_EQ(response.id(), "17");
    ASSERT_EQ(response.outputs_size(), 1);
    EXPECT_EQ(response.outputs(0).name(), "t");
    EXPECT_EQ(response.outputs(0).datatype(), "FP32");
    EXPECT_EQ(response.outputs(0).shape(0), static_cast<int64_t>(n));
    EXPECT_EQ(response.outputs(0).shape(1), int64_t{kDim});
    ASSERT_EQ(response.raw_output_contents(0).size(), n * kDim * 4);
    ExpectRows(response, 0, "t", keys);
  }
}

TEST_F(GrpcServerTest, SeveralTablesWithStatusAndTypedContents) {
  inference::ModelInferRequest request = Request({5, 1'000'000});
  request.clear_raw_input_contents();
  auto* contents = request.mutable_inputs(0)->mutable_contents();
  contents->add_int64_contents(5);
  contents->add_int64_contents(1'000'000);
  auto* more = request.add_inputs();
  more->set_name("u");
  more->set_datatype("INT64");
  more->add_shape(1);
  more->mutable_contents()->add_int64_contents(9);
  for (const char* name : {"u", "t.status", "t"}) request.add_outputs()->set_name(name);
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.raw_output_contents_size(), 3);
  ExpectRows(response, 0, "u", {9});
  EXPECT_EQ(response.outputs(1).datatype(), "UINT8");
  ASSERT_EQ(response.raw_output_contents(1).size(), 2U);
  EXPECT_NE(response.raw_output_contents(1)[0], 0);
  EXPECT_EQ(response.raw_output_contents(1)[1], 0);  // absent
  EXPECT_TRUE(ServerWorld::IsRow(
      "m/t", 5, 1, std::as_bytes(std::span(response.raw_output_contents(2))).first(kDim * 4)));
}

TEST_F(GrpcServerTest, EveryDocumentedErrorHasItsCode) {
  inference::ModelInferRequest request = Request({1});
  request.set_model_name("nobody");
  ExpectError(request, StatusCode::NOT_FOUND, "nobody");
  request = Request({1});
  request.set_model_version("99");
  ExpectError(request, StatusCode::NOT_FOUND, "99");
  ExpectError(Request({1}, "nothing"), StatusCode::NOT_FOUND, "nothing");
  request = Request({1});
  request.mutable_inputs(0)->set_shape(0, 2);
  ExpectError(request, StatusCode::INVALID_ARGUMENT, "");
  request.mutable_inputs(0)->set_shape(0, -1);
  ExpectError(request, StatusCode::INVALID_ARGUMENT, "negative");
  request.mutable_inputs(0)->set_shape(0, int64_t{1} << 62);
  request.mutable_inputs(0)->add_shape(int64_t{1} << 62);
  inference::ModelInferResponse response;
  EXPECT_FALSE(Infer(request, &response).ok());
  request = Request({1});
  request.mutable_inputs(0)->set_datatype("FP16");
  ExpectError(request, StatusCode::INVALID_ARGUMENT, "FP16");
  request = Request({1});
  (*request.add_outputs()->mutable_parameters())["classification"].set_int64_param(3);
  ExpectError(request, StatusCode::UNIMPLEMENTED, "classification");
  EXPECT_TRUE(Infer(Request({1}), &response).ok());
}

TEST_F(GrpcServerTest, UnknownMethodsAndMissingMessages) {
  EXPECT_EQ(CallBytes("/inference.GRPCInferenceService/Nothing", "").error_code(),
            StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(CallBytes("/x", "").error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(CallBytes("/inference.GRPCInferenceService/SystemSharedMemoryStatus", "").error_code(),
            StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(CallBytes("/inference.GRPCInferenceService/TraceSetting", "").error_code(),
            StatusCode::UNIMPLEMENTED);
  for (const char* method :
       {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig",
        "ModelStatistics", "RepositoryIndex"}) {
    const std::string path = std::string("/inference.GRPCInferenceService/") + method;
    EXPECT_EQ(CallBytes(path, "\x0a\x7f").error_code(), StatusCode::INVALID_ARGUMENT) << method;
  }
}

TEST_F(GrpcServerTest, HealthOfServerAndModels) {
  std::string answer;
  EXPECT_TRUE(CallBytes("/grpc.health.v1.Health/Check", "", &answer).ok());
  EXPECT_EQ(answer, "\x08\x01");
  EXPECT_EQ(CallBytes("/grpc.health.v1.Health/Check", "\x0a\x01x").error_code(),
            StatusCode::NOT_FOUND);
  const auto health = [&] {
    std::string listed;
    EXPECT_TRUE(CallBytes("/grpc.health.v1.Health/List", "", &listed).ok());
    grpc::health::v1::HealthListResponse services;
    EXPECT_TRUE(services.ParseFromString(listed));
    EXPECT_EQ(services.statuses_size(), 2);
    EXPECT_EQ(services.statuses().at("").status(),
              services.statuses().at("inference.GRPCInferenceService").status());
    return services.statuses().at("").status();
  };
  EXPECT_EQ(health(), grpc::health::v1::HealthCheckResponse::SERVING);
  inference::ModelReadyRequest request;
  for (const auto& [name, ready] : {std::pair("m", true), std::pair("x", false)}) {
    request.set_name(name);
    inference::ModelReadyResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ModelReady(&context, request, &response).ok());
    EXPECT_EQ(response.ready(), ready);
  }
  world_.core().BeginDrain();
  EXPECT_EQ(health(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  inference::ServerReadyResponse ready;
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->ServerReady(&context, {}, &ready).ok());
  EXPECT_FALSE(ready.ready());
}

TEST_F(GrpcServerTest, WatchersAreToldOfTheDrain) {
  // A watch of the service, and one of a service that does not exist.
  const std::string known =
      "\x0a\x1e"
      "inference.GRPCInferenceService";
  const std::string unknown = "\x0a\x01x";
  struct Watcher {
    Watcher(const std::shared_ptr<grpc::Channel>& channel, const std::string& request)
        : stub(channel), call(stub.PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue)) {
      const grpc::Slice slice(request);
      call->StartCall(this);
      EXPECT_TRUE(Next());
      call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), this);
      EXPECT_TRUE(Next());
    }
    bool Next() {
      void* tag = nullptr;
      bool ok = false;
      return queue.AsyncNext(&tag, &ok,
                             std::chrono::system_clock::now() + std::chrono::seconds(30)) ==
                 grpc::CompletionQueue::GOT_EVENT &&
             ok;
    }
    // Returns the next state; -1 at the end.
    int State() {
      grpc::ByteBuffer answer;
      call->Read(&answer, this);
      std::vector<grpc::Slice> slices;
      if (!Next() || !answer.Dump(&slices).ok() || slices.size() != 1) return -1;
      return slices[0].size() == 2 ? slices[0].begin()[1] : -1;
    }
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    grpc::GenericStub stub;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  };
  Watcher service(channel_, known);
  Watcher other(channel_, unknown);
  Watcher gone(channel_, known);
  EXPECT_EQ(service.State(), 1);
  EXPECT_EQ(gone.State(), 1);
  EXPECT_EQ(other.State(), 3);
  gone.context.TryCancel();
  EXPECT_EQ(gone.State(), -1);
  std::thread draining([&] {
    world_.core().BeginDrain();
    EXPECT_TRUE(server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(20))).ok());
  });
  EXPECT_EQ(service.State(), 2);
  EXPECT_EQ(service.State(), -1) << "the drain ends it";
  EXPECT_EQ(other.State(), -1);
  draining.join();
}

TEST_F(GrpcServerTest, DescribesItsModels) {
  inference::ModelMetadataRequest request;
  request.set_name("m");
  inference::ModelMetadataResponse metadata;
  grpc::ClientContext metadata_context;
  ASSERT_TRUE(stub_->ModelMetadata(&metadata_context, request, &metadata).ok());
  ASSERT_EQ(metadata.inputs_size(), 4);   // two tables, KEYS and NUMKEYS
  ASSERT_EQ(metadata.outputs_size(), 5);  // two tables, their statuses and OUTPUT0
  EXPECT_EQ(metadata.inputs(0).name(), "t");
  EXPECT_EQ(metadata.inputs(0).datatype(), "INT64");
  EXPECT_EQ(metadata.outputs(0).shape(1), int64_t{kDim});
  inference::ModelConfigRequest config_request;
  config_request.set_name("m");
  inference::ModelConfigResponse config;
  grpc::ClientContext config_context;
  ASSERT_TRUE(stub_->ModelConfig(&config_context, config_request, &config).ok());
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_INT64);
  EXPECT_TRUE(config.config().input(0).optional());
  EXPECT_EQ(metadata.platform(), "hps");
  EXPECT_EQ(config.config().platform(), "");
  EXPECT_EQ(config.config().backend(), "hps");
  request.set_name("x");
  grpc::ClientContext unknown_context;
  EXPECT_EQ(stub_->ModelMetadata(&unknown_context, request, &metadata).error_code(),
            StatusCode::NOT_FOUND);
}

// Catches: an internal error with paths of the server in an answer.
TEST_F(GrpcServerTest, WhatFailedInsideIsForTheLog) {
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kDataLoss,
                          absl::StatusCode::kUnknown, absl::StatusCode::kFailedPrecondition}) {
    gate_->on_prepare = [code](const InferenceCall&) { return absl::Status(code, "because"); };
    inference::ModelInferResponse answer;
    const grpc::Status status = Infer(Request({1}), &answer);
    EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(code));
    const bool is_told = code == absl::StatusCode::kFailedPrecondition;
    EXPECT_EQ(status.error_message() == "because", is_told) << status.error_message();
  }
}

TEST_F(GrpcServerTest, StatisticsCountWhatWasAnswered) {
  inference::ModelInferResponse answer;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Infer(Request({1, 2}), &answer).ok());
  inference::ModelStatisticsRequest request;
  request.set_name("m");
  inference::ModelStatisticsResponse response;
  // A call is counted when its answer has been sent, just before its object is released.
  ASSERT_TRUE(AwaitCondition([&] {
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ModelStatistics(&context, request, &response).ok());
    return response.model_stats_size() != 1 || response.model_stats(0).inference_count() >= 3;
  }));
  ASSERT_EQ(response.model_stats_size(), 1);
  EXPECT_EQ(response.model_stats(0).inference_count(), 3U);
  const inference::InferStatistics& times = response.model_stats(0).inference_stats();
  for (const auto& stage :
       {times.success(), times.compute_input(), times.compute_infer(), times.compute_output()}) {
    EXPECT_EQ(stage.count(), 3U);
  }
  const auto& batches = response.model_stats(0).batch_stats();
  ASSERT_EQ(batches.size(), 1);  // each request was a batch of its own
  EXPECT_EQ(batches[0].compute_infer().count(), 3U);
  EXPECT_GT(batches[0].compute_infer().ns(), 0U);
}

TEST_F(GrpcServerTest, RepositoryIsListedAndNotChanged) {
  inference::RepositoryIndexResponse index;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->RepositoryIndex(&context, {}, &index).ok());
  ASSERT_EQ(index.models_size(), 1);
  EXPECT_EQ(index.models(0).state(), "READY");
  inference::RepositoryModelUnloadRequest request;
  request.set_model_name("m");
  inference::RepositoryModelUnloadResponse response;
  grpc::ClientContext unload_context;
  EXPECT_EQ(stub_->RepositoryModelUnload(&unload_context, request, &response).error_code(),
            StatusCode::PERMISSION_DENIED);
}

TEST_F(GrpcServerTest, CompressedMessagesAreRead) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    inference::ModelInferResponse response;
    const grpc::Status status = stub_->ModelInfer(&context, Request({3, 3, 3}), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectRows(response, 0, "t", {3, 3, 3});
  }
}

TEST_F(GrpcServerTest, StreamAnswersInOrderAndGoesOnAfterAnError) {
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  for (int64_t i = 0; i < 50; ++i) {
    inference::ModelInferRequest request = Request({i});
    request.set_id(std::to_string(i));
    if (i % 10 == 9) request.set_model_name("nobody");
    ASSERT_TRUE(stream->Write(request));
  }
  ASSERT_TRUE(stream->WritesDone());
  for (int64_t i = 0; i < 50; ++i) {
    inference::ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.infer_response().id(), std::to_string(i));
    if (i % 10 == 9) {
      EXPECT_THAT(response.error_message(), HasSubstr("nobody"));
    } else {
      EXPECT_EQ(response.error_message(), "");
      ExpectRows(response.infer_response(), 0, "t", {i});
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, StreamMarksItsFinalAnswersWhenAsked) {
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  inference::ModelInferRequest request = Request({1});
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  ASSERT_TRUE(stream->Write(request));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, DeadlinesOfBothKindsHold) {
  // Longer than the client needs to check, and than a busy machine stops the server before the
  // gate.
  constexpr std::chrono::microseconds kTimeout = std::chrono::seconds(4);
  gate_->Close();
  inference::ModelInferRequest request = Request({1});
  (*request.mutable_parameters())["timeout"].set_int64_param(kTimeout.count());
  std::thread waiting([&] {
    inference::ModelInferResponse response;
    EXPECT_EQ(Infer(request, &response).error_code(), StatusCode::DEADLINE_EXCEEDED);
  });
  EXPECT_TRUE(gate_->AwaitWaiting(1));
  const Deadline over = RealClock().Now() + kTimeout;
  while (RealClock().Now() < over) std::this_thread::yield();
  gate_->Open();
  waiting.join();
  gate_->Close();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  inference::ModelInferResponse response;
  EXPECT_EQ(stub_->ModelInfer(&context, Request({1}), &response).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcServerTest, CancelledCallsGiveTheirCapacityBack) {
  gate_->Close();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    std::thread waiting([&] {
      inference::ModelInferResponse response;
      EXPECT_EQ(stub_->ModelInfer(&context, Request({1}), &response).error_code(),
                StatusCode::CANCELLED);
    });
    EXPECT_TRUE(gate_->AwaitWaiting(static_cast<size_t>(i) + 1));
    context.TryCancel();
    waiting.join();
  }
  EXPECT_EQ(world_.core().Snapshot().keys_in_flight, 20U);
  EXPECT_TRUE(gate_->AwaitCancelled(20)) << "the server has heard of it";
  gate_->Open();
  ASSERT_TRUE(AwaitCondition([&] { return world_.core().Snapshot().keys_in_flight == 0; }));
  EXPECT_EQ(world_.core().Snapshot().models[0].batches, 0U) << "nobody wants the rows";
  inference::ModelInferResponse response;
  EXPECT_TRUE(Infer(Request({1}), &response).ok());
}

TEST_F(GrpcServerTest, AStreamThatWaitsTooLongForItsClientIsEnded) {
  server_.reset();
  world_.Stop();
  world_.CloseStore();
  config().stream_idle_timeout = std::chrono::milliseconds(500);
  ASSERT_TRUE(Start().ok());
  grpc::ClientContext context;
  context.set_initial_metadata_corked(true);  // the call comes with its first request
  const auto stream = stub_->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Write(Request({7})) && stream->Read(&response));
  EXPECT_FALSE(stream->Read(&response)) << "the server ends it, not the client";
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("stream_idle_timeout"));
}

TEST_F(GrpcServerTest, AConnectionHasSoManyStreams) {
  server_.reset();
  world_.Stop();
  world_.CloseStore();
  config().connection_streams_max = 2;
  ASSERT_TRUE(Start().ok());
  struct Stream {
    explicit Stream(Stub& stub) : stream(stub.ModelStreamInfer(&context)) {}
    grpc::ClientContext context;
    std::unique_ptr<
        grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>>
        stream;
    inference::ModelStreamInferResponse response;
    bool Ask() { return stream->Write(Request({7})) && stream->Read(&response); }
  };
  Stream first(*stub_);
  Stream second(*stub_);
  EXPECT_TRUE(first.Ask() && second.Ask());
  Stream third(*stub_);
  EXPECT_FALSE(third.Ask());
  EXPECT_EQ(third.stream->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  inference::ModelInferResponse response;
  EXPECT_TRUE(Infer(Request({7}), &response).ok()) << "who asks once is answered";
  first.stream->WritesDone();
  EXPECT_TRUE(first.stream->Finish().ok());
  // The place is free when the server has seen the end of the stream.
  EXPECT_TRUE(AwaitCondition([&] {
    Stream again(*stub_);
    const bool answered = again.Ask();
    again.stream->WritesDone();
    again.stream->Finish();
    return answered;
  }));
  second.stream->WritesDone();
  EXPECT_TRUE(second.stream->Finish().ok());
}

TEST_F(GrpcServerTest, DrainAnswersWhatWasAccepted) {
  grpc::ClientContext idle_context;
  const auto idle = stub_->ModelStreamInfer(&idle_context);
  inference::ModelStreamInferResponse nothing;
  ASSERT_TRUE(idle->Write(Request({7})) && idle->Read(&nothing));
  gate_->Close();
  std::thread waiting([&] {
    inference::ModelInferResponse response;
    EXPECT_TRUE(Infer(Request({7}), &response).ok());
    ExpectRows(response, 0, "t", {7});
  });
  EXPECT_TRUE(gate_->AwaitWaiting(1));
  std::thread draining([&] {
    const absl::Status drained =
        server_->Drain(DeadlineAfter(RealClock(), std::chrono::seconds(20)));
    EXPECT_TRUE(drained.ok()) << drained;
  });
  // The drain ends the stream that waits for its client; new calls are not accepted.
  EXPECT_FALSE(idle->Read(&nothing));
  EXPECT_EQ(idle->Finish().error_code(), StatusCode::UNAVAILABLE);
  gate_->Open();
  waiting.join();
  draining.join();
  inference::ModelInferResponse response;
  EXPECT_EQ(Infer(Request({7}), &response).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(GrpcServerTest, DrainCutsOffAtItsDeadline) {
  gate_->Close();
  std::thread waiting([&] {
    inference::ModelInferResponse response;
    EXPECT_FALSE(Infer(Request({7}), &response).ok());
  });
  EXPECT_TRUE(gate_->AwaitWaiting(1));
  std::thread opening([&] {
    waiting.join();
    gate_->Open();
  });
  EXPECT_EQ(server_->Drain(DeadlineAfter(RealClock(), std::chrono::milliseconds(100))).code(),
            absl::StatusCode::kDeadlineExceeded);
  opening.join();
}

TEST_F(GrpcServerTest, ManyClientsGetTheirOwnRows) {
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int64_t i = 0; i < 100; ++i) {
        inference::ModelInferResponse response;
        const std::vector<int64_t> keys = {c * 100 + i, i};
        if (!Infer(Request(keys), &response).ok()) continue;
        ExpectRows(response, 0, "t", keys);
        ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 800);
}

// Catches crashes, hangs, and codes of a server's failure for invalid requests.
TEST_F(GrpcServerTest, MutantsOfARequestGetTheRightCode) {
  std::mt19937 random(TestSeed());
  std::string good;
  ASSERT_TRUE(Request({1, 2, 3}).SerializeToString(&good));
  std::map<int, int> codes;
  for (uint64_t i = 0; i < Trials(10'000); ++i) {
    std::string mutant = good;
    for (size_t k = 1 + random() % 3; k > 0 && !mutant.empty(); --k) {
      const size_t at = random() % mutant.size();
      if (random() % 3 == 0) {
        mutant.erase(at, 1 + random() % 4);
      } else {
        mutant[at] = static_cast<char>(random());
      }
    }
    ++codes[CallBytes("/inference.GRPCInferenceService/ModelInfer", mutant).error_code()];
  }
  for (const auto& [code, count] : codes) {
    EXPECT_THAT(code,
                testing::AnyOf(StatusCode::OK, StatusCode::INVALID_ARGUMENT, StatusCode::NOT_FOUND,
                               StatusCode::OUT_OF_RANGE, StatusCode::UNIMPLEMENTED))
        << count;
  }
  inference::ModelInferResponse response;
  EXPECT_TRUE(Infer(Request({1}), &response).ok());
}

}  // namespace
}  // namespace hps::server
