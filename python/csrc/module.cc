#include "python/csrc/bindings.h"
#include "python/csrc/network_check.h"

namespace hps::python {

NB_MODULE(_hps, module) {
  // When a script ends with an exception, its traceback keeps objects alive until the interpreter
  // is gone. That is no leak to tell users of.
  nanobind::set_leak_warnings(false);
  FindNetworkCheck();
  BindStore(module);
  BindSession(module);
  BindPrediction(module);
  BindTransfer(module);
  BindProducer(module);
  BindServer(module);
  BindTrain(module);
  BindJax(module);
  BindTorch(module);
  BindTensorflow(module);
}

}  // namespace hps::python
