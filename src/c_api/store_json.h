// The tables and the counters of a store as JSON text, with the names of hps/statistics.h.
#pragma once

#include <span>
#include <string>

#include "hps/statistics.h"
#include "hps/table_spec.h"

namespace hps {

std::string TablesJson(std::span<const TableInfo> tables);
std::string StatisticsJson(const StoreStatistics& statistics);

}  // namespace hps
