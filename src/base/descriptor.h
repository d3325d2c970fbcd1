// A file descriptor that is closed at the end.
#pragma once

#include <unistd.h>

#include <utility>

namespace hps {

// Owns `number`; a negative one is none. Not thread-safe.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    const Descriptor former(std::exchange(number_, std::exchange(other.number_, -1)));
    return *this;
  }
  ~Descriptor() { Close(); }

  void Close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace hps
