// Part of `hps bench redis`: lookups whose level 2 is memory and then Redis, beside lookups whose
// level 2 is Redis alone (the bound), through sessions. The memory has room for a tenth of the
// rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/redis/redis_rows.h"
#include "bench/report.h"

namespace hps::bench {

// Leaves its rows on the servers. Errors: DATA_LOSS (a row did not come, or is wrong), those of
// Redis.
absl::Status MeasureMemoryRedis(const std::vector<std::string>& nodes, bool cluster, uint32_t dim,
                                const RedisSizes& sizes, std::vector<Result>& results);

}  // namespace hps::bench
