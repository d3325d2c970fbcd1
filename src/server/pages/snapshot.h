// Everything that the metrics and the overview are made from, taken at one moment.
#pragma once

#include <string>
#include <vector>

#include "hps/config.h"
#include "hps/log.h"
#include "hps/statistics.h"
#include "hps/table_spec.h"
#include "server/core/model_repository.h"
#include "server/core/server_statistics.h"
#include "server/pages/process_statistics.h"

namespace hps::server {

struct Snapshot {
  const Config* config = nullptr;
  ServerStatistics server;
  StoreStatistics store;
  std::vector<TableInfo> tables;  // those of the store, served or not
  std::vector<ModelIndexEntry> models;
  ProcessStatistics process;
  LogCounts log;
  uint64_t unix_ms = 0;
};

// What a whole level of lossy tables holds.
struct LevelTotals {
  LevelStatistics sum;
  uint64_t bytes_max = 0;  // of the level, as configured
  bool configured = false;
};
LevelTotals TotalsOfL1(const Snapshot& snapshot);
LevelTotals TotalsOfL2(const Snapshot& snapshot);
// Level 1 has a device, and each that it uses answers.
bool IsL1Up(const Snapshot& snapshot);
// No table's level 2 and no server of Redis is bypassed because it failed.
bool IsL2Up(const Snapshot& snapshot);
// No error of the disk keeps level 3 from being written. One that is opened read-only is up.
bool IsL3Up(const Snapshot& snapshot);
// Free bytes of the store's disk below which writes are refused; 0 where nothing is written.
uint64_t FreeBytesMin(const Snapshot& snapshot);

}  // namespace hps::server
