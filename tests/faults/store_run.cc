#include "tests/faults/store_run.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

absl::Status StoreRun::Open() {
  Close();
  HPS_ASSIGN_OR_RETURN(store_, OpenRocksStore(options_));
  if (state_.events() > acknowledged_) {  // the rest may have been in memory only
    state_ = PlannedState(plan_);
    state_.AdvanceTo(acknowledged_);
  }
  return absl::OkStatus();
}

absl::Status StoreRun::DoEvents(uint64_t count) {
  HPS_CHECK(is_open());
  for (; count > 0; --count) {
    last_ = state_.events() + 1;
    HPS_RETURN_IF_ERROR(DoEvent(*store_, plan_, last_));
    state_.AdvanceTo(last_);
    acknowledged_ = last_;
  }
  return absl::OkStatus();
}

absl::Status StoreRun::Check() {
  PlannedState state = state_;
  absl::Status compared = state.Compare(*store_);
  std::string differences;
  while (!compared.ok() && state.events() < last_) {
    absl::StrAppend(&differences, "not as after event ", state.events(), ": ", compared.ToString(),
                    "; ");
    state.AdvanceTo(state.events() + 1);
    compared = state.Compare(*store_);
  }
  if (!compared.ok()) {
    return absl::InternalError(absl::StrCat(differences, "not as after event ", state.events(),
                                            ": ", compared.ToString()));
  }
  state_ = state;
  return absl::OkStatus();
}

}  // namespace hps
