// Who can reach the server, and over how many connections: the warnings and errors for the
// administrator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "server/core/server_statistics.h"

namespace hps::server {

// One sentence for each address that others can reach without TLS and a token. `has_token`: a token
// is configured, in a file or in the environment.
std::vector<std::string> ListenWarnings(const ServerConfig& config, bool has_token);

// Errors: INVALID_ARGUMENT: load and unload by API for everyone.
absl::Status CheckControl(const ServerConfig& config, bool has_token);

// Errors: INVALID_ARGUMENT: no protocol for lookups is on; metrics alone answer none.
absl::Status CheckAddresses(const Config& config);

// Errors: FAILED_PRECONDITION: every user of the machine may read a token or the key of TLS.
absl::Status CheckSecrets(const ServerConfig& config);

// A sentence if the certificate in use is not valid at `now_seconds` (Unix time), or for less than
// 30 days from then; else empty.
std::string CertificateWarning(const ServerStatistics& statistics, int64_t now_seconds);

// Connections for which there are files.
struct ConnectionShares {
  uint32_t each_max = 0;     // of HTTP and of gRPC
  uint32_t metrics_max = 0;  // of the metrics port: places that no client of the others can take
};

// How the files that the process may open are shared. `files_open`: before the servers start, with
// those of the store. Errors: RESOURCE_EXHAUSTED: they are too few.
absl::StatusOr<ConnectionShares> ShareFiles(const ServerConfig& config, uint64_t files_open,
                                            uint64_t files_max);

}  // namespace hps::server
