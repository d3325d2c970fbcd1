// A device's reads of level 2 during one probe (tier/direct_rows.h): which tables keep their rows
// in place for it, and which of its answers count.
//
// While reads are under way, level 2 keeps the slots of rows that are replaced. So reads end with
// the probe, and after 2 ms at the latest, even if the device has not answered: it hangs, or has
// other work to do first. What it reads after that must not be believed.
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/spin.h"
#include "query/miss_route.h"
#include "query/query_lookup.h"
#include "tier/device_cache.h"

namespace hps {

class DirectReads {
 public:
  DirectReads() { reads_.reserve(kTablesPerCallMax); }

  // Begins reads for the queries whose tables allow it (MissRoute::ReadByDevice), and asks the
  // device for them in the requests of the same index. REQUIRES: none are under way.
  void Begin(std::span<QueryLookup> queries, std::span<DeviceCacheQuery> requests) {
    for (size_t i = 0; i < queries.size(); ++i) {
      DirectReadable* const l2 = MissRoute::ReadByDevice(*queries[i].table);
      const std::optional<size_t> reads = l2 == nullptr ? std::nullopt : l2->BeginDirectReads();
      if (!reads.has_value()) continue;
      reads_.emplace_back(l2, *reads);
      requests[i].direct = &l2->direct_rows();
      queries[i].direct = true;
    }
  }

  bool are_under_way() const { return !reads_.empty(); }

  // Waits for the end of the call's probe, as long as reads may take, and ends them.
  void EndWithProbe(DeviceCall& call) {
    ended_in_time_ = false;
    if (!are_under_way()) return;
    SpinLimit limit(kDirectReadsMax);
    do {
      ended_in_time_ = call.Peek(0).probed;
    } while (!ended_in_time_ && limit.Spin());
    End();
  }

  // Ends them at once. What the device has read does not count.
  void End() {
    for (const auto& [table, number] : reads_) table->EndDirectReads(number);
    reads_.clear();
  }

  // After EndWithProbe: QueryLookup::direct says from here on whether the device has answered all
  // misses of the query. Adds the misses that the device was asked for, and has answered.
  void TakeAnswers(std::span<QueryLookup> queries, const DeviceMisses& misses,
                   ProbeFigures* found) const {
    // Rows that were read while a change was under way may be newer than what level 1 has taken in
    // meanwhile: then the host answers, and has level 1 probed again.
    for (size_t i = 0; i < queries.size(); ++i) {
      if (!queries[i].direct) continue;
      const TableLookup& table = *queries[i].table;
      const bool changed = table.table->epochs().begun() > table.epoch;
      const bool answered = i < misses.direct.size() && misses.direct[i] != 0;
      queries[i].direct = ended_in_time_ && !changed && answered;
      found->asked_of_device += misses.keys[i].size();
      if (queries[i].direct) found->answered_by_device += misses.keys[i].size();
    }
  }

 private:
  // Some ten times what a lookup takes.
  static constexpr Duration kDirectReadsMax = std::chrono::milliseconds(2);

  std::vector<std::pair<DirectReadable*, size_t>> reads_;  // a table, and the number of its reads
  bool ended_in_time_ = false;
};

}  // namespace hps
