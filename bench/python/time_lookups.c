// Calls hps_lookup in a loop, for bench/python/lookups.py.
#include <time.h>

#include "hps/c_api.h"

// Seconds of the thread's processor time of one round; below 0 if a lookup failed.
double time_lookups(hps_session* session, const hps_table_query* queries, size_t query_count,
                    int rounds) {
  struct timespec begin;
  struct timespec end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int i = 0; i < rounds; ++i)
    if (hps_lookup(session, queries, query_count, NULL, NULL) != 0) return -1;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) /
         rounds;
}
