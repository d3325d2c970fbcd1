#include "query/session_factory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fork_join_team.h"
#include "base/limits.h"
#include "base/macros.h"
#include "query/fetch/fetch_service.h"
#include "query/lookup_session_impl.h"

namespace hps {
namespace {

// Most of the workers: so that the caller, promotion, and what else there is to do find a core.
size_t HelpersOf(size_t thread_count) {
  const size_t others = std::max<size_t>(thread_count / 8, 1) + 1;
  return std::clamp<size_t>(thread_count - std::min(others, thread_count), 1, kHelpersMax);
}

class SessionFactoryImpl final : public SessionFactory {
 public:
  SessionFactoryImpl(Options options, std::unique_ptr<FetchService> fetch)
      : options_(std::move(options)),
        fetch_(std::move(fetch)),
        teams_({.executor = options_.fetch_executor,
                .helpers_max = HelpersOf(options_.fetch_executor->thread_count()),
                .spin = options_.helper_spin}) {
    if (!options_.healths.empty()) return;
    for (const DeviceCache* cache : options_.caches) {
      own_healths_.push_back(std::make_unique<DeviceHealth>(cache->device()));
      options_.healths.push_back(own_healths_.back().get());
    }
  }

  absl::StatusOr<std::unique_ptr<LookupSession>> NewSession(
      LiveModel& model, const SessionOptions& options) override {
    return MakeSession(model, SnapshotPin(), options);
  }

  absl::StatusOr<std::unique_ptr<LookupSession>> NewPinnedSession(
      const SnapshotPin& pin, const SessionOptions& options) override {
    return MakeSession(*pin.state(), pin.Share(), options);
  }

  EpochDomain& epoch_domain() override { return domain_; }

  absl::Status DrainPromotions(Duration timeout) override { return fetch_->Drain(timeout); }

  void AddStatistics(StoreStatistics* statistics) const override {
    statistics->lookups += lookups_.Sum();
    statistics->deadlines_exceeded += deadlines_exceeded_.load();
    statistics->promotions_dropped += fetch_->promotions_dropped();
    for (const DeviceHealth* health : options_.healths)
      statistics->l1_unavailable += !health->is_up();
    statistics->l3_errors += fetch_->l3_errors().AddTo(&statistics->l3_errors_by_code);
  }

 private:
  absl::StatusOr<std::unique_ptr<LookupSession>> MakeSession(LiveModel& model, SnapshotPin pin,
                                                             const SessionOptions& options) {
    if (options.keys_max == 0 || options.keys_max > kKeysPerCallMax) {
      return absl::InvalidArgumentError(absl::StrCat("session: keys_max ", options.keys_max,
                                                     " is not in [1, ", kKeysPerCallMax, "]"));
    }
    if (options.output_dtype.value_or(Dtype::kFloat32) != Dtype::kFloat32)
      return absl::InvalidArgumentError("session: rows can be converted to float32 only");
    size_t cache_index = 0;
    while (cache_index < options_.caches.size() &&
           options_.caches[cache_index]->device() != options.device) {
      ++cache_index;
    }
    const bool has_cache = cache_index < options_.caches.size();
    if (!has_cache && options.device != -1) {
      return absl::UnavailableError(
          absl::StrCat("session: there is no cache on device ", options.device));
    }
    HPS_ASSIGN_OR_RETURN(EpochDomain::Reader reader, domain_.AddReader());
    return LookupSessionImpl::Create({.model = model,
                                      .pin = std::move(pin),
                                      .shared = {.fetch = *fetch_,
                                                 .teams = teams_,
                                                 .timeout = options_.timeout,
                                                 .lookups = lookups_,
                                                 .deadlines_exceeded = deadlines_exceeded_,
                                                 .tuning = options_.tuning},
                                      .options = options,
                                      .reader = std::move(reader),
                                      .cache = has_cache ? options_.caches[cache_index] : nullptr,
                                      .cache_index = has_cache ? cache_index : kNoCache,
                                      .health = has_cache ? options_.healths[cache_index] : nullptr,
                                      .number = sessions_made_.fetch_add(1)});
  }

  Options options_;  // not changed once it is made
  std::vector<std::unique_ptr<DeviceHealth>> own_healths_;
  EpochDomain domain_;
  const std::unique_ptr<FetchService> fetch_;
  ForkJoinPool teams_;
  std::atomic<size_t> sessions_made_{0};
  ShardedCounter lookups_;
  std::atomic<uint64_t> deadlines_exceeded_{0};
};

absl::Status CheckCaches(const std::vector<DeviceCache*>& caches) {
  if (caches.size() > kCachesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("session factory: ", caches.size(), " caches; the maximum is ", kCachesMax));
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (caches[i]->device() == caches[j]->device()) {
        return absl::InvalidArgumentError(
            absl::StrCat("session factory: two caches on device ", caches[i]->device()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFactory>> SessionFactory::Create(const Options& options) {
  HPS_RETURN_IF_ERROR(CheckCaches(options.caches));
  if (!options.healths.empty() && options.healths.size() != options.caches.size()) {
    return absl::InvalidArgumentError(absl::StrCat("session factory: ", options.healths.size(),
                                                   " healths for ", options.caches.size(),
                                                   " caches"));
  }
  HPS_ASSIGN_OR_RETURN(auto fetch,
                       FetchService::Create({.fetch_executor = options.fetch_executor,
                                             .promote_executor = options.promote_executor,
                                             .scratch_count = options.scratch_count}));
  return std::make_unique<SessionFactoryImpl>(options, std::move(fetch));
}

}  // namespace hps
