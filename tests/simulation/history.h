// The judge of a simulated node: what was ever written for each key of a table, and what each
// session has seen of it so far.
//
// For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hps/types.h"

namespace hps {

// The values of one table's keys in the order in which L3 took them, a deletion being a value too.
class TableHistory {
 public:
  struct Value {
    Version version = 0;
    bool absent = false;
  };

  TableHistory(uint64_t number, std::vector<std::byte> default_row)
      : number_(number), default_row_(std::move(default_row)) {}

  // When L3 is about to take it: it may be seen from now on. What a key begins with is its first
  // value, and so is, for all keys together, what an import replaces.
  void Append(Key key, const Value& value) { values_[key].push_back(value); }

  uint64_t number() const { return number_; }
  std::span<const std::byte> default_row() const { return default_row_; }
  std::span<const Value> values(Key key) const { return values_.at(key); }

 private:
  const uint64_t number_;  // of the stamped rows
  const std::vector<std::byte> default_row_;
  std::map<Key, std::vector<Value>> values_;
};

// What one session has seen of one table: for each key the earliest value that its newest answer
// can have been.
class SessionView {
 public:
  explicit SessionView(const TableHistory& history) : history_(history) {}

  struct Answer {
    Key key = 0;
    KeyStatus status = KeyStatus::kAbsent;
    std::span<const std::byte> row;
  };

  // Judges the answers of one call. nullopt = all is well; else what is wrong and which invariant
  // that breaks.
  std::optional<std::string> Judge(std::span<const Answer> answers);

 private:
  std::optional<std::string> JudgeOne(const Answer& answer, size_t seen, size_t* now) const;
  std::optional<std::string> JudgeAbsent(const Answer& answer, size_t seen, size_t* now) const;
  std::optional<std::string> JudgeRow(const Answer& answer, size_t seen, size_t* now) const;

  const TableHistory& history_;
  std::map<Key, size_t> seen_;  // index into TableHistory::values
};

}  // namespace hps
