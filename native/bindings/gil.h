// ReleaseGil: lets other Python threads run while native code works or waits.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace mooncake {

// Like nanobind's gil_scoped_release, but safe in a daemon thread at interpreter exit. Before 3.14,
// Python ends a thread that asks for the GIL too late by unwinding its stack; no destructor
// survives that, and the process would abort. Such a thread stays here until the process ends.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace mooncake
