// The embedding tables of a click model, and the keys that its samples ask for.
//
// The sizes are those of Criteo's Kaggle data set: 26 tables, and a few of them have nearly all
// rows. A sample has one key of each table; ranks within a table follow a power law. Or tables and
// samples are those of a recorded click log. Rows are functions of their keys, so that a benchmark
// can check each byte without keeping them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/dlrm/recorded_clicks.h"
#include "hps/types.h"
#include "import/zipf.h"

namespace hps::bench {

inline constexpr char kClickModel[] = "dlrm";

class ClickModel {
 public:
  struct Shape {
    size_t table_count = 26;  // the 26 sizes, again and again
    double scale = 0.25;      // of the rows of tables above kSmallTableRows
    uint32_t dim = 128;
  };
  static constexpr uint64_t kSmallTableRows = 100'000;

  explicit ClickModel(const Shape& shape);
  // The tables of a click log, each with the keys that it asks for.
  ClickModel(const RecordedClicks& clicks, uint32_t dim);

  size_t table_count() const { return rows_.size(); }
  uint64_t rows(size_t table) const { return rows_[table]; }
  uint64_t row_count() const { return row_count_; }  // of all tables
  uint32_t dim() const { return dim_; }
  size_t row_bytes() const { return dim_ * sizeof(float); }
  static std::string TableName(size_t table);  // without the model's

  // The key of a rank in [1, rows(table)]: ranks of one table have keys of their own, in no order.
  Key KeyOf(size_t table, uint64_t rank) const;
  // Number of the row among those of all tables.
  uint64_t PlaceOf(size_t table, uint64_t rank) const { return first_row_[table] + rank - 1; }

  void WriteRow(size_t table, Key key, std::span<std::byte> row) const;

 private:
  void AddTable(uint64_t rows);

  uint32_t dim_ = 0;
  uint64_t row_count_ = 0;
  std::vector<std::vector<Key>> keys_;  // [table][rank - 1]; empty: made from table and rank
  std::vector<uint64_t> rows_;
  std::vector<uint64_t> first_row_;
};

// Samples of a model. For one thread.
class ClickStream {
 public:
  ClickStream(const ClickModel& model, double alpha, uint64_t seed);
  // The samples of the log that the model was made of, in their order, again and again.
  ClickStream(const ClickModel& model, const RecordedClicks& clicks);

  // Keys of the `batch` next samples, one table after another: [table_count, batch], and the places
  // of their rows.
  void Next(size_t batch, std::vector<Key>* keys, std::vector<uint64_t>* places);

  // Share of all keys that the `row_count` rows with the highest probabilities are asked for: no
  // cache of so many rows has a higher hit rate in the long run.
  double BestHitRate(uint64_t row_count) const;
  // The same if each table holds so many rows of its own: [table_count].
  double BestHitRate(std::span<const uint64_t> rows_by_table) const;

 private:
  double SharesAbove(double threshold, uint64_t* row_count) const;
  uint64_t NextRank(size_t table);

  const ClickModel& model_;
  const RecordedClicks* const clicks_ = nullptr;  // null: ranks are drawn
  std::vector<ZipfDistribution> ranks_;           // by table
  std::vector<std::vector<double>> shares_;       // [table][n]: of the n ranks that come first
  RandomStream random_;
  std::vector<size_t> next_samples_;  // by table; of the log
};

}  // namespace hps::bench
