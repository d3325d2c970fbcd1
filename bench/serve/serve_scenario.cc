// The server under load: `hps serve` in a process of its own on loopback, over a small store that
// level 2 holds. Load generator and server share the machine's cores.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/latency_histogram.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_load.h"
#include "bench/serve/serve_open_client.h"
#include "bench/serve/serve_overload.h"
#include "bench/serve/serve_redis.h"
#include "bench/serve/serve_triton.h"
#include "bench/serve/serve_world.h"
#include "hps/config.h"
#include "hps/store.h"

namespace hps::bench {
namespace {

constexpr size_t kRequests = 8;  // in rotation, so that no request finds the rows of the last one
constexpr size_t kRowBytes = kServeDim * sizeof(float);
// Of the open loop: half of the connections that a server takes by default, and what each request
// may take.
constexpr size_t kOpenInFlightMax = 2048;
constexpr std::chrono::microseconds kTimeout{50'000};
// What an answer of gRPC has beside the rows, about.
constexpr size_t kGrpcFrameBytes = 64;

struct Sizes {
  size_t rows = 0;
  double closed_seconds = 0;
  double open_seconds = 0;
  size_t latency_rounds = 0;
  uint64_t many_requests = 0;
  double idle_seconds = 0;
  bool is_quick = false;
};

std::vector<std::pair<double, double>> Points(const std::vector<double>& latencies_us) {
  LatencyHistogram histogram;
  for (const double us : latencies_us)
    histogram.Add(std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3)));
  return histogram.Points();
}

void AddLatencies(LoadFigures& figures, Result* result) {
  result->p50 = Median(figures.latencies_us);
  result->p99 = Quantile(figures.latencies_us, 0.99);
  result->runs = figures.answered();
  result->latency_points = Points(figures.latencies_us);
}

// Resident memory gained; less is no gain.
Result Growth(std::string name, uint64_t before_bytes, uint64_t after_bytes) {
  const double gained = static_cast<double>(after_bytes) - static_cast<double>(before_bytes);
  Result result =
      MakeResult(std::move(name), "MiB", std::max(gained, 0.0) / (1 << 20), std::nullopt);
  result.target = "<= 8";
  return result;
}

absl::StatusOr<double> TimeAsk(ServeClient& client, const std::string& request) {
  const Stopwatch watch;
  HPS_ASSIGN_OR_RETURN(const Answer answer, client.Ask(request));
  const double us = watch.us();
  if (answer != Answer::kRows) return absl::InternalError("bench serve: refused when idle");
  return us;
}

// The parts of the scenario, in order; each appends its results.
class ServeBench {
 public:
  ServeBench(ServeWorld& world, const Sizes& sizes) : world_(world), sizes_(sizes) {}

  absl::Status Run(std::vector<Result>& results);

 private:
  LoadTarget Target(const ServeProtocol& protocol, size_t key_count,
                    std::chrono::microseconds timeout) const;
  absl::Status MeasureAdded(std::vector<Result>& results);
  absl::StatusOr<Result> MeasureAdded(const ServeProtocol& protocol, const std::string& echo);
  absl::Status MeasureClosed(const ServeProtocol& protocol, std::vector<Result>& results);
  absl::Status MeasureOpen(const ServeProtocol& protocol, std::vector<Result>& results);
  absl::Status MeasureMany(const ServeProtocol& protocol, std::vector<Result>& results);
  absl::Status MeasureIdle(std::vector<Result>& results);
  absl::Status MeasureRedis(std::vector<Result>& results);
  void MeasureTriton(std::vector<Result>& results);

