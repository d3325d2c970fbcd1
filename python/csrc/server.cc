// A server in this process.
#include "hps/server.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

struct RunningServer {
  RunningServer(std::unique_ptr<Server> server, std::shared_future<absl::Status> load_status)
      : handle(std::move(server), "server"), loaded(std::move(load_status)) {}

  Handle<Server> handle;
  const std::shared_future<absl::Status> loaded;  // the result of the first loading of the models
};

constexpr char kAddress[] = "a string, \"host:port\"";

// Addresses of None are the configuration's.
std::unique_ptr<RunningServer> Serve(nb::handle path, nb::handle config, nb::handle http,
                                     nb::handle grpc, nb::handle metrics) {
  Config settings = ReadConfig(path, config, true);
  if (!http.is_none()) settings.server.http = Cast<std::string>(http, "http", kAddress);
  if (!grpc.is_none()) settings.server.grpc = Cast<std::string>(grpc, "grpc", kAddress);
  if (!metrics.is_none()) settings.server.metrics = Cast<std::string>(metrics, "metrics", kAddress);
  const auto promise = std::make_shared<std::promise<absl::Status>>();
  absl::StatusOr<std::unique_ptr<Server>> server;
  {
    const ReleasedGil released;
    server = Server::Start(
        settings, [promise](const LoadReport& report) { promise->set_value(report.status); });
  }
  return std::make_unique<RunningServer>(ValueOrRaise(std::move(server)),
                                         promise->get_future().share());
}

// Whether the models were loaded within `timeout`. Raises why they were not.
bool WaitUntilLoaded(const RunningServer& running, double timeout) {
  const std::shared_ptr<Server> server = running.handle.Use();
  const std::chrono::nanoseconds longest = Seconds(timeout);
  const std::shared_future<absl::Status> loaded = running.loaded;
  std::future_status state{};
  {
    const ReleasedGil released;
    state = loaded.wait_for(longest);
  }
  if (state != std::future_status::ready) return false;
  RaiseIfError(loaded.get());
  return true;
}

void Drain(const RunningServer& running) {
  const std::shared_ptr<Server> server = running.handle.Use();
  absl::Status status;
  {
    const ReleasedGil released;
    status = server->Drain();
  }
  RaiseIfError(status);
}

nb::tuple Addresses(const RunningServer& running) {
  const std::shared_ptr<Server> server = running.handle.Use();
  const ServerAddresses& addresses = server->addresses();
  return nb::make_tuple(addresses.http, addresses.grpc, addresses.metrics);
}

}  // namespace

void BindServer(nb::module_& module) {
  nb::class_<RunningServer>(module, "Server")
      .def("addresses", Addresses)
      .def("wait_until_loaded", WaitUntilLoaded, nb::arg("timeout"))
      .def("drain", Drain)
      .def("close", [](RunningServer& running) { running.handle.Close(); });
  module.def("serve", Serve, nb::arg("path").none(), nb::arg("config").none(),
             nb::arg("http").none(), nb::arg("grpc").none(), nb::arg("metrics").none());
}

}  // namespace hps::python
