// Helper for tests of lossy tiers: tables of one tier that are asked with one call.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/contracts/lossy_rows.h"
#include "tier/lossy_tier.h"

namespace hps {

// Table t holds the keys from 0 to `held_count` + t - 1, with rows of version t + 1.
class ContractTables {
 public:
  using Answers = std::vector<std::unique_ptr<ContractAnswer>>;

  // A table for each entry of `row_bytes`.
  ContractTables(LossyTier& tier, const std::vector<size_t>& row_bytes, size_t held_count,
                 uint64_t bytes_max)
      : tier_(tier) {
    for (const size_t bytes : row_bytes) {
      const size_t t = tables_.size();
      const TableSpec spec = ContractSpec(bytes, "model/t" + std::to_string(t));
      auto table = tier_.OpenTable(spec, t + 1, bytes_max);
      EXPECT_TRUE(table.ok()) << table.status();
      std::vector<Key> held(held_count + t);
      for (size_t i = 0; i < held.size(); ++i) held[i] = static_cast<Key>(i);
      ContractRows rows(t, held, bytes, t + 1);
      EXPECT_TRUE((*table)->Insert(rows.batch(), 0).ok());
      tables_.push_back({*std::move(table), bytes, held.size()});
    }
  }

  LossyTable& operator[](size_t t) { return *tables_[t].table; }

  // Asks for keys[t] of table t, in one call.
  Answers Fetch(const std::vector<std::vector<Key>>& keys) {
    Answers answers;
    std::vector<TableFetch> fetches;
    for (size_t t = 0; t < keys.size(); ++t) {
      answers.push_back(
          std::make_unique<ContractAnswer>(keys[t], tables_[t].row_bytes, t % 2 == 0));
      fetches.push_back({.table = tables_[t].table.get(),
                         .batch = answers[t]->batch(),
                         .counts = absl::UnknownError("not asked")});
    }
    tier_.Fetch(fetches, kNoDeadline);
    for (size_t t = 0; t < keys.size(); ++t) answers[t]->Take(fetches[t].counts);
    return answers;
  }

  // Fetches, and checks every answer; a tier that does not keep its rows may also miss.
  void ExpectAnswers(const std::vector<std::vector<Key>>& keys, bool keeps) {
    const Answers answers = Fetch(keys);
    for (size_t t = 0; t < keys.size(); ++t) {
      EXPECT_TRUE(answers[t]->status().ok()) << answers[t]->status();
      if (!answers[t]->status().ok()) continue;
      for (size_t i = 0; i < keys[t].size(); ++i) {
        const bool held = keys[t][i] >= 0 && keys[t][i] < static_cast<Key>(tables_[t].held_count);
        if (answers[t]->outcome(i) == FetchOutcome::kMiss && !(held && keeps)) continue;
        ASSERT_TRUE(held && answers[t]->IsRowOf(i, t, t + 1))
            << "table " << t << ", key " << keys[t][i];
      }
    }
  }

 private:
  struct Table {
    std::unique_ptr<LossyTable> table;
    size_t row_bytes = 0;
    size_t held_count = 0;
  };

  LossyTier& tier_;
  std::vector<Table> tables_;
};

}  // namespace hps
