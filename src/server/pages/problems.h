// What an operator has to do something about now, in words: the dashboard's header turns red by it.
//
// A subset of the alerts of deploy/prometheus: what is wrong at this moment and can be seen without
// a history. Pure; the sentences have no paths.
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
