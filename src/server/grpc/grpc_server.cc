// StartGrpcServer: the listening port, its limits, the threads that serve it, and its end.

#include <grpc/support/log.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/resource_quota.h"
#include "server/core/protocol_server.h"
#include "server/core/server_core.h"
#include "server/grpc/grpc_call.h"
#include "server/grpc/grpc_credentials.h"

namespace hps::server {
namespace {

// Calls that wait to be accepted; more than arrive between two of a thread's turns.
constexpr size_t kRequestedCalls = 64;
constexpr int kMetadataBytesMax = 16 << 10;
constexpr int kStreamsPerConnectionMax = 1024;
constexpr auto kHousekeepingPeriod = std::chrono::seconds(1);
// What gRPC itself may hold: requests and answers under way, and its own buffers for connections.
constexpr uint64_t kQuotaBesideCallsBytes = uint64_t{256} << 20;

int Milliseconds(std::chrono::nanoseconds duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

void LogFromGrpc(gpr_log_func_args* line) {
  if (line->severity == GPR_LOG_SEVERITY_ERROR) LogWarning(absl::StrCat("gRPC: ", line->message));
}

// "host:port" -> where the port begins.
absl::StatusOr<size_t> CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("[server] grpc: '", address, "' is no address: expected host:port"));
  }
  return colon + 1;
}

class GrpcServer final : public ProtocolServer, public GrpcCallHost {
 public:
  static absl::StatusOr<std::unique_ptr<ProtocolServer>> Start(const ProtocolParts& parts,
                                                               const std::string& address);
  ~GrpcServer() override;

  const std::string& address() const override { return address_; }
  absl::Status Drain(Deadline deadline) override;
  absl::Status Reopen() override;

  const ProtocolParts& parts() const override { return parts_; }
  const ControlMethods& control() const override { return control_; }
  std::shared_ptr<const TokenGuard> token() const override {
    MutexLock lock(mutex_);
    return token_;
  }
  ResponseBufferPool& buffers() override { return *buffers_; }
  WorkerPool& slow_work() override { return *slow_work_; }
  StreamPlaces& streams() override { return streams_; }
  bool is_draining() const override { return draining_.load(std::memory_order_acquire); }
  bool OnAccepted() override;
  void OnEnded(GrpcCall& call) override;
  void OnNotAccepted() override;

 private:
  // Serves one completion queue until it is shut down.
  class PollTask final : public Task {
   public:
    explicit PollTask(grpc::ServerCompletionQueue& queue) : queue_(queue) {}
    void Run() override;

   private:
    grpc::ServerCompletionQueue& queue_;
  };
  // Ends calls whose clients keep them waiting.
  class HousekeepingTask final : public Task {
   public:
    explicit HousekeepingTask(GrpcServer& server) : server_(server) {}
    void Run() override { server_.KeepHouse(); }

   private:
    GrpcServer& server_;
  };

  GrpcServer(const ProtocolParts& parts, std::shared_ptr<const TokenGuard> token)
      : parts_(parts),
        control_(parts, {parts.config->repository_control && token->has_token()}),
        token_(std::move(token)) {}

  absl::Status Listen(const std::string& address);
  void SetLimits(grpc::ServerBuilder* builder) const;
  absl::Status Serve();
  void RequestCall();
  void KeepHouse();
  void ForEachCall(absl::FunctionRef<void(GrpcCall&)> act);
  void Close();

  const ProtocolParts parts_;
  const ControlMethods control_;
  const std::shared_ptr<ResponseBufferPool> buffers_ =
      std::make_shared<ResponseBufferPool>(kResponseBytesKeptMax);
  StreamPlaces streams_{{.places_max = kGrpcStreamsMax,
                         .connection_places_max = parts_.config->connection_streams_max}};
  std::shared_ptr<CertificateStore> certificates_;
  std::string address_;

  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<PollTask>> poll_tasks_;
  HousekeepingTask housekeeping_task_{*this};

