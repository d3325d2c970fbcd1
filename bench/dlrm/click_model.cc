#include "bench/dlrm/click_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hps::bench {
namespace {

// Distinct values of the 26 categorical features of Criteo's Kaggle data set.
constexpr std::array<uint64_t, 26> kCriteoRows = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

}  // namespace

ClickModel::ClickModel(const Shape& shape) : dim_(shape.dim) {
  for (size_t table = 0; table < shape.table_count; ++table) {
    uint64_t rows = kCriteoRows[table % kCriteoRows.size()];
    if (rows > kSmallTableRows)
      rows = std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(rows) * shape.scale));
    AddTable(rows);
  }
}

ClickModel::ClickModel(const RecordedClicks& clicks, uint32_t dim) : dim_(dim), keys_(clicks.keys) {
  for (const std::vector<Key>& keys : keys_) AddTable(keys.size());
}

void ClickModel::AddTable(uint64_t rows) {
  first_row_.push_back(row_count_);
  rows_.push_back(rows);
  row_count_ += rows;
}

std::string ClickModel::TableName(size_t table) { return absl::StrCat("t", table); }

Key ClickModel::KeyOf(size_t table, uint64_t rank) const {
  if (!keys_.empty()) return keys_[table][rank - 1];
  return static_cast<Key>(MixBits((static_cast<uint64_t>(table) << 48) + rank));
}

void ClickModel::WriteRow(size_t table, Key key, std::span<std::byte> row) const {
  RandomStream words(static_cast<uint64_t>(key) + table);
  for (size_t at = 0; at < row.size(); at += sizeof(uint64_t)) {
    // No pattern of bits in it is NaN or infinite.
    const uint64_t word = words.Next() & 0xbfffffffbfffffff;
    std::memcpy(row.data() + at, &word, sizeof(word));
  }
}

ClickStream::ClickStream(const ClickModel& model, double alpha, uint64_t seed)
    : model_(model), random_(seed) {
  for (size_t table = 0; table < model.table_count(); ++table) {
    const uint64_t rows = model.rows(table);
    ranks_.emplace_back(rows, alpha);
    std::vector<double>& shares = shares_.emplace_back(rows + 1);
    for (uint64_t rank = 1; rank <= rows; ++rank)
      shares[rank] = shares[rank - 1] + std::pow(static_cast<double>(rank), -alpha);
    for (double& share : shares) share /= shares.back();
  }
}

ClickStream::ClickStream(const ClickModel& model, const RecordedClicks& clicks)
    : model_(model), clicks_(&clicks), random_(0), next_samples_(clicks.table_count()) {
  const auto sample_count = static_cast<double>(clicks.sample_count());
  for (const std::vector<uint64_t>& counts : clicks.counts) {
    std::vector<double>& shares = shares_.emplace_back(1);
    uint64_t sum = 0;
    for (const uint64_t count : counts)
      shares.push_back(static_cast<double>(sum += count) / sample_count);
  }
}

uint64_t ClickStream::NextRank(size_t table) {
  if (clicks_ == nullptr) return ranks_[table].Sample(random_);
  size_t& sample = next_samples_[table];
  const uint64_t rank = clicks_->ranks[sample * clicks_->table_count() + table];
  sample = (sample + 1) % clicks_->sample_count();
  return rank;
}

void ClickStream::Next(size_t batch, std::vector<Key>* keys, std::vector<uint64_t>* places) {
  keys->resize(model_.table_count() * batch);
  places->resize(keys->size());
  for (size_t table = 0; table < model_.table_count(); ++table) {
    for (size_t i = table * batch; i < (table + 1) * batch; ++i) {
      const uint64_t rank = NextRank(table);
      (*keys)[i] = model_.KeyOf(table, rank);
      (*places)[i] = model_.PlaceOf(table, rank);
    }
  }
}

double ClickStream::SharesAbove(double threshold, uint64_t* row_count) const {
  double share = 0;
  *row_count = 0;
  for (const std::vector<double>& shares : shares_) {
    // Probabilities fall with the rank: the last rank with one that is not below the threshold.
    size_t count = 0;
    for (size_t end = shares.size(); count + 1 < end;) {
      const size_t middle = count + (end - count) / 2;
      (shares[middle] - shares[middle - 1] >= threshold ? count : end) = middle;
    }
    *row_count += count;
    share += shares[count];
  }
  return share / static_cast<double>(shares_.size());
}

double ClickStream::BestHitRate(uint64_t row_count) const {
  if (row_count >= model_.row_count()) return 1;
  // Rows with a probability of at least a threshold: lower thresholds take more rows.
  double low = 1e-15, high = 1, share = 0;
  uint64_t held = 0;
  for (int step = 0; step < 100; ++step) {
    const double threshold = std::sqrt(low * high);
    uint64_t taken = 0;
    const double taken_share = SharesAbove(threshold, &taken);
    (taken > row_count ? low : high) = threshold;
    if (taken > row_count) continue;
    held = taken;
    share = taken_share;
  }
  // Of the rows with the next probability, which may be many, some are held.
  return share + static_cast<double>(row_count - held) * low / static_cast<double>(shares_.size());
}

double ClickStream::BestHitRate(std::span<const uint64_t> rows_by_table) const {
  double share = 0;
  for (size_t table = 0; table < shares_.size(); ++table)
    share += shares_[table][std::min<uint64_t>(rows_by_table[table], model_.rows(table))];
  return share / static_cast<double>(shares_.size());
}

}  // namespace hps::bench
