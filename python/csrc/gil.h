// Work without Python's global lock.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include "nanobind/nanobind.h"

namespace hps::python {

// Gives the lock up until the end of the scope, which must not touch Python. A thread that comes
// back while Python ends never returns: before 3.14, Python ends it by unwinding its stack, which
// would end the process.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      while (true) pause();
    }
  }

 private:
  PyThreadState* const state_;
};

}  // namespace hps::python
