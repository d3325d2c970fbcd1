#include "hps/server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/public_message.h"
#include "base/unix_time.h"
#include "hps/store.h"
#include "server/core/server_core.h"
#include "server/listen_policy.h"
#include "server/pages/history.h"
#include "server/pages/pages.h"
#include "server/pages/process_statistics.h"

namespace hps {
namespace {

using server::ProtocolServer;
using server::ServerCore;

// What a protocol that has to cut off its connections may take beyond the deadline.
constexpr Duration kCutOffMax = std::chrono::seconds(10);
// How long before a drain's deadline lookups are ended, so that their answers are sent in time.
constexpr Duration kLastAnswersMax = std::chrono::seconds(1);
// What a scrape that has begun may take beyond all else.
constexpr Duration kScrapeMax = std::chrono::milliseconds(500);
// What giving everything back may take beyond the drain's deadline.
constexpr Duration kCloseMax = std::chrono::milliseconds(500);

bool HasToken(const ServerConfig& config) {
  const char* token = std::getenv("HPS_TOKEN");
  return !config.token_file.empty() || (token != nullptr && *token != '\0');
}

double SecondsSince(TimePoint begin) {
  return std::chrono::duration<double>(RealClock().Now() - begin).count();
}

// The members end in the opposite order of their making: the threads that load, the protocols (no
// call is left then), the pages and their history, the core, the store.
class RunningServer final : public Server {
 public:
  RunningServer(const Config& config, std::function<void(const LoadReport&)> on_loaded)
      : config_(config), on_loaded_(std::move(on_loaded)) {}
  ~RunningServer() override { Drain().IgnoreError(); }

  absl::Status Open();

  const ServerAddresses& addresses() const override { return addresses_; }
  absl::Status Drain() override;
  absl::Status Close() override;
  absl::Status Reopen() override;

 private:
  class DrainTask final : public Task {
   public:
    void Run() override {
      status = protocol->Drain(deadline);
      done->CountDown();
    }

    ProtocolServer* protocol = nullptr;
    Deadline deadline = kNoDeadline;
    absl::Status status;
    Latch* done = nullptr;
  };

  absl::Status ShareOpenFiles();
  absl::Status StartProtocols();
  absl::Status Add(absl::StatusOr<std::unique_ptr<ProtocolServer>> protocol, std::string* address);
  void Load();
  void WarnOfCertificate() const;
  absl::Status DrainProtocols() HPS_REQUIRES(drain_mutex_);
  void EndParts();

