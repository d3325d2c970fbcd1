#include "serving/device_health.h"

#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace hps {

void DeviceHealth::NoteFailure(TimePoint now, const absl::Status& why) {
  breaker_.NoteFailure(now);
  if (logged_down_.exchange(true)) return;
  LogWarning(absl::StrCat("device ", device_, ": ", why.ToString(),
                          ": lookups bypass its level 1 until it answers again"));
}

void DeviceHealth::NoteAnswersAgain() {
  breaker_.NoteAnswer();
  if (!logged_down_.exchange(false)) return;
  LogWarning(absl::StrCat("device ", device_, ": answers again"));
  if (on_answer_) on_answer_();
}

}  // namespace hps
