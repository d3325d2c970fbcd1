#include "query/session_factory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "query/lookup_session_impl.h"

namespace hps {
namespace {

// Most of the workers: so that the caller, promotion, and what else there is to do find a core.
size_t HelpersOf(size_t thread_count) {
  const size_t others = std::max<size_t>(thread_count / 8, 1) + 1;
  return std::clamp<size_t>(thread_count - std::min(others, thread_count), 1, kHelpersMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFactory>> SessionFactory::Create(const Options& options) {
  HPS_ASSIGN_OR_RETURN(auto fetch,
                       FetchService::Create({.fetch_executor = options.fetch_executor,
                                             .promote_executor = options.promote_executor,
                                             .scratch_count = options.scratch_count}));
  return std::make_unique<SessionFactory>(options, std::move(fetch));
}

SessionFactory::SessionFactory(Options options, std::unique_ptr<FetchService> fetch)
    : options_(std::move(options)),
      shared_{
          .fetch = std::move(fetch),
          .teams = ForkJoinPool({.executor = options_.fetch_executor,
                                 .helpers_max = HelpersOf(options_.fetch_executor->thread_count()),
                                 .spin = options_.helper_spin}),
          .timeout = options_.timeout,
          .tuning = options_.tuning} {
  HPS_CHECK(options_.caches.size() <= kCachesMax);
  std::set<int> devices;
  for (const DeviceCache* cache : options_.caches)
    HPS_CHECK(devices.insert(cache->device()).second);
  if (options_.healths.empty()) {
    for (const DeviceCache* cache : options_.caches) {
      own_healths_.push_back(std::make_unique<DeviceHealth>(cache->device()));
      options_.healths.push_back(own_healths_.back().get());
    }
  }
  HPS_CHECK(options_.healths.size() == options_.caches.size());
}

void SessionFactory::AddStatistics(StoreStatistics* statistics) const {
  statistics->lookups += shared_.lookups.Sum();
  statistics->deadlines_exceeded += shared_.deadlines_exceeded.load();
  statistics->promotions_dropped += shared_.fetch->promotions_dropped();
  for (const DeviceHealth* health : options_.healths)
    statistics->l1_unavailable += !health->is_up();
  statistics->l3_errors += shared_.fetch->l3_errors().AddTo(&statistics->l3_errors_by_code);
}

absl::StatusOr<std::unique_ptr<LookupSession>> SessionFactory::MakeSession(
    LiveModel& model, SnapshotPin pin, const SessionOptions& options, SessionResources resources) {
  if (options.keys_max == 0 || options.keys_max > kKeysPerCallMax) {
    return absl::InvalidArgumentError(absl::StrCat("session: keys_max ", options.keys_max,
                                                   " is not in [1, ", kKeysPerCallMax, "]"));
  }
  if (options.output_dtype.value_or(Dtype::kFloat32) != Dtype::kFloat32)
    return absl::InvalidArgumentError("session: rows can be converted to float32 only");
  const auto cache = std::ranges::find(options_.caches, options.device, &DeviceCache::device);
  const auto cache_index = static_cast<size_t>(cache - options_.caches.begin());
  const bool has_cache = cache != options_.caches.end();
  if (!has_cache && options.device != -1) {
    return absl::UnavailableError(
        absl::StrCat("session: there is no cache on device ", options.device));
  }
  HPS_ASSIGN_OR_RETURN(EpochDomain::Reader reader, domain_.AddReader());
  return LookupSessionImpl::Create({.resources = std::move(resources),
                                    .model = model,
                                    .pin = std::move(pin),
                                    .shared = shared_,
                                    .options = options,
                                    .reader = std::move(reader),
                                    .cache = has_cache ? *cache : nullptr,
                                    .cache_index = has_cache ? cache_index : kNoCache,
                                    .health = has_cache ? options_.healths[cache_index] : nullptr,
                                    .number = sessions_made_.fetch_add(1)});
}

}  // namespace hps