  Config config_;  // as given, but for connections_max: see ShareOpenFiles
  ServerConfig metrics_config_;
  const std::function<void(const LoadReport&)> on_loaded_;
  const TimePoint started_at_ = RealClock().Now();
  double open_seconds_ = 0;
  ServerAddresses addresses_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<server::History> history_;
  std::unique_ptr<server::PageSource> pages_;
  std::vector<std::unique_ptr<ProtocolServer>> protocols_;
  std::unique_ptr<ProtocolServer> metrics_;  // tells of the others' drain, so drains after them
  Mutex drain_mutex_;
  bool drained_ HPS_GUARDED_BY(drain_mutex_) = false;
  absl::Status drain_status_ HPS_GUARDED_BY(drain_mutex_);
  Deadline drain_deadline_ HPS_GUARDED_BY(drain_mutex_) = Deadline::min();
  FunctionTask load_task_{[this] { Load(); }};
  std::unique_ptr<WorkerPool> drain_pool_;
  std::unique_ptr<WorkerPool> load_pool_;
  FunctionTask close_task_{[this] {
    EndParts();
    closed_.CountDown();
  }};
  Latch closed_{1};
  std::unique_ptr<WorkerPool> close_pool_;
};

absl::Status RunningServer::Open() {
  HPS_RETURN_IF_ERROR(server::CheckSecrets(config_.server));
  HPS_ASSIGN_OR_RETURN(store_, Store::Open(config_, OpenMode::kServe));
  open_seconds_ = SecondsSince(started_at_);
  HPS_RETURN_IF_ERROR(ShareOpenFiles());
  HPS_ASSIGN_OR_RETURN(core_,
                       ServerCore::Create(config_, store_->models(), {.started_at = started_at_}));
  HPS_ASSIGN_OR_RETURN(history_, server::History::Start(*core_, *store_));
  pages_ = server::MakePages({.config = &config_,
                              .store = store_.get(),
                              .statistics = core_.get(),
                              .repository = &core_->repository(),
                              .history = history_.get()});
  HPS_RETURN_IF_ERROR(StartProtocols());
  for (const std::string& warning :
       server::ListenWarnings(config_.server, HasToken(config_.server))) {
    LogWarning(warning);
  }
  WarnOfCertificate();
  HPS_ASSIGN_OR_RETURN(
      drain_pool_, WorkerPool::Create({.name = "hps-drain", .thread_count = 3, .queue_max = 3}));
  HPS_ASSIGN_OR_RETURN(load_pool_,
                       WorkerPool::Create({.name = "hps-load", .thread_count = 1, .queue_max = 1}));
  return load_pool_->Post(&load_task_);
}

// So that connections of clients leave files for the store and for the metrics port.
absl::Status RunningServer::ShareOpenFiles() {
  const server::ProcessStatistics process = server::ReadProcessStatistics();
  metrics_config_ = config_.server;
  if (process.open_files_max == 0) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(
      const server::ConnectionShares shares,
      server::ShareFiles(config_.server, process.open_files, process.open_files_max));
  metrics_config_.connections_max = shares.metrics_max;
  if (shares.each_max == config_.server.connections_max) return absl::OkStatus();
  LogWarning(absl::StrCat("[server] connections_max = ", config_.server.connections_max,
                          " is lowered to ", shares.each_max, ": this process may open ",
                          process.open_files_max,
                          " files; raise the limit (LimitNOFILE, ulimit -n)"));
  config_.server.connections_max = shares.each_max;
  return absl::OkStatus();
}

absl::Status RunningServer::StartProtocols() {
  server::ProtocolParts parts = {.config = &config_.server,
                                 .inference = &core_->engine(),
                                 .repository = &core_->repository(),
                                 .pages = pages_.get(),
                                 .store = store_.get(),
                                 .statistics = core_.get(),
                                 .counters = &core_->counters()};
  const ServerConfig& config = config_.server;
  if (!config.http.empty()) {
    HPS_RETURN_IF_ERROR(
        Add(server::StartHttpServer(parts, config.http, server::HttpRole::kEverything),
            &addresses_.http));
  }
  if (!config.grpc.empty()) {
    absl::StatusOr<std::unique_ptr<ProtocolServer>> grpc =
        server::StartGrpcServer(parts, config.grpc);
    // What a build lacks may have its default value, and no other.
    if (absl::IsUnimplemented(grpc.status()) && config.grpc == ServerConfig().grpc) {
      LogWarning("gRPC is not served: this build does not have it");
    } else {
      HPS_RETURN_IF_ERROR(Add(std::move(grpc), &addresses_.grpc));
    }
  }
  if (!config.metrics.empty()) {
    parts.config = &metrics_config_;
    HPS_ASSIGN_OR_RETURN(
        metrics_, server::StartHttpServer(parts, config.metrics, server::HttpRole::kMetricsOnly));
    addresses_.metrics = metrics_->address();
  }
  return absl::OkStatus();
}

absl::Status RunningServer::Add(absl::StatusOr<std::unique_ptr<ProtocolServer>> protocol,
                                std::string* address) {
  HPS_RETURN_IF_ERROR(protocol.status());
  *address = (*protocol)->address();
  protocols_.push_back(*std::move(protocol));
  return absl::OkStatus();
}

void RunningServer::Load() {
  LoadReport report{.status = core_->LoadAll(), .open_seconds = open_seconds_};
  report.seconds = SecondsSince(started_at_);
  for (const server::ModelIndexEntry& model : core_->repository().Index())
    report.models += model.state == server::ModelState::kReady ? 1 : 0;
  if (report.status.ok()) {
    LogInfo(absl::StrCat("ready after ", report.seconds, " s; models: ", report.models));
  } else {
    LogError(absl::StrCat("not ready: ", TextForLog(report.status)));
  }
  if (on_loaded_) on_loaded_(report);
}

absl::Status RunningServer::Drain() {
  MutexLock lock(drain_mutex_);
  if (!drained_) {
    drained_ = true;
    drain_status_ = DrainProtocols();
  }
  return drain_status_;
}

absl::Status RunningServer::DrainProtocols() {
  if (core_ == nullptr || drain_pool_ == nullptr) return absl::OkStatus();  // it did not start
  LogInfo("draining");
  core_->BeginDrain();
  store_->models().StopPreloading();
  const Duration timeout = config_.server.drain_timeout;
  const Deadline deadline = drain_deadline_ = DeadlineAfter(RealClock(), timeout);
  Latch done(protocols_.size());
  std::vector<DrainTask> tasks(protocols_.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].protocol = protocols_[i].get();
    tasks[i].deadline = deadline;
    tasks[i].done = &done;
    if (!drain_pool_->Post(&tasks[i]).ok()) tasks[i].Run();
  }
  if (!drain_pool_->Await(done, deadline - std::min(timeout / 4, kLastAnswersMax)))
    core_->EndCalls();
  // They keep the deadline themselves.
  while (!drain_pool_->Await(done, DeadlineAfter(RealClock(), kCutOffMax))) continue;
  absl::Status status;
  for (const DrainTask& task : tasks) status.Update(task.status);
  core_->RefuseCalls();
  // A scrape that is cut off is no answer that was owed.
  if (metrics_ != nullptr) metrics_->Drain(DeadlineAfter(RealClock(), kScrapeMax)).IgnoreError();
  if (status.ok()) {
    LogInfo("drained");
  } else {
    LogWarning(absl::StrCat("drained, but not all of it: ", status.ToString()));
  }
  return status;
}

absl::Status RunningServer::Close() {
  Drain().IgnoreError();  // what it had to cut off is told by Drain
  MutexLock lock(drain_mutex_);
  if (!close_pool_) {
    HPS_ASSIGN_OR_RETURN(close_pool_, WorkerPool::Create({.name = "hps-close", .queue_max = 1}));
    HPS_RETURN_IF_ERROR(close_pool_->Post(&close_task_));
  }
  const Deadline deadline = std::max(drain_deadline_, RealClock().Now()) + kCloseMax;
  if (close_pool_->Await(closed_, deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the server has ended, but something that it asked for has not: what holds it is left "
      "behind");
}

// In the order in which the members end, too.
void RunningServer::EndParts() {
  load_pool_.reset();
  drain_pool_.reset();
  metrics_.reset();
  protocols_.clear();
  pages_.reset();
  history_.reset();
  core_.reset();
  store_.reset();
}

void RunningServer::WarnOfCertificate() const {
  const server::ServerStatistics statistics = core_->Snapshot();
  if (statistics.certificate_not_after == 0) return;
  const std::string warning = server::CertificateWarning(statistics, UnixMilliseconds() / 1000);
  if (!warning.empty()) LogWarning(warning);
}

absl::Status RunningServer::Reopen() {
  absl::Status status = server::CheckSecrets(config_.server);
  if (status.ok()) {
    for (const auto& protocol : protocols_) status.Update(protocol->Reopen());
    if (metrics_ != nullptr) status.Update(metrics_->Reopen());
  }
  if (status.ok()) {
    LogInfo("certificates and token were read again");
    WarnOfCertificate();
  } else {
    LogError(absl::StrCat("the former certificates or token stay in use: ", status.ToString()));
  }
  return status;
}

}  // namespace

absl::Status Server::Check(const Config& config) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  HPS_RETURN_IF_ERROR(server::CheckControl(
      config.server, HasToken(config.server) || !config.server.admin_token_file.empty()));
  return server::CheckAddresses(config);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const Config& config, std::function<void(const LoadReport&)> on_loaded) {
  HPS_RETURN_IF_ERROR(Check(config));
  auto server = std::make_unique<RunningServer>(config, std::move(on_loaded));
  HPS_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace hps
