// All macros of the project.
//
// HPS_CHECK asserts in every build; use it for conditions checked once per batch. HPS_DCHECK
// asserts in sanitizer and debug builds only; use it per key. Both are for bugs only: failures of
// disks, networks and inputs are a Status. HPS_RETURN_IF_ERROR and HPS_ASSIGN_OR_RETURN pass a
// Status up. HPS_GUARDED_BY and similar macros are clang's thread-safety attributes (empty for
// other compilers). HPS_HOST_DEVICE is on functions that kernels call too.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::internal {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace hps::internal

#define HPS_CHECK(condition) \
  ((condition) ? void() : ::hps::internal::CheckFailed(#condition, __FILE__, __LINE__))

#if defined(HPS_SANITIZED) || !defined(NDEBUG)
#define HPS_DCHECK(condition) HPS_CHECK(condition)
#else
#define HPS_DCHECK(condition) (true ? void() : void(condition))
#endif

#define HPS_RETURN_IF_ERROR(expression)                                              \
  do {                                                                               \
    if (absl::Status hps_status = (expression); !hps_status.ok()) return hps_status; \
  } while (false)

#define HPS_CONCAT_INNER(a, b) a##b
#define HPS_CONCAT(a, b) HPS_CONCAT_INNER(a, b)
#define HPS_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return std::move(result).status();         \
  target = *std::move(result)
#define HPS_ASSIGN_OR_RETURN(target, expression) \
  HPS_ASSIGN_OR_RETURN_INNER(HPS_CONCAT(hps_result_, __LINE__), target, expression)

#if defined(__CUDACC__)
#define HPS_HOST_DEVICE __host__ __device__
#else
#define HPS_HOST_DEVICE
#endif

#if defined(__clang__)
#define HPS_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define HPS_THREAD_ATTRIBUTE(x)
#endif
#define HPS_CAPABILITY(x) HPS_THREAD_ATTRIBUTE(capability(x))
#define HPS_SCOPED_CAPABILITY HPS_THREAD_ATTRIBUTE(scoped_lockable)
#define HPS_GUARDED_BY(x) HPS_THREAD_ATTRIBUTE(guarded_by(x))
#define HPS_PT_GUARDED_BY(x) HPS_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define HPS_REQUIRES(...) HPS_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HPS_EXCLUDES(...) HPS_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define HPS_ACQUIRE(...) HPS_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HPS_RELEASE(...) HPS_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HPS_TRY_ACQUIRE(...) HPS_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
