// The gRPC half of serve_client.h: a client and an echo, both of bytes, without messages.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_grpc_channel.h"
#include "bench/serve/serve_world.h"
#include "server/grpc/proto/inference.pb.h"

namespace hps::bench {
namespace {

class GrpcServeClient final : public ServeClient {
 public:
  static absl::StatusOr<std::unique_ptr<ServeClient>> Connect(const std::string& address) {
    HPS_ASSIGN_OR_RETURN(auto channel, ConnectGrpc(address));
    return std::unique_ptr<ServeClient>(new GrpcServeClient(std::move(channel)));
  }
  ~GrpcServeClient() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::StatusOr<Answer> Ask(const std::string& request) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const grpc::Slice slice(request.data(), request.size(), grpc::Slice::STATIC_SLICE);
    const grpc::ByteBuffer bytes(&slice, 1);
    const auto call = stub_.PrepareUnaryCall(&context, kGrpcInferMethod, bytes, &queue_);
    call->StartCall();
    grpc::Status status;
    answer_.Clear();
    call->Finish(&answer_, &status, this);
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return absl::InternalError("bench serve: the queue ended");
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        return Answer::kRows;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return Answer::kRefused;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return Answer::kLate;
      default:
        return absl::InternalError(
            absl::StrCat("bench serve: gRPC ", status.error_code(), ": ", status.error_message()));
    }
  }
  bool EndsWith(std::span<const std::byte> rows) override {
    return hps::bench::EndsWith(answer_, rows);
  }
  size_t answer_bytes() const override { return answer_.Length(); }

 private:
  explicit GrpcServeClient(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {}

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer answer_;
};

std::string EncodeGrpc(std::span<const Key> keys, std::chrono::microseconds timeout) {
  inference::ModelInferRequest request;
  request.set_model_name(kServeModel);
  if (timeout.count() > 0)
    (*request.mutable_parameters())["timeout"].set_int64_param(timeout.count());
  inference::ModelInferRequest::InferInputTensor& input = *request.add_inputs();
  input.set_name(kServeTable);
  input.set_datatype("INT64");
  input.add_shape(static_cast<int64_t>(keys.size()));
  request.add_raw_input_contents(keys.data(), keys.size_bytes());
  return request.SerializeAsString();
}

// Answers one call after another.
class EchoSlot {
 public:
  EchoSlot(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue,
           const grpc::ByteBuffer& answer)
      : service_(service), queue_(queue), answer_(answer) {}

  void Accept() {
    call_ = std::make_unique<Call>();
    step_ = 0;
    service_.RequestCall(&call_->context, &call_->stream, &queue_, &queue_, this);
  }

  void Proceed(bool ok) {
    if (!ok || step_ == 2) {
      Accept();
    } else if (step_++ == 0) {
      call_->stream.Read(&call_->request, this);
    } else {
      call_->stream.WriteAndFinish(answer_, {}, grpc::Status::OK, this);
    }
  }

 private:
  struct Call {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    grpc::ByteBuffer request;
  };

  grpc::AsyncGenericService& service_;
  grpc::ServerCompletionQueue& queue_;
  const grpc::ByteBuffer& answer_;
  std::unique_ptr<Call> call_;
  int step_ = 0;
};

// Serves until its process ends.
class GrpcEcho {
 public:
  absl::StatusOr<uint16_t> Start(size_t message_bytes, size_t threads) {
    const grpc::Slice slice(std::string(message_bytes, 'x'));
    answer_ = grpc::ByteBuffer(&slice, 1);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service_);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return absl::UnavailableError("bench serve: the gRPC echo can't listen");
    constexpr size_t kSlots = 64;
    for (size_t i = 0; i < kSlots; ++i) {
      slots_.push_back(std::make_unique<EchoSlot>(service_, *queue_, answer_));
      slots_.back()->Accept();
    }
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
    return static_cast<uint16_t>(port);
  }

 private:
  void Serve() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<EchoSlot*>(tag)->Proceed(ok);
  }

  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  grpc::ByteBuffer answer_;
  std::vector<std::unique_ptr<EchoSlot>> slots_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectGrpc(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)))
    return channel;
  return absl::UnavailableError("bench serve: can't connect to " + address);
}

bool EndsWith(const grpc::ByteBuffer& answer, std::span<const std::byte> rows) {
  std::vector<grpc::Slice> slices;
  if (!answer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    const void* const begin = slice.begin();
    bytes.append(static_cast<const char*>(begin), slice.size());
  }
  return rows.size() <= bytes.size() &&
         std::memcmp(bytes.data() + bytes.size() - rows.size(), rows.data(), rows.size()) == 0;
}

ServeProtocol GrpcProtocol() {
  return {.name = "grpc", .encode = EncodeGrpc, .connect = GrpcServeClient::Connect};
}

absl::StatusOr<uint16_t> StartGrpcEcho(size_t message_bytes, size_t threads) {
  // Never destroyed: its threads serve to the end.
  static GrpcEcho* const echo = std::make_unique<GrpcEcho>().release();
  return echo->Start(message_bytes, threads);
}

}  // namespace hps::bench
