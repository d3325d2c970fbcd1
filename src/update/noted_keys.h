// Keys that are noted for later. More than kKeysMax are given up, unless some occur twice: the list
// has overflowed, and takes none until it is made anew. The owner then does without keys.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "hps/types.h"

namespace hps {

inline void SortUnique(std::vector<Key>& keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

class NotedKeys {
 public:
  static constexpr size_t kKeysMax = size_t{1} << 20;

  // True if the list overflows by these keys.
  bool Add(std::span<const Key> keys) {
    if (overflowed_) return false;
    keys_.insert(keys_.end(), keys.begin(), keys.end());
    if (keys_.size() <= kKeysMax) return false;
    SortUnique(keys_);
    // A list that stays nearly full would be sorted for each of the next changes.
    if (keys_.size() <= kKeysMax / 16 * 15) return false;
    std::vector<Key>().swap(keys_);
    overflowed_ = true;
    return true;
  }
  // REQUIRES: count <= keys().size().
  void RemoveFirst(size_t count) {
    keys_.erase(keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(count));
  }

  std::span<const Key> keys() const { return keys_; }  // some twice
  bool overflowed() const { return overflowed_; }
  bool empty() const { return keys_.empty() && !overflowed_; }

 private:
  std::vector<Key> keys_;
  bool overflowed_ = false;
};

}  // namespace hps
