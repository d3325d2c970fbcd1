#include "l3_rocksdb/verify/damage_log.h"

#include <atomic>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace hps {
namespace {

std::atomic<uint64_t> report_count{0};

}  // namespace

void ReportDamage(std::string_view table, std::string_view what) {
  const uint64_t number = report_count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!std::has_single_bit(number)) return;
  LogError(absl::StrCat("table '", std::string(table), "': damage number ", number, ": ",
                        std::string(what)));
}

uint64_t DamageReportCount() { return report_count.load(std::memory_order_relaxed); }

}  // namespace hps
