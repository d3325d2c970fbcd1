#include "tests/faults/store_run.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

absl::Status StoreRun::Open() {
  Close();
  HPS_ASSIGN_OR_RETURN(store_, OpenRocksStore(options_));
  return absl::OkStatus();
}

absl::Status StoreRun::DoEvents(uint64_t count) {
  HPS_CHECK(is_open());
  for (; count > 0; --count) {
    failed_ = true;
    HPS_RETURN_IF_ERROR(DoEvent(*store_, plan_, state_.events() + 1));
    failed_ = false;
    state_.AdvanceTo(state_.events() + 1);
  }
  return absl::OkStatus();
}

absl::Status StoreRun::Check() {
  const absl::Status without = state_.Compare(*store_);
  if (without.ok() || !failed_) return without;
  PlannedState next = state_;
  next.AdvanceTo(state_.events() + 1);
  const absl::Status with = next.Compare(*store_);
  if (!with.ok()) {
    return absl::InternalError(absl::StrCat("event ", next.events(), " was neither left undone: ",
                                            without.ToString(), ", nor done: ", with.ToString()));
  }
  state_.AdvanceTo(next.events());
  failed_ = false;
  return absl::OkStatus();
}

}  // namespace hps
