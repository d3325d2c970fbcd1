#include "server/pages/snapshot.h"

#include <algorithm>
#include <set>

namespace hps::server {
namespace {

LevelStatistics Sum(const Snapshot& snapshot, LevelStatistics TableStatistics::*level) {
  LevelStatistics sum;
  for (const TableStatistics& table : snapshot.store.tables) {
    const LevelStatistics& part = table.*level;
    sum.entries += part.entries;
    sum.absent_entries += part.absent_entries;
    sum.bytes_used += part.bytes_used;
    sum.bytes_max += part.bytes_max;
    sum.insertions += part.insertions;
    sum.updates += part.updates;
    sum.evictions += part.evictions;
    sum.refused += part.refused;
    sum.dropped += part.dropped;
    sum.not_admitted += part.not_admitted;
    sum.errors += part.errors;
    for (size_t i = 0; i < kStatusCodeCount; ++i) sum.errors_by_code[i] += part.errors_by_code[i];
  }
  return sum;
}

}  // namespace

LevelTotals TotalsOfL1(const Snapshot& snapshot) {
  std::set<int> devices;
  for (const TableStatistics& table : snapshot.store.tables) {
    for (const DeviceStatistics& device : table.l1_devices) devices.insert(device.device);
  }
  return {.sum = Sum(snapshot, &TableStatistics::l1),
          .bytes_max = snapshot.store.l1_bytes_max * devices.size(),
          .configured = !devices.empty() || !snapshot.store.devices.empty()};
}

LevelTotals TotalsOfL2(const Snapshot& snapshot) {
  const bool configured = snapshot.config->l2.kind != L2Kind::kNone;
  LevelTotals totals = {.sum = Sum(snapshot, &TableStatistics::l2), .configured = configured};
  if (HasMemory(snapshot.config->l2.kind)) totals.bytes_max = snapshot.store.l2_bytes_max;
  const RemoteLevelStatistics& remote = snapshot.store.l2_remote;
  totals.sum.errors += remote.failures;
  for (size_t i = 0; i < kStatusCodeCount; ++i)
    totals.sum.errors_by_code[i] += remote.failures_by_code[i];
  return totals;
}

bool IsL1Up(const Snapshot& snapshot) {
  const std::vector<DeviceState>& devices = snapshot.store.devices;
  return snapshot.store.l1_unavailable == 0 &&
         std::any_of(devices.begin(), devices.end(),
                     [](const DeviceState& device) { return device.up; });
}

bool IsL2Up(const Snapshot& snapshot) {
  const std::vector<TableStatistics>& tables = snapshot.store.tables;
  const std::vector<RemoteNodeStatistics>& nodes = snapshot.store.l2_remote.nodes;
  return std::none_of(tables.begin(), tables.end(),
                      [](const TableStatistics& table) { return table.l2_bypassed; }) &&
         std::none_of(nodes.begin(), nodes.end(),
                      [](const RemoteNodeStatistics& node) { return node.bypassed; });
}

bool IsL3Up(const Snapshot& snapshot) {
  return snapshot.store.l3.writable || snapshot.store.l3.read_only;
}

uint64_t FreeBytesMin(const Snapshot& snapshot) {
  return snapshot.store.l3.read_only ? 0 : snapshot.config->store.free_bytes_min;
}

}  // namespace hps::server
