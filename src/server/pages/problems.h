// The problems that an operator has to solve now, in words. The dashboard's header is red while
// there are any.
//
// A subset of the alerts of deploy/prometheus: those that one snapshot of the server's figures
// shows. Pure; the sentences have no paths.
#pragma once

#include <string>
#include <vector>

#include "server/pages/snapshot.h"

namespace hps::server {

// A disk with less than this many times [store] free_bytes_min is nearly full.
inline constexpr uint64_t kNearlyFullFactor = 4;

// One sentence for each; the most urgent first. Empty if nothing is wrong.
std::vector<std::string> ProblemsOf(const Snapshot& snapshot);

}  // namespace hps::server
