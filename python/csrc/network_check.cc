#include "python/csrc/network_check.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "inference/network_check.h"

namespace hps::python {

void FindNetworkCheck() {
  Dl_info here{};
  // The address of a function as that of an object, which is how dladdr takes it.
  if (dladdr(reinterpret_cast<const void*>(&FindNetworkCheck), &here) == 0) return;
  const std::string extension = here.dli_fname;
  static const std::string* const program =  // lives as long as the process
      new std::string(extension.substr(0, extension.rfind('/') + 1) + "_check_network");
  if (::access(program->c_str(), X_OK) == 0) SetNetworkCheckProgram(program->c_str());
}

}  // namespace hps::python
