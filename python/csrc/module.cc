#include "python/csrc/bindings.h"
#include "python/csrc/network_check.h"

namespace hps::python {

NB_MODULE(_hps, module) {
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
