// Names the program that tries networks before an import takes them or a model is served.
#pragma once

namespace hps::python {

// It lies beside the extension; a package from which somebody has taken it tries no networks.
void FindNetworkCheck();

}  // namespace hps::python
