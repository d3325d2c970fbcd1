// The embedding tables of a click model, and the keys that its samples ask for.
//
// The sizes are those of Criteo's Kaggle data set: 26 tables, and a few of them have nearly all
// rows. A sample has one key of each table; ranks within a table follow a power law. Rows are
// functions of their keys, so that a benchmark can check each byte without keeping them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

  size_t table_count() const { return rows_.size(); }
  uint64_t rows(size_t table) const { return rows_[table]; }
  uint64_t row_count() const { return row_count_; }  // of all tables
  uint32_t dim() const { return dim_; }
  size_t row_bytes() const { return dim_ * sizeof(float); }
  static std::string TableName(size_t table);  // without the model's

  // The key of a rank in [1, rows(table)]: ranks of one table have keys of their own, in no order.
  static Key KeyOf(size_t table, uint64_t rank);
  // Number of the row among those of all tables.
  uint64_t PlaceOf(size_t table, uint64_t rank) const { return first_row_[table] + rank - 1; }

  void WriteRow(size_t table, Key key, std::span<std::byte> row) const;

 private:
  uint32_t dim_ = 0;
  uint64_t row_count_ = 0;
  std::vector<uint64_t> rows_;
  std::vector<uint64_t> first_row_;
};

// Samples of a model. For one thread.
class ClickStream {
 public:
  ClickStream(const ClickModel& model, double alpha, uint64_t seed);

  // Keys of `batch` new samples, one table after another: [table_count, batch], and the places of
  // their rows.
  void Next(size_t batch, std::vector<Key>* keys, std::vector<uint64_t>* places);

  // Share of all keys that the `row_count` rows with the highest probabilities are asked for: no
  // cache of so many rows has a higher hit rate in the long run.
  double BestHitRate(uint64_t row_count) const;

 private:
  double SharesAbove(double threshold, uint64_t* row_count) const;

  const ClickModel& model_;
  const double alpha_;
  std::vector<ZipfDistribution> ranks_;      // by table
  std::vector<std::vector<double>> shares_;  // [table][n]: of the n ranks that come first
  RandomStream random_;
};

}  // namespace hps::bench
