#include "server/pages/problems.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hps::server {
namespace {

using Problems = std::vector<std::string>;

constexpr size_t kNamesMax = 3;  // a header has room for a few

// "a, b, c and 4 more".
std::string Listed(const std::vector<std::string>& names) {
  if (names.size() <= kNamesMax) return absl::StrJoin(names, ", ");
  const std::vector<std::string> first(names.begin(), names.begin() + kNamesMax);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.size() - kNamesMax, " more");
}

std::string Size(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return absl::StrCat(static_cast<double>(static_cast<uint64_t>(value * 10)) / 10, " ",
                      kUnits[unit]);
}

void AddModels(const Snapshot& snapshot, Problems& problems) {
  for (const ModelIndexEntry& model : snapshot.models) {
    if (model.state != ModelState::kUnavailable) continue;
    problems.push_back(absl::StrCat("model ", model.name, " is not served: ", model.reason));
  }
}

void AddDisk(const Snapshot& snapshot, Problems& problems) {
  const DurableStatistics& l3 = snapshot.store.l3;
  const uint64_t min = FreeBytesMin(snapshot);
  if (!IsL3Up(snapshot)) {
    problems.push_back("level 3 cannot be written because of a disk error; its rows are read");
  }
  if (l3.free_bytes / kNearlyFullFactor >= min) return;
  problems.push_back(absl::StrCat("the store's disk ", l3.free_bytes < min ? "is" : "is nearly",
                                  " full: ", Size(l3.free_bytes), " free; with less than ",
                                  Size(min), " the store takes no writes"));
}

void AddUpperLevels(const Snapshot& snapshot, Problems& problems) {
  std::vector<std::string> names;
  for (const DeviceState& device : snapshot.store.devices) {
    if (!device.up) names.push_back(absl::StrCat("GPU ", device.device));
  }
  if (!names.empty()) {
    problems.push_back(absl::StrCat("level 1: ", Listed(names), names.size() == 1 ? " does" : " do",
                                    " not answer; levels 2 and 3 answer in its place"));
  } else if (TotalsOfL1(snapshot).configured && !IsL1Up(snapshot)) {
    problems.push_back("level 1: no GPU answers; levels 2 and 3 answer in its place");
  }
  names.clear();
  for (const RemoteNodeStatistics& node : snapshot.store.l2_remote.nodes) {
    if (node.bypassed) names.push_back(absl::StrCat("Redis ", node.address));
  }
  for (const TableStatistics& table : snapshot.store.tables) {
    if (table.l2_bypassed) names.push_back(absl::StrCat("table ", table.name));
  }
  if (names.empty()) return;
  problems.push_back(
      absl::StrCat("level 2: ", Listed(names), " bypassed; level 3 answers in its place"));
}

void AddStream(const Snapshot& snapshot, Problems& problems) {
  const StreamStatistics& stream = snapshot.store.updates.stream;
  if (!stream.enabled) return;
  if (!stream.problem.empty()) {
    problems.push_back(absl::StrCat("the update stream cannot be read: ", stream.problem));
  }
  if (!stream.stale_tables.empty()) {
    problems.push_back(absl::StrCat("the update stream has lost changes of ",
                                    Listed(stream.stale_tables), ": import again"));
  }
}

}  // namespace

std::vector<std::string> ProblemsOf(const Snapshot& snapshot) {
  Problems problems;
  AddModels(snapshot, problems);
  AddDisk(snapshot, problems);
  AddUpperLevels(snapshot, problems);
  AddStream(snapshot, problems);
  return problems;
}

}  // namespace hps::server
