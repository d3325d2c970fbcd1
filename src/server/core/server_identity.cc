#include "server/core/server_identity.h"

namespace hps::server {

std::string_view ServerVersion() { return HPS_VERSION; }

}  // namespace hps::server
