#include "server/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/server_threads.h"
#include "server/core/server_core.h"
#include "server/http/host.h"
#include "server/http/http_connection.h"

namespace hps::server {
namespace {

// Threads are two for each core: a machine's cores are never all at work on long answers.
constexpr size_t kThreadsPerEncoder = 4;

// Changes of rows wait for the disk, not for a core; those of one table are applied in turn.
constexpr size_t kUpdateThreads = 4;
// One more is refused. Their bodies count as bytes in flight.
constexpr size_t kUpdatesQueuedMax = 256;

Duration ShortestTimeout(const ServerConfig& config) {
  return std::min(
      {config.header_timeout, config.body_timeout, config.write_timeout, config.idle_timeout});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartHttpServer(const ProtocolParts& parts,
                                                                const std::string& address,
                                                                HttpRole role) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server, HttpServer::Start(parts, address, role));
  return std::unique_ptr<ProtocolServer>(std::move(server));
}

HttpServer::HttpServer(const ProtocolParts& parts, HttpRole role)
    : ConnectionServer(
          parts,
          {.name = "hps-http",
           .thread_count = role == HttpRole::kMetricsOnly ? 1 : ProtocolThreads(*parts.config),
           .tick_period = TickPeriodFor(ShortestTimeout(*parts.config)),
           .is_counted = role == HttpRole::kEverything,
           .leaves_unread = role == HttpRole::kEverything}),
      role_(role) {}

HttpServer::~HttpServer() {
  Stop();
  // Another protocol's thread, which ended a call of this one, may still be on its way out of Post.
  MutexLock lock(encoders_mutex_);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ProtocolParts& parts,
                                                              const std::string& address,
                                                              HttpRole role) {
  for (const std::string& host : parts.config->hosts) {
    std::string_view name;
    if (ParseHost(host, &name) && !name.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("[server.security] hosts: '", host, "' is not a host name"));
  }
  std::unique_ptr<HttpServer> server(new HttpServer(parts, role));
  if (role == HttpRole::kEverything) {
    const size_t threads = std::max<size_t>(ProtocolThreads(*parts.config) / kThreadsPerEncoder, 1);
    HPS_ASSIGN_OR_RETURN(server->encoders_,
                         WorkerPool::Create({.name = "hps-http-encode",
                                             .thread_count = threads,
                                             .queue_max = parts.config->connections_max}));
  }
  if (role == HttpRole::kEverything && parts.config->updates) {
    HPS_ASSIGN_OR_RETURN(server->updaters_, WorkerPool::Create({.name = "hps-http-update",
                                                                .thread_count = kUpdateThreads,
                                                                .queue_max = kUpdatesQueuedMax}));
  }
  HPS_RETURN_IF_ERROR(server->Listen(address));
  return server;
}

// A browser always names a host, so a request that names none was not made by a web page.
bool HttpServer::AnswersTo(std::string_view host) const {
  if (!is_on_loopback() || host.empty() || IsLocalName(host)) return true;
  for (const std::string& listed : parts().config->hosts) {
    std::string_view name;
    if (ParseHost(listed, &name) && EqualIgnoringCase(name, host)) return true;
  }
  return !Admits(/*authorization=*/{});  // a token protects better
}

absl::Status HttpServer::PostEncoding(Task* task) {
  if (encoders_ == nullptr) return absl::UnimplementedError("no answer of metrics takes long");
  MutexLock lock(encoders_mutex_);
  return encoders_->Post(task);
}

absl::Status HttpServer::PostUpdate(Task* task) {
  if (updaters_ == nullptr) return absl::UnimplementedError("changes of rows are off");
  const absl::Status posted = updaters_->Post(task);
  if (!absl::IsResourceExhausted(posted)) return posted;
  parts().counters->CountRefused(RefusedReason::kCapacity);
  return absl::ResourceExhaustedError("too many changes of rows are waiting; try again later");
}

std::unique_ptr<ServedConnection> HttpServer::NewConnection() {
  return std::make_unique<HttpConnection>(*this);
}

// Says why, if the socket takes it at once and a client without TLS can read it.
void HttpServer::OnRefusedConnection(int fd) {
  constexpr std::string_view kAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "Content-Length: 45\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
      "{\"error\":\"the server has no connection left\"}";
  if (!parts().config->tls_certificate.empty()) return;
  // Nothing is lost when it does not: the client sees the end.
  (void)send(fd, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(fd, SHUT_WR);
}

}  // namespace hps::server
