// The library hps/_openvino.so, which alone is linked with OpenVINO: the extension loads it when it
// compiles its first network. So the package can be imported where there is no OpenVINO.
//
// Both are of one build, so that C++ types may pass between them; the library is never unloaded.
#pragma once

#include "network/cpu/openvino_network.h"

namespace hps::python {

using OpenvinoFunction = decltype(MakeOpenvinoNetwork);

// The name of the library's function that returns MakeOpenvinoNetwork: OpenvinoFunction*().
inline constexpr const char* kOpenvinoFunction = "hps_openvino_engine";

}  // namespace hps::python
