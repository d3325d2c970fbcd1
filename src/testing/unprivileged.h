// For tests of missing permissions: root can read everything.
#pragma once

#include <sys/fsuid.h>

namespace hps {

// While it exists, file accesses of the calling thread are made as user nobody if the process runs
// as root. Access without permission bits is then refused in either case.
class Unprivileged {
 public:
  Unprivileged()
      : group_(static_cast<gid_t>(setfsgid(kNobody))),
        user_(static_cast<uid_t>(setfsuid(kNobody))) {}
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
  ~Unprivileged() {
    setfsuid(user_);
    setfsgid(group_);
  }

 private:
  static constexpr uid_t kNobody = 65534;

  const gid_t group_;
  const uid_t user_;
};

}  // namespace hps
