// A process that has a store open as a server would, for tests of what commands do beside it.
//
//   hps_store_owner STORE
//
// Answers each line of stdin with one line on stdout: "reload", "lookup MODEL/TABLE KEY" (the
// status and the row's first element), "park MODEL/TABLE OFFSET PAYLOAD" (sets a message in text
// aside), "quit". Says "ready" first.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "hps/store.h"
#include "update/parked_messages.h"

namespace hps {
namespace {

std::string LookUp(Store& store, const std::string& name, Key key) {
  const auto session =
      store.NewSession(name.substr(0, name.find('/')), {.output_dtype = Dtype::kFloat32});
  if (!session.ok()) return session.status().ToString();
  const auto table = (*session)->FindTable(name);
  if (!table.ok()) return table.status().ToString();
  std::vector<float> row((*session)->tables()[table->value].dim);
  KeyStatus status = KeyStatus::kAbsent;
  const HostTableQuery query = {.table = *table,
                                .keys = std::span<const Key>(&key, 1),
                                .rows = std::as_writable_bytes(std::span(row)),
                                .status = std::span<KeyStatus>(&status, 1)};
  const absl::Status done = (*session)->Lookup(
      HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)}, nullptr);
  if (!done.ok()) return done.ToString();
  return std::string(KeyStatusName(status)) + " " + std::to_string(row[0]);
}

absl::Status Park(const std::string& store, const std::string& table, Key offset,
                  const std::string& payload) {
  const auto parked = ParkedMessages::Open(store, 1 << 20);
  if (!parked.ok()) return parked.status();
  const std::span<const std::byte> bytes = AsBytes(std::string_view(payload));
  return (*parked)->Add({.table = table,
                         .topic = UpdateTopic(table),
                         .position = {.offset = static_cast<uint64_t>(offset)},
                         .reason = ParkReason::kUnknownFormat,
                         .detail = "planned",
                         .payload = {bytes.begin(), bytes.end()}});
}

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  Config config;
  config.store.path = argv[1];
  const auto store = Store::Open(config, OpenMode::kReadWrite);
  if (!store.ok()) {
    std::cout << store.status() << std::endl;
    return 1;
  }
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::istringstream words(line);
    std::string command, table;
    Key key = 0;
    words >> command >> table >> key;
    if (command == "reload") {
      std::cout << (*store)->models().LoadAll() << std::endl;
    } else if (command == "park") {
      std::string payload;
      words >> payload;
      std::cout << Park(config.store.path, table, key, payload) << std::endl;
    } else {
      std::cout << LookUp(**store, table, key) << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace hps

int main(int argc, char** argv) { return hps::Main(argc, argv); }
