// The gRPC half of serve_open_client.h: calls over a few channels, one completion queue.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "bench/serve_grpc_channel.h"
#include "bench/serve_open_client.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChannels = 4;
constexpr uint64_t kAnswersPerCheck = 64;
// Answers that one Poll hands on: then it is time to send again.
constexpr int kAnswersPerPoll = 128;
// Of a call whose answer does not come: an error of the server, and not its refusal.
constexpr auto kCallTimeout = std::chrono::seconds(30);

OpenAnswer::Kind KindOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return OpenAnswer::Kind::kRows;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return OpenAnswer::Kind::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return OpenAnswer::Kind::kLate;
    default:
      return OpenAnswer::Kind::kFailed;
  }
}

struct Call {
  size_t index = 0;  // among all of the client
  size_t request = 0;
  bool compared = false;
  Clock::time_point arrival;
  grpc::ClientContext context;
  grpc::ByteBuffer answer;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
};

class GrpcOpenClient final : public OpenClient {
 public:
  GrpcOpenClient(const LoadTarget& target, size_t in_flight_max)
      : target_(target), calls_(in_flight_max) {
    for (size_t i = in_flight_max; i > 0; --i) free_.push_back(i - 1);
  }
  ~GrpcOpenClient() override {
    for (const auto& call : calls_) {
      if (call) call->context.TryCancel();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::Status Connect() {
    for (size_t i = 0; i < kChannels; ++i) {
      HPS_ASSIGN_OR_RETURN(auto channel, ConnectGrpc(target_.address));
      stubs_.emplace_back(std::move(channel));
    }
    return absl::OkStatus();
  }

  TimePoint Now() override { return Clock::now(); }

  bool Send(uint64_t number, TimePoint arrival) override {
    if (free_.empty()) return false;
    const size_t index = free_.back();
    free_.pop_back();
    calls_[index] = std::make_unique<Call>();
    Call& call = *calls_[index];
    call.index = index;
    call.request = number % target_.requests.size();
    call.compared = number % kAnswersPerCheck == 0 && !target_.rows.empty();
    call.arrival = arrival;
    call.context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    const std::string& request = target_.requests[call.request];
    const grpc::Slice slice(request.data(), request.size(), grpc::Slice::STATIC_SLICE);
    call.reader = stubs_[number % kChannels].PrepareUnaryCall(&call.context, kGrpcInferMethod,
                                                              grpc::ByteBuffer(&slice, 1), &queue_);
    call.reader->StartCall();
    call.reader->Finish(&call.answer, &call.status, &call);
    return true;
  }

  absl::Status Poll(TimePoint until,
                    const std::function<void(const OpenAnswer&)>& on_answer) override {
    const auto left = std::max(until - Now(), Clock::duration::zero());
    auto deadline = std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
    for (int i = 0; i < kAnswersPerPoll; ++i) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) break;
      deadline = {};  // what else is there now
      Call& call = *static_cast<Call*>(tag);
      const OpenAnswer::Kind kind = KindOf(call.status.error_code());
      if (call.compared && kind == OpenAnswer::Kind::kRows && !HasRows(call))
        return absl::InternalError("bench serve: an answer has other rows than the planted ones");
      on_answer({.kind = kind,
                 .code = static_cast<int>(call.status.error_code()),
                 .arrival = call.arrival,
                 .end = Now()});
      const size_t index = call.index;
      calls_[index].reset();
      free_.push_back(index);
    }
    return absl::OkStatus();
  }

  size_t in_flight() const override { return calls_.size() - free_.size(); }
  size_t connections() const override { return stubs_.size(); }

 private:
  bool HasRows(const Call& call) const {
    const std::vector<std::byte>& rows = target_.rows[call.request];
    return EndsWith(call.answer, rows);
  }

  const LoadTarget& target_;
  grpc::CompletionQueue queue_;
  std::vector<grpc::GenericStub> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;  // by index; null where free
  std::vector<size_t> free_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OpenClient>> OpenGrpcClient(const LoadTarget& target,
                                                           size_t in_flight_max) {
  auto client = std::make_unique<GrpcOpenClient>(target, in_flight_max);
  HPS_RETURN_IF_ERROR(client->Connect());
  return client;
}

}  // namespace hps::bench
