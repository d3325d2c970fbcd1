// A digest of content, for integrity: XXH3-128. Not for secrets.
//
// Pieces are told apart: "ab", "c" has another digest than "a", "bc". For one thread.
#pragma once

#include <string>
#include <string_view>

namespace hps {

class ContentHash {
 public:
  void Add(std::string_view piece);

  // Of the pieces so far: 32 hexadecimal digits.
  std::string Digits() const;

 private:
  std::string pieces_;  // the length and the hash of each
};

}  // namespace hps