  mutable Mutex mutex_;
  CondVar stopped_;
  CondVar calls_ended_;
  std::shared_ptr<const TokenGuard> token_ HPS_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<GrpcCall>> calls_ HPS_GUARDED_BY(mutex_);
  std::vector<GrpcCall*> free_calls_ HPS_GUARDED_BY(mutex_);
  size_t busy_calls_ HPS_GUARDED_BY(mutex_) = 0;     // that wait for a client, or serve one
  size_t missing_calls_ HPS_GUARDED_BY(mutex_) = 0;  // that there was no memory to wait with
  std::atomic<bool> draining_ = false;               // set under mutex_
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> active_calls_ = 0;

  Mutex drain_mutex_;
  bool drained_ HPS_GUARDED_BY(drain_mutex_) = false;
  absl::Status drain_status_ HPS_GUARDED_BY(drain_mutex_);

  std::unique_ptr<WorkerPool> slow_work_;
  std::unique_ptr<WorkerPool> threads_;
};

absl::StatusOr<std::unique_ptr<ProtocolServer>> GrpcServer::Start(const ProtocolParts& parts,
                                                                  const std::string& address) {
  HPS_RETURN_IF_ERROR(CheckAddress(address).status());
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<const TokenGuard> token,
                       TokenGuard::Create(parts.config->token_file));
  std::unique_ptr<GrpcServer> server(new GrpcServer(parts, std::move(token)));
  if (!parts.config->tls_certificate.empty()) {
    HPS_ASSIGN_OR_RETURN(server->certificates_, CertificateStore::Create(*parts.config));
  }
  HPS_RETURN_IF_ERROR(server->Listen(address));
  HPS_RETURN_IF_ERROR(server->Serve());
  return server;
}

void GrpcServer::SetLimits(grpc::ServerBuilder* builder) const {
  const ServerConfig& config = *parts_.config;
  constexpr auto kMessageMax = uint64_t{1} << 31;
  builder->SetMaxReceiveMessageSize(
      static_cast<int>(std::min(config.body_bytes_max, kMessageMax - 1)));
  // Inflated by us, within that bound, too (message_inflater.h).
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->SetMaxSendMessageSize(-1);  // Prepare bounds the answers
  grpc::ResourceQuota quota("hps");
  quota.Resize(config.bytes_in_flight_max + kQuotaBesideCallsBytes);
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // one server on an address
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(config.idle_timeout));
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(config.header_timeout));
  // A peer that has vanished is noticed after two minutes and twenty seconds; one that pings more
  // than every ten seconds is cut off.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 120'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
}

absl::Status GrpcServer::Listen(const std::string& address) {
  HPS_ASSIGN_OR_RETURN(const size_t port_at, CheckAddress(address));
  gpr_set_log_function(&LogFromGrpc);
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  int port = 0;
  builder.AddListeningPort(address,
                           certificates_ == nullptr ? grpc::InsecureServerCredentials()
                                                    : CertificateStore::Credentials(certificates_),
                           &port);
  builder.RegisterAsyncGenericService(&service_);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("[server] grpc: can't listen on '", address, "' (in use?)"));
  }
  address_ = absl::StrCat(address.substr(0, port_at), port);
  return absl::OkStatus();
}

absl::Status GrpcServer::Serve() {
  HPS_ASSIGN_OR_RETURN(
      slow_work_,
      WorkerPool::Create({.name = "hps-grpc-slow", .thread_count = 1, .queue_max = 64}));
  const size_t thread_count = ProtocolThreads(*parts_.config);
  HPS_ASSIGN_OR_RETURN(threads_, WorkerPool::Create({.name = "hps-grpc",
                                                     .thread_count = thread_count + 1,
                                                     .queue_max = thread_count + 1}));
  for (size_t i = 0; i < kRequestedCalls; ++i) RequestCall();
  HPS_RETURN_IF_ERROR(threads_->Post(&housekeeping_task_));
  for (size_t i = 0; i < thread_count; ++i) {
    poll_tasks_.push_back(std::make_unique<PollTask>(*queue_));
    HPS_RETURN_IF_ERROR(threads_->Post(poll_tasks_.back().get()));
  }
  return absl::OkStatus();
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) (void)Drain(RealClock().Now());
  Close();
}

void GrpcServer::PollTask::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const auto* const event = static_cast<GrpcCall::Tag*>(tag);
    event->call->OnEvent(event->event, ok);
  }
}

