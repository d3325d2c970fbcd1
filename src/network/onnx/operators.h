// The operators that a network may have.
#pragma once

#include <string_view>

namespace hps {

// Whether `op` of ONNX's own domain is on the list. Those with sub-graphs (If, Loop, Scan) are not,
// nor those that read files, draw random numbers or have state.
bool IsKnownOnnxOperator(std::string_view op);

}  // namespace hps
