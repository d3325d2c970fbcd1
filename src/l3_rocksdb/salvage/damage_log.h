// Counts damaged rows and blocks that reads met, and logs them without flooding the log.
#pragma once

#include <cstdint>
#include <string_view>

namespace hps {

// Thread-safe. Logs the first, the second, the fourth, the eighth, ... of the process.
void ReportDamage(std::string_view table, std::string_view what);

// Since the process began.
uint64_t DamageReportCount();

}  // namespace hps