void GrpcServer::RequestCall() {
  MutexLock lock(mutex_);
  if (is_draining()) return;
  try {
    if (free_calls_.empty()) {
      free_calls_.reserve(calls_.size() + 1);  // so that OnEnded allocates nothing
      calls_.push_back(std::make_unique<GrpcCall>(*this, *queue_));
      free_calls_.push_back(calls_.back().get());
    }
    // Under the lock: no call is requested once the drain has begun.
    free_calls_.back()->Request(service_);
    free_calls_.pop_back();
    ++busy_calls_;
  } catch (const std::bad_alloc&) {
    ++missing_calls_;  // KeepHouse asks again
  }
}

bool GrpcServer::OnAccepted() {
  const size_t active = active_calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  RequestCall();
  return active <= kGrpcCallsMax;
}

void GrpcServer::OnEnded(GrpcCall& call) {
  active_calls_.fetch_sub(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  free_calls_.push_back(&call);
  if (--busy_calls_ == 0) calls_ended_.NotifyAll();
}

void GrpcServer::OnNotAccepted() {
  MutexLock lock(mutex_);
  if (--busy_calls_ == 0) calls_ended_.NotifyAll();
}

void GrpcServer::KeepHouse() {
  for (;;) {
    size_t missing = 0;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && stopped_.WaitUntil(mutex_, RealClock().Now() + kHousekeepingPeriod)) {
      }
      if (stopping_) return;
      missing = std::exchange(missing_calls_, 0);
    }
    for (; missing > 0; --missing) RequestCall();
    ForEachCall([](GrpcCall& call) {
      call.CancelIfStuck(RealClock().Now());
      call.TellWatcher();
    });
  }
}

// Calls are added at the end, and stay.
void GrpcServer::ForEachCall(absl::FunctionRef<void(GrpcCall&)> act) {
  for (size_t i = 0;; ++i) {
    GrpcCall* call = nullptr;
    {
      MutexLock lock(mutex_);
      if (i == calls_.size()) return;
      call = calls_[i].get();
    }
    act(*call);
  }
}

absl::Status GrpcServer::Drain(Deadline deadline) {
  MutexLock drain_lock(drain_mutex_);
  if (drained_) return drain_status_;
  drained_ = true;
  {
    MutexLock lock(mutex_);
    draining_.store(true, std::memory_order_release);
  }
  ForEachCall([](GrpcCall& call) { call.EndIfIdleStream(); });
  // GOAWAY to all; returns when their calls have ended, or cuts them off at the deadline.
  const Duration left = std::max<Duration>(deadline - RealClock().Now(), Duration::zero());
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
  if (RealClock().Now() >= deadline) {
    drain_status_ = absl::DeadlineExceededError("gRPC calls were cut off at the drain's deadline");
  }
  return drain_status_;
}

void GrpcServer::Close() {
  {
    MutexLock lock(mutex_);
    // A call that was cut off while its rows are looked up still ends by an operation of gRPC,
    // which ends the process on a queue that is shut down. Look-ups end by their deadlines.
    while (busy_calls_ > 0 && !poll_tasks_.empty())
      calls_ended_.WaitUntil(mutex_, RealClock().Now() + kHousekeepingPeriod);
    stopping_ = true;
    stopped_.NotifyAll();
  }
  slow_work_.reset();
  if (queue_ != nullptr) queue_->Shutdown();
  threads_.reset();
  if (queue_ == nullptr) return;
  // Without threads, when they could not be started: the queue must be empty in the end.
  PollTask(*queue_).Run();
}

absl::Status GrpcServer::Reopen() {
  HPS_ASSIGN_OR_RETURN(std::shared_ptr<const TokenGuard> token,
                       TokenGuard::Create(parts_.config->token_file));
  if (certificates_ != nullptr) HPS_RETURN_IF_ERROR(certificates_->Reload());
  MutexLock lock(mutex_);
  token_ = std::move(token);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartGrpcServer(const ProtocolParts& parts,
                                                                const std::string& address) {
  return GrpcServer::Start(parts, address);
}

}  // namespace hps::server
