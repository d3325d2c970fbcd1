#include "server/pages/pages.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/macros.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"
#include "base/unix_time.h"
#include "server/pages/assets.h"
#include "server/pages/history.h"
#include "server/pages/key_lookup.h"
#include "server/pages/metrics.h"
#include "server/pages/overview.h"

namespace hps::server {
namespace {

constexpr Duration kTextAgeMax = std::chrono::milliseconds(250);
constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

class Pages final : public PageSource {
 public:
  explicit Pages(const PageParts& parts) : parts_(parts) {}

  absl::StatusOr<Page> Get(std::string_view path, std::string_view query) override {
    for (const Asset& asset : Assets()) {
      if (asset.path == path) return Page{.content_type = asset.content_type, .fixed = asset.bytes};
    }
    if (path == "/metrics") {
      MutexLock lock(mutex_);
      return Made(kMetricsType, metrics_, [this] { return FromSnapshot(MetricsText); });
    }
    if (path == "/api/overview") {
      MutexLock lock(mutex_);
      return Made(kJsonType, overview_, [this] { return FromSnapshot(OverviewJson); });
    }
    if (path == "/api/history" && parts_.history != nullptr) {
      MutexLock lock(mutex_);
      return Made(kJsonType, history_,
                  [this] { return absl::StatusOr<std::string>(parts_.history->JsonText()); });
    }
    if (path == "/api/lookup") return Lookup(query);
    return absl::NotFoundError(
        "no such page; there are /, /metrics, /api/overview, /api/history, /api/lookup and /v2");
  }

 private:
  struct Text {
    std::optional<TimePoint> made_at{};
    std::string text;
  };

  template <typename Make>
  absl::StatusOr<Page> Made(std::string_view content_type, Text& cached, const Make& make)
      HPS_REQUIRES(mutex_) {
    const TimePoint now = parts_.clock->Now();
    if (!cached.made_at.has_value() || now - *cached.made_at >= kTextAgeMax) {
      HPS_ASSIGN_OR_RETURN(cached.text, make());
      cached.made_at = now;
    }
    return Page{.content_type = content_type, .fixed = {}, .made = cached.text};
  }

  absl::StatusOr<std::string> FromSnapshot(std::string (*make)(const Snapshot&)) const {
    Snapshot snapshot = {.config = parts_.config};
    HPS_ASSIGN_OR_RETURN(snapshot.tables, parts_.store->Tables());
    snapshot.server = parts_.statistics->Snapshot();
    snapshot.store = parts_.store->Statistics();
    snapshot.models = parts_.repository->Index();
    snapshot.process = ReadProcessStatistics();
    snapshot.log = CountLogLines();
    snapshot.unix_ms = static_cast<uint64_t>(UnixMilliseconds());
    return make(snapshot);
  }

  // One lookup at a time; others are refused meanwhile. This is for a person at a keyboard: it must
  // not be a way around the server's limits, nor hold the server's threads.
  absl::StatusOr<Page> Lookup(std::string_view query) HPS_EXCLUDES(lookup_mutex_) {
    HPS_ASSIGN_OR_RETURN(const KeyQuestion question, ParseKeyQuestion(query));
    if (!lookup_mutex_.TryLock()) {
      return absl::ResourceExhaustedError("a key is being looked up for someone else: try again");
    }
    absl::StatusOr<std::string> answer = std::string();
    const absl::Status answered = Try([&] {
      answer = AnswerKeyQuestion(*parts_.store, question);
      return answer.status();
    });
    lookup_mutex_.Unlock();
    HPS_RETURN_IF_ERROR(answered);
    return Page{.content_type = kJsonType, .fixed = {}, .made = *std::move(answer)};
  }

  const PageParts parts_;
  Mutex mutex_;
  Text metrics_ HPS_GUARDED_BY(mutex_);
  Text overview_ HPS_GUARDED_BY(mutex_);
  Text history_ HPS_GUARDED_BY(mutex_);
  Mutex lookup_mutex_;
};

}  // namespace

std::unique_ptr<PageSource> MakePages(const PageParts& parts) {
  return std::make_unique<Pages>(parts);
}

}  // namespace hps::server