  ServeWorld& world_;
  const Sizes sizes_;
  std::vector<ServeProtocol> protocols_;
};

LoadTarget ServeBench::Target(const ServeProtocol& protocol, size_t key_count,
                              std::chrono::microseconds timeout) const {
  LoadTarget target{.protocol = &protocol,
                    .address = protocol.name == "http" ? world_.http() : world_.grpc()};
  for (size_t i = 0; i < kRequests; ++i) {
    ServeRequest request = world_.MakeRequest(key_count, i);
    target.requests.push_back(protocol.encode(request.keys, timeout));
    target.rows.push_back(std::move(request.rows));
  }
  return target;
}

// Both echoes in a process of their own, with as many threads as the server has: in this one they
// would share gRPC's polling with the client. Made before this process uses gRPC.
absl::StatusOr<std::unique_ptr<ChildProcess>> StartEchoes(size_t body_bytes, bool with_grpc) {
  return ChildProcess::Start([=](int output) {
    const size_t threads = 2 * std::max(std::thread::hardware_concurrency(), 1u);
    const absl::StatusOr<uint16_t> http = StartHttpEcho(body_bytes, threads);
    const absl::StatusOr<uint16_t> grpc =
        with_grpc ? StartGrpcEcho(kServeKeys * kRowBytes + kGrpcFrameBytes, threads)
                  : absl::StatusOr<uint16_t>(uint16_t{0});
    if (!http.ok() || !grpc.ok()) return EXIT_FAILURE;
    const std::string ports = absl::StrCat(*http, " ", *grpc, "\n");
    if (write(output, ports.data(), ports.size()) < 0) return EXIT_FAILURE;
    for (;;) pause();
  });
}

absl::Status ServeBench::MeasureAdded(std::vector<Result>& results) {
  const ServeProtocol http = HttpProtocol();
  const LoadTarget target = Target(http, kServeKeys, {});
  HPS_ASSIGN_OR_RETURN(const auto client, http.connect(target.address));
  HPS_RETURN_IF_ERROR(TimeAsk(*client, target.requests[0]).status());
  HPS_ASSIGN_OR_RETURN(const auto echoes,
                       StartEchoes(client->answer_bytes(), !world_.grpc().empty()));
  HPS_ASSIGN_OR_RETURN(const std::string ports, echoes->ReadUntil('\n'));
  const size_t space = ports.find(' ');
  for (const ServeProtocol& protocol : protocols_) {
    const std::string port = protocol.name == "http"
                                 ? ports.substr(0, space)
                                 : ports.substr(space + 1, ports.size() - space - 2);
    HPS_ASSIGN_OR_RETURN(Result result, MeasureAdded(protocol, "127.0.0.1:" + port));
    results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> ServeBench::MeasureAdded(const ServeProtocol& protocol,
                                                const std::string& echo_address) {
  const LoadTarget target = Target(protocol, kServeKeys, {});
  HPS_ASSIGN_OR_RETURN(const auto server, protocol.connect(target.address));
  HPS_ASSIGN_OR_RETURN(const auto echo, protocol.connect(echo_address));
  HPS_ASSIGN_OR_RETURN(const Config config, LoadConfig(world_.config_path()));
  HPS_ASSIGN_OR_RETURN(const auto store, Store::Open(config, OpenMode::kReadOnly));
  HPS_ASSIGN_OR_RETURN(const auto session, store->NewSession(kServeModel, {}));
  HPS_ASSIGN_OR_RETURN(const TableIndex table, session->FindTable(kServeTable));
  std::vector<std::byte> rows(kServeKeys * kRowBytes);
  std::vector<std::vector<Key>> keys;
  for (size_t i = 0; i < kRequests; ++i) keys.push_back(world_.MakeRequest(kServeKeys, i).keys);
  std::vector<double> server_us, echo_us, lookup_us;
  const size_t warm_up = sizes_.latency_rounds / 10 + 1;
  constexpr size_t kTurn = 32;  // requests of one kind, then of the next
  for (size_t round = 0; round < warm_up + sizes_.latency_rounds; ++round) {
    if (round == warm_up) {
      for (auto* times : {&server_us, &echo_us, &lookup_us}) times->clear();
    }
    for (size_t i = 0; i < kTurn; ++i) {
      HPS_ASSIGN_OR_RETURN(const double us, TimeAsk(*server, target.requests[i % kRequests]));
      server_us.push_back(us);
      if (!server->EndsWith(target.rows[i % kRequests]))
        return absl::InternalError("bench serve: an answer has other rows than the planted ones");
    }
    for (size_t i = 0; i < kTurn; ++i) {
      HPS_ASSIGN_OR_RETURN(const double us, TimeAsk(*echo, target.requests[i % kRequests]));
      echo_us.push_back(us);
    }
    for (size_t i = 0; i < kTurn; ++i) {
      const HostTableQuery query{.table = table, .keys = keys[i % kRequests], .rows = rows};
      const Stopwatch watch;
      HPS_RETURN_IF_ERROR(session->Lookup({.queries = {&query, 1}}, nullptr));
      lookup_us.push_back(watch.us());
    }
  }
  const double lookup = Median(lookup_us);
  Result result = MakeResult("latency_added", "us", Median(server_us) - lookup, Median(echo_us));
  result.params = {{"protocol", protocol.name}, {"keys", absl::StrCat(kServeKeys)}};
  result.measured = {{"lookup_us", lookup}};
  result.target = "<= 1.3";
  result.p50 = Median(server_us);
  result.p99 = Quantile(server_us, 0.99);
  result.runs = server_us.size();
  return result;
}

absl::Status ServeBench::MeasureClosed(const ServeProtocol& protocol,
                                       std::vector<Result>& results) {
  const LoadTarget target = Target(protocol, kServeKeys, {});
  for (const size_t connections : {1, 4, 16}) {
    HPS_RETURN_IF_ERROR(
        RunClosed(target, {.connections = connections, .seconds = sizes_.closed_seconds / 4})
            .status());
    HPS_ASSIGN_OR_RETURN(
        LoadFigures figures,
        RunClosed(target, {.connections = connections, .seconds = sizes_.closed_seconds}));
    Result result = MakeResult("closed_loop", "requests/s", figures.PerSecond(), std::nullopt);
    result.params = {{"protocol", protocol.name},
                     {"keys", absl::StrCat(kServeKeys)},
                     {"concurrency", absl::StrCat(connections)}};
    AddLatencies(figures, &result);
    results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

absl::Status ServeBench::MeasureOpen(const ServeProtocol& protocol, std::vector<Result>& results) {
  const LoadTarget target = Target(protocol, kServeKeys, kTimeout);
  return MeasureOverload(
      {.server = &world_.server(),
       .target = &target,
       .open = protocol.name == "http" ? OpenHttpClient : OpenGrpcClient},
      {.seconds = sizes_.open_seconds, .in_flight_max = kOpenInFlightMax, .timeout = kTimeout},
      results);
}

// Smaller requests than elsewhere, so that there is time for so many.
absl::Status ServeBench::MeasureMany(const ServeProtocol& protocol, std::vector<Result>& results) {
  constexpr size_t kFewKeys = 16;
  constexpr double kSecondsMax = 90;
  const uint64_t requests = sizes_.many_requests;
  const LoadTarget target = Target(protocol, kFewKeys, {});
  ClosedLoad load{.connections = 4, .seconds = kSecondsMax, .requests_max = requests / 20};
  HPS_RETURN_IF_ERROR(RunClosed(target, load).status());
  const uint64_t before_bytes = world_.server().resident_bytes();
  load.requests_max = requests;
  HPS_ASSIGN_OR_RETURN(LoadFigures figures, RunClosed(target, load));
  Result result = Growth("many_requests_memory", before_bytes, world_.server().resident_bytes());
  result.params = {{"protocol", protocol.name},
                   {"keys", absl::StrCat(kFewKeys)},
                   {"requests", absl::StrCat(requests)}};
  AddLatencies(figures, &result);
  result.measured = {{"requests_per_second", figures.PerSecond()}};
  // A figure of fewer requests is no answer to what so many leave behind.
  if (figures.answered() < requests) result.target = "";
  results.push_back(std::move(result));
  return absl::OkStatus();
}

// Processor time of a server with an open connection of each protocol that asks nothing.
absl::Status ServeBench::MeasureIdle(std::vector<Result>& results) {
  std::vector<std::unique_ptr<ServeClient>> clients;
  for (const ServeProtocol& protocol : protocols_) {
    const LoadTarget target = Target(protocol, 1, {});
    HPS_ASSIGN_OR_RETURN(auto client, protocol.connect(target.address));
    HPS_RETURN_IF_ERROR(TimeAsk(*client, target.requests[0]).status());
    clients.push_back(std::move(client));
  }
  const double before = world_.server().processor_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(sizes_.idle_seconds));
  Result result = MakeResult("idle_processor_time", "s",
                             world_.server().processor_seconds() - before, std::nullopt);
  result.params = {{"seconds", absl::StrCat(sizes_.idle_seconds)}};
  result.target = "<= 0.01";  // one tick of the clock that it is read from
  results.push_back(std::move(result));
  return absl::OkStatus();
}

// The rows/s of both, the best of some numbers of connections.
absl::Status ServeBench::MeasureRedis(std::vector<Result>& results) {
  const absl::StatusOr<std::unique_ptr<RedisPeer>> redis = RedisPeer::Start(world_);
  if (absl::IsNotFound(redis.status())) {
    results.push_back(SkippedResult("redis_mget", "rows/s",
                                    "no redis-server on the path: run tools/bootstrap.sh bench"));
    return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(redis.status());
  std::vector<ServeRequest> requests;
  for (size_t i = 0; i < kRequests; ++i) requests.push_back(world_.MakeRequest(kServeKeys, i));
  const LoadTarget& theirs = (*redis)->Target(requests);
  const ServeProtocol http = HttpProtocol();
  const LoadTarget ours = Target(http, kServeKeys, {});
  double our_peak = 0;
  double their_peak = 0;
  for (const size_t connections : {1, 4, 16}) {
    const ClosedLoad load{.connections = connections, .seconds = sizes_.closed_seconds};
    HPS_ASSIGN_OR_RETURN(const LoadFigures redis_figures, RunClosed(theirs, load));
    HPS_ASSIGN_OR_RETURN(const LoadFigures our_figures, RunClosed(ours, load));
    their_peak = std::max(their_peak, redis_figures.PerSecond());
    our_peak = std::max(our_peak, our_figures.PerSecond());
  }
  Result result =
      MakeResult("redis_mget", "rows/s", our_peak * kServeKeys, their_peak * kServeKeys);
  result.params = {{"keys", absl::StrCat(kServeKeys)},
                   {"row_bytes", absl::StrCat(kRowBytes)},
                   {"protocol", "http"}};
  result.target = ">= 8";
  results.push_back(std::move(result));
  return absl::OkStatus();
}

// A peer that can't be measured is no error of the server's: the row says why it is empty.
void ServeBench::MeasureTriton(std::vector<Result>& results) {
  const absl::StatusOr<std::vector<Result>> rows = [&]() -> absl::StatusOr<std::vector<Result>> {
    if (sizes_.is_quick) return absl::UnavailableError("too long for --quick");
    HPS_ASSIGN_OR_RETURN(const TritonPeer peer, FindTritonPeer(world_.program()));
    return RunTritonPeer(peer, world_.directory());
  }();
  if (rows.ok()) {
    results.insert(results.end(), rows->begin(), rows->end());
  } else {
    results.push_back(SkippedResult("triton", "requests/s", std::string(rows.status().message())));
  }
}

absl::Status ServeBench::Run(std::vector<Result>& results) {
  protocols_.push_back(HttpProtocol());
  if (!world_.grpc().empty()) protocols_.push_back(GrpcProtocol());
  HPS_RETURN_IF_ERROR(MeasureAdded(results));
  for (const ServeProtocol& protocol : protocols_)
    HPS_RETURN_IF_ERROR(MeasureClosed(protocol, results));
  for (const ServeProtocol& protocol : protocols_)
    HPS_RETURN_IF_ERROR(MeasureOpen(protocol, results));
  HPS_RETURN_IF_ERROR(MeasureRedis(results));
  for (const ServeProtocol& protocol : protocols_)
    HPS_RETURN_IF_ERROR(MeasureMany(protocol, results));
  HPS_RETURN_IF_ERROR(MeasureIdle(results));
  MeasureTriton(results);
  return absl::OkStatus();
}

// Descriptors for all connections of the open loop, here and in the server, which inherits it: a
// system's default is 1,024.
void AllowConnections() {
  constexpr rlim_t kDescriptors = 4 * kOpenInFlightMax;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min(kDescriptors, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunServeScenario(const Options& options) {
  const Sizes sizes = options.quick ? Sizes{.rows = 4'000,
                                            .closed_seconds = 0.2,
                                            .open_seconds = 0.2,
                                            .latency_rounds = 2,
                                            .many_requests = 10'000,
                                            .idle_seconds = 0.5,
                                            .is_quick = true}
                                    : Sizes{.rows = 100'000,
                                            .closed_seconds = 3,
                                            .open_seconds = 2,
                                            .latency_rounds = 100,
                                            .many_requests = 1'000'000,
                                            .idle_seconds = 5};
  AllowConnections();
  HPS_ASSIGN_OR_RETURN(const auto world,
                       ServeWorld::Create(options.directory + "/serve", sizes.rows, ""));
  std::vector<Result> results;
  HPS_RETURN_IF_ERROR(ServeBench(*world, sizes).Run(results));
  return results;
}

}  // namespace hps::bench
