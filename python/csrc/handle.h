// Owns a C++ object for Python code, alone or with other handles. The code may close the handle
// while another thread uses it, and may fork.
//
// The threads of a store exist only in the process that opened it. In a forked child, Use raises
// hps.FailedPreconditionError, and the object is not destroyed, because that would wait for them.
// Needs the GIL, which makes it thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "nanobind/nanobind.h"
#include "python/csrc/errors.h"
#include "python/csrc/fork.h"
#include "python/csrc/gil.h"

namespace hps::python {

template <typename T>
class Handle {
 public:
  // `what` names the object in messages: "store".
  Handle(std::shared_ptr<T> object, const char* what)
      : object_(std::move(object)), what_(what), fork_count_(ForkCount()) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { Close(); }

  // Keeps the object alive for the caller. Raises if it is closed or of another process.
  std::shared_ptr<T> Use() const {
    if (fork_count_ != ForkCount()) {
      Raise(absl::FailedPreconditionError(std::string("this ") + what_ +
                                          " was made before fork(): open it in this process"));
    }
    if (object_ == nullptr)
      Raise(absl::FailedPreconditionError(std::string("this ") + what_ + " is closed"));
    return object_;
  }

  // Whether Use would give it.
  bool is_open() const { return object_ != nullptr && fork_count_ == ForkCount(); }

  // Gives the object up, which ends with its last user.
  void Close() {
    if (object_ == nullptr) return;
    if (fork_count_ != ForkCount()) {
      KeepForever(std::move(object_));
      return;
    }
    std::shared_ptr<T> object = std::move(object_);
    const ReleasedGil released;
    object.reset();
  }

 private:
  std::shared_ptr<T> object_;  // null = closed
  const char* const what_;
  const uint64_t fork_count_;
};

}  // namespace hps::python
