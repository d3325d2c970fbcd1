// Memory for one call, which is kept for the next call and taken part by part.
//
// It is allocated when the first part is taken and there is too little from calls before. The
// content of a part is undefined. For one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace hps {

class CallRoom {
 public:
  // Begins a call whose parts have at most `bytes_max` together. Parts of the last call are invalid
  // from here on.
  void Begin(size_t bytes_max) {
    bytes_max_ = bytes_max;
    used_bytes_ = 0;
  }

  // The part stays where it is until the next Begin.
  std::byte* Take(size_t byte_count) {
    if (bytes_max_ > byte_count_) {
      byte_count_ = 0;
      bytes_.reset();  // before there is another one
      bytes_.reset(new std::byte[bytes_max_]);
      byte_count_ = bytes_max_;
    }
    return bytes_.get() + std::exchange(used_bytes_, used_bytes_ + byte_count);
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t byte_count_ = 0;
  size_t bytes_max_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace hps
