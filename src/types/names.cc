#include "types/names.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace hps {
namespace {

// Levenshtein distance, one row of the matrix at a time.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string ModelOf(std::string_view table) {
  return std::string(table.substr(0, table.find('/')));
}

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  std::string nearest;
  size_t nearest_distance = name.size() / 3 + 2;
  for (const std::string& candidate : candidates) {
    // A distance is at least the difference in length. A long name may be hostile: the time spent
    // on it must not grow with its length.
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= nearest_distance) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance >= nearest_distance) continue;
    nearest = candidate;
    nearest_distance = distance;
  }
  return nearest;
}

std::string NearestNameHint(std::string_view name, std::span<const std::string> candidates) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace hps
