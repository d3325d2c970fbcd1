// Everything that can be wrong with a request, found before anything is done: a call that returns
// an error has written nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/lookup_session.h"
#include "serving/lookup_counters.h"
#include "serving/model_snapshot.h"

namespace hps {

// A table as one session knows it.
struct SessionTable {
  TableSpec spec;
  size_t slot = 0;  // in the model's snapshots
  LookupCounters* counters = nullptr;
  size_t output_row_bytes = 0;
};

// `tables` are the session's, by TableIndex. Errors: those of LookupSession::Lookup.
template <MemorySpace kSpace>
absl::Status CheckRequest(const LookupRequest<kSpace>& request,
                          std::span<const SessionTable> tables, const ModelSnapshot& snapshot);

}  // namespace hps
