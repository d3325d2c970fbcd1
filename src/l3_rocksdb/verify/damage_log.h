// Counts and logs the damaged rows and blocks that reads find, without flooding the log.
#pragma once

#include <cstdint>
#include <string_view>

namespace hps {

// Thread-safe. Logs the first, second, fourth, eighth, ... report of the process.
void ReportDamage(std::string_view table, std::string_view what);

// Reports since the process began.
uint64_t DamageReportCount();

}  // namespace hps
