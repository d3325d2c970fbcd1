// For tests of what a user may not do: root may read everything.
#pragma once

#include <sys/fsuid.h>

namespace hps {

// While it lives, what the calling thread does to files is done as nobody when the process is
// root's, else as ever: what has no permission bits is forbidden in either case.
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
