#include "python/csrc/openvino_engine.h"

extern "C" __attribute__((visibility("default"))) hps::python::OpenvinoFunction*
hps_openvino_engine() {
  return &hps::MakeOpenvinoNetwork;
}
