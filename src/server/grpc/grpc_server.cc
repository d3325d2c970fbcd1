#include "server/grpc/grpc_server.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/macros.h"
#include "base/server_threads.h"
#include "server/core/server_core.h"
#include "server/grpc/grpc_connection.h"

namespace hps::server {
namespace {

// The header fields and the message of the smallest request are longer than this. Pings and window
// updates are shorter.
constexpr size_t kRequestBytesMin = 64;
// Limits for health's Watch. A client has one watch for each of its connections.
constexpr size_t kWatchesMax = 512;
constexpr size_t kConnectionWatchesMax = 4;

Duration ShortestTimeout(const ServerConfig& config) {
  return std::min({config.header_timeout, config.body_timeout, config.write_timeout,
                   config.idle_timeout, config.stream_idle_timeout});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartGrpcServer(const ProtocolParts& parts,
                                                                const std::string& address) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<GrpcServer> server, GrpcServer::Start(parts, address));
  return std::unique_ptr<ProtocolServer>(std::move(server));
}

GrpcServer::GrpcServer(const ProtocolParts& parts, bool has_token)
    : ConnectionServer(parts, {.name = "hps-grpc",
                               .protocol = Protocol::kGrpc,
                               .tls_protocol = "h2",
                               .thread_count = ProtocolThreads(*parts.config),
                               .tick_period = TickPeriodFor(ShortestTimeout(*parts.config)),
                               .request_bytes_min = kRequestBytesMin}),
      control_(parts, {parts.config->repository_control && has_token}),
      places_({.places_max = kGrpcStreamsMax,
               .connection_places_max = parts.config->connection_streams_max}),
      watch_places_({.places_max = kWatchesMax,
                     .connection_places_max = kConnectionWatchesMax,
                     .name = "health watches",
                     .connection_limit = "it may have"}) {}

GrpcServer::~GrpcServer() { Stop(); }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ProtocolParts& parts,
                                                              const std::string& address) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<const TokenGuard> token,
                       TokenGuard::Create(parts.config->token_file));
  std::unique_ptr<GrpcServer> server(
      new GrpcServer(parts, token->has_token() || !parts.config->admin_token_file.empty()));
  HPS_RETURN_IF_ERROR(server->Listen(address));
  return server;
}

std::unique_ptr<ServedConnection> GrpcServer::NewConnection() {
  return std::make_unique<GrpcConnection>(*this);
}

void GrpcServer::CountBadRequest(const absl::Status& status, BadRequestReason invalid) {
  ServerCounters& counters = *parts().counters;
  if (absl::IsInvalidArgument(status)) counters.CountBadRequest(invalid);
  if (absl::IsOutOfRange(status)) counters.CountBadRequest(BadRequestReason::kLimit);
  if (absl::IsNotFound(status) || absl::IsUnimplemented(status))
    counters.CountBadRequest(BadRequestReason::kUnknown);
}

GrpcStream* GrpcServer::TakeStream(size_t connection_calls) {
  MutexLock lock(streams_mutex_);
  const size_t calls = streams_.size() - free_streams_.size();
  if (calls >= kGrpcCallsMax - kGrpcCallsKept && connection_calls >= kGrpcFewCalls) return nullptr;
  if (free_streams_.empty()) {
    if (streams_.size() == kGrpcCallsMax) return nullptr;
    free_streams_.reserve(streams_.size() + 1);  // so that ReturnStream allocates nothing
    streams_.push_back(std::make_unique<GrpcStream>(*this));
    return streams_.back().get();
  }
  GrpcStream* const stream = free_streams_.back();
  free_streams_.pop_back();
  return stream;
}

void GrpcServer::ReturnStream(GrpcStream& stream) {
  MutexLock lock(streams_mutex_);
  free_streams_.push_back(&stream);
}

}  // namespace hps::server
